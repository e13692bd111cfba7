// The kernels of the plane `local`, compiled for one element type, operation and number of ranks:
//
//   ELEMENT     the type, as named below     OPERATION  the operation
//   RANKS       whose elements are folded   PREFIXES   for the kernel of scans
//
// Each thread takes 16 bytes at a time where all memory is aligned to that, and goes through the
// arrays in steps of the whole grid. A fold reads all ranks' elements before it writes, so that an
// output may be an input.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned __int128 u128;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef __int128 i128;
typedef float f32;
typedef double f64;

#define MOST 64

struct Ranks {
    u8 *of[MOST];
};

template <typename T, typename U> __device__ inline T bits_as(U from) {
    static_assert(sizeof(T) == sizeof(U), "of one size");
    union Both {
        U from;
        T into;
        __device__ Both() {}
    } both;
    both.from = from;
    return both.into;
}

// 16-bit floating-point numbers, which compute in f32 and round to nearest, ties to even.

struct f16 {
    u16 bits;
};

struct bf16 {
    u16 bits;
};

__device__ inline f32 widen(f16 number) {
    u32 sign = (u32)(number.bits & 0x8000) << 16, magnitude = (u32)(number.bits & 0x7fff) << 13;
    u32 least = 113u << 23;
    if (magnitude < 1u << 23) {
        f32 subnormal = bits_as<f32>(magnitude + least) - bits_as<f32>(least);
        return bits_as<f32>(sign | bits_as<u32>(subnormal));
    }
    return bits_as<f32>(sign | (magnitude + ((magnitude >= 31u << 23 ? 224u : 112u) << 23)));
}

__device__ inline void round_to(f32 number, f16 &result) {
    u32 bits = bits_as<u32>(number), sign = bits & 0x80000000u, magnitude = bits & 0x7fffffffu;
    u32 rounded;
    if (magnitude >= 143u << 23) {
        rounded = magnitude > 255u << 23 ? 0x7e00 : 0x7c00;
    } else if (magnitude < 113u << 23) {
        rounded = bits_as<u32>(bits_as<f32>(magnitude) + 0.5f) - bits_as<u32>(0.5f);
    } else {
        rounded = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    }
    result.bits = (u16)(sign >> 16 | rounded);
}

__device__ inline f32 widen(bf16 number) { return bits_as<f32>((u32)number.bits << 16); }

__device__ inline void round_to(f32 number, bf16 &result) {
    u32 bits = bits_as<u32>(number);
    u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
    bool is_nan = (bits & 0x7fffffffu) > 255u << 23;
    result.bits = (u16)((is_nan ? bits | 1u << 22 : rounded) >> 16);
}

template <typename T> struct Complex {
    T re, im;
};

template <typename T> struct Located {
    u8 index[8];
    T value;
};

// The numbers that an element is compared by, and whether it is a NaN or negative.

template <typename T> __device__ inline T number(T element) { return element; }
__device__ inline f32 number(f16 element) { return widen(element); }
__device__ inline f32 number(bf16 element) { return widen(element); }
template <typename T> __device__ inline bool is_nan(T element) {
    return number(element) != number(element);
}
template <typename T> __device__ inline bool is_negative(T element) { return element < T(0); }
__device__ inline bool is_negative(f16 element) { return element.bits >> 15; }
__device__ inline bool is_negative(bf16 element) { return element.bits >> 15; }
__device__ inline bool is_negative(f32 element) { return bits_as<u32>(element) >> 31; }
__device__ inline bool is_negative(f64 element) { return bits_as<u64>(element) >> 63; }

// IEEE 754-2019 minimum and maximum: NaN before all numbers, -0 less than +0.

template <typename T> __device__ inline bool below(T left, T right) {
    bool sign = is_negative(left) && !is_negative(right);
    return number(left) < number(right) || (number(left) == number(right) && sign) ||
           (is_nan(left) && !is_nan(right));
}

template <typename T> __device__ inline bool above(T left, T right) {
    bool sign = !is_negative(left) && is_negative(right);
    return number(left) > number(right) || (number(left) == number(right) && sign) ||
           (is_nan(left) && !is_nan(right));
}

