// The element types and operations of `spmd`, with the bits of the host (op/builtin.rs).

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