struct Sum {
    template <typename T> __device__ static T of(T left, T right) { return left + right; }
    template <typename T> __device__ static Complex<T> of(Complex<T> left, Complex<T> right) {
        return {left.re + right.re, left.im + right.im};
    }
    __device__ static f16 of(f16 left, f16 right) { return half<f16>(left, right); }
    __device__ static bf16 of(bf16 left, bf16 right) { return half<bf16>(left, right); }
    template <typename T> __device__ static T half(T left, T right) {
        T result;
        round_to(widen(left) + widen(right), result);
        return result;
    }
};

struct Prod {
    template <typename T> __device__ static T of(T left, T right) { return left * right; }
    // In C, 16-bit factors are signed, and their product may be too large for that.
    __device__ static u16 of(u16 left, u16 right) { return (u16)((u32)left * (u32)right); }
    template <typename T> __device__ static Complex<T> of(Complex<T> left, Complex<T> right) {
        return {left.re * right.re - left.im * right.im, left.re * right.im + left.im * right.re};
    }
    __device__ static f16 of(f16 left, f16 right) { return half<f16>(left, right); }
    __device__ static bf16 of(bf16 left, bf16 right) { return half<bf16>(left, right); }
    template <typename T> __device__ static T half(T left, T right) {
        T result;
        round_to(widen(left) * widen(right), result);
        return result;
    }
};

struct Min {
    template <typename T> __device__ static T of(T left, T right) {
        return below(right, left) ? right : left;
    }
};

struct Max {
    template <typename T> __device__ static T of(T left, T right) {
        return above(right, left) ? right : left;
    }
};

struct BitAnd {
    template <typename T> __device__ static T of(T left, T right) { return left & right; }
};

struct BitOr {
    template <typename T> __device__ static T of(T left, T right) { return left | right; }
};

struct BitXor {
    template <typename T> __device__ static T of(T left, T right) { return left ^ right; }
};

struct LogicalAnd {
    template <typename T> __device__ static T of(T left, T right) {
        return (left != 0) & (right != 0);
    }
};

struct LogicalOr {
    template <typename T> __device__ static T of(T left, T right) {
        return (left != 0) | (right != 0);
    }
};

struct Replace {
    template <typename T> __device__ static T of(T left, T right) { return right; }
};

struct NoOp {
    template <typename T> __device__ static T of(T left, T right) { return left; }
};

__device__ inline u64 index_of(const u8 *bytes) {
    u64 index = 0;
    for (int at = 7; at >= 0; at--) {
        index = index << 8 | bytes[at];
    }
    return index;
}

struct MinLoc {
    template <typename T> __device__ static Located<T> of(Located<T> left, Located<T> right) {
        bool tie = !below(left.value, right.value) && index_of(left.index) > index_of(right.index);
        return below(right.value, left.value) || tie ? right : left;
    }
};

struct MaxLoc {
    template <typename T> __device__ static Located<T> of(Located<T> left, Located<T> right) {
        bool tie = !above(left.value, right.value) && index_of(left.index) > index_of(right.index);
        return above(right.value, left.value) || tie ? right : left;
    }
};

// What a thread takes at a time: LANES elements.
template <typename T, int LANES> struct alignas(LANES * sizeof(T)) Pack {
    T lane[LANES];
};

template <typename T> struct Pack<T, 1> {
    T lane[1];
};

__device__ constexpr int split_of(int ranks) {
    int split = 1;
    while (split * 2 < ranks) {
        split *= 2;
    }
    return split;
}

// The canonical order of `spmd` (op/order.rs): the left part is a full binary tree.
template <typename P, int LOW, int COUNT> struct Tree {
    __device__ static inline P of(const Ranks &inputs, u64 at) {
        constexpr int SPLIT = split_of(COUNT);
        P left = Tree<P, LOW, SPLIT>::of(inputs, at);
        P right = Tree<P, LOW + SPLIT, COUNT - SPLIT>::of(inputs, at);
        constexpr int LANES = sizeof(left.lane) / sizeof(left.lane[0]);
#pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            left.lane[lane] = OPERATION::of(left.lane[lane], right.lane[lane]);
        }
        return left;
    }
};

template <typename P, int LOW> struct Tree<P, LOW, 1> {
    __device__ static inline P of(const Ranks &inputs, u64 at) {
        return ((const P *)inputs.of[LOW])[at];
    }
};

__device__ inline u64 first_of_thread() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline u64 threads_of_grid() { return (u64)gridDim.x * blockDim.x; }

// Folds all ranks' elements, and gives every rank that has an output the result.
template <typename P> __device__ inline void fold(Ranks inputs, Ranks outputs, u64 begin, u64 end) {
    for (u64 at = begin + first_of_thread(); at < end; at += threads_of_grid()) {
        P result = Tree<P, 0, RANKS>::of(inputs, at);
#pragma unroll
        for (int rank = 0; rank < RANKS; rank++) {
            if (outputs.of[rank]) {
                ((P *)outputs.of[rank])[at] = result;
            }
        }
    }
}

#ifdef PREFIXES
// Gives each rank up to COUNT - 1 that has an output the fold of as many ranks: from the last one
// down, as a rank's output may be its input, which those after it need.
template <typename P, int COUNT> struct Prefixes {
    __device__ static inline void of(const Ranks &inputs, const Ranks &outputs, u64 at) {
        P result = Tree<P, 0, COUNT>::of(inputs, at);
        if (outputs.of[COUNT - 1]) {
            ((P *)outputs.of[COUNT - 1])[at] = result;
        }
        Prefixes<P, COUNT - 1>::of(inputs, outputs, at);
    }
};

template <typename P> struct Prefixes<P, 0> {
    __device__ static inline void of(const Ranks &, const Ranks &, u64) {}
};

template <typename P>
__device__ inline void prefixes(Ranks inputs, Ranks outputs, u64 begin, u64 end) {
    for (u64 at = begin + first_of_thread(); at < end; at += threads_of_grid()) {
        Prefixes<P, RANKS>::of(inputs, outputs, at);
    }
}
#endif

#ifdef ELEMENT
constexpr int WIDE = 16 % sizeof(ELEMENT) == 0 ? 16 / sizeof(ELEMENT) : 1;

// `packs` times WIDE elements in packs, and what is left, up to `count`, one by one.

#ifdef PREFIXES
extern "C" __global__ void fold_prefixes(Ranks inputs, Ranks outputs, u64 packs, u64 count) {
    prefixes<Pack<ELEMENT, WIDE>>(inputs, outputs, 0, packs);
    prefixes<Pack<ELEMENT, 1>>(inputs, outputs, packs * WIDE, count);
}
#else
extern "C" __global__ void fold_all(Ranks inputs, Ranks outputs, u64 packs, u64 count) {
    fold<Pack<ELEMENT, WIDE>>(inputs, outputs, 0, packs);
    fold<Pack<ELEMENT, 1>>(inputs, outputs, packs * WIDE, count);
}
#endif
#else

// Copies, which know no types.

struct Piece {
    const u8 *from;
    // Where it goes in each of the targets.
    u64 offset;
    u64 bytes;
};

struct Pieces {
    Piece of[MOST];
};

struct alignas(16) Wide {
    u64 half[2];
};

// Gives each target every piece: piece blockIdx.y is read once.
template <typename P>
__device__ inline void spread(const Piece &piece, const Ranks &targets, int count, u64 begin, u64 end) {
    for (u64 at = begin + first_of_thread(); at < end; at += threads_of_grid()) {
        P value = ((const P *)piece.from)[at];
        for (int target = 0; target < count; target++) {
            P *into = (P *)(targets.of[target] + piece.offset) + at;
            if (into != (const P *)piece.from + at) {
                *into = value;
            }
        }
    }
}

extern "C" __global__ void spread_pieces(Pieces pieces, Ranks targets, u32 count, u32 aligned) {
    const Piece piece = pieces.of[blockIdx.y];
    u64 wide = aligned ? piece.bytes / sizeof(Wide) : 0;
    spread<Wide>(piece, targets, count, 0, wide);
    spread<u8>(piece, targets, count, wide * sizeof(Wide), piece.bytes);
}

struct Copy {
    const u8 *from;
    u8 *into;
    u64 bytes;
};

struct Copies {
    Copy of[MOST];
};

template <typename P> __device__ inline void copy(const Copy &piece, u64 begin, u64 end) {
    for (u64 at = begin + first_of_thread(); at < end; at += threads_of_grid()) {
        ((P *)piece.into)[at] = ((const P *)piece.from)[at];
    }
}

// Copies piece blockIdx.y.
extern "C" __global__ void copy_pieces(Copies copies, u32 aligned) {
    const Copy piece = copies.of[blockIdx.y];
    u64 wide = aligned ? piece.bytes / sizeof(Wide) : 0;
    copy<Wide>(piece, 0, wide);
    copy<u8>(piece, wide * sizeof(Wide), piece.bytes);
}
#endif
