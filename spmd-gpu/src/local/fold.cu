// Folds, compiled for one element type, operation and number of ranks:
//
//   ELEMENT     the type (numbers.cu)        OPERATION  the operation
//   RANKS       whose elements are folded    PREFIXES   for the kernel of scans
//
// A fold reads all ranks' elements before it writes, so that an output may be an input; the one for scans reads those
// that it needs once more ahead, as an output may be the input of its own rank or of the next one.

// What a thread takes at a time: LANES elements.
template <typename T, int LANES> struct alignas(LANES * sizeof(T)) Pack {
    T lane[LANES];
};

template <typename T> struct Pack<T, 1> {
    T lane[1];
};

template <typename P> __device__ inline P folded(P left, const P &right) {
    constexpr int LANES = sizeof(left.lane) / sizeof(left.lane[0]);
#pragma unroll
    for (int lane = 0; lane < LANES; lane++) {
        left.lane[lane] = OPERATION::of(left.lane[lane], right.lane[lane]);
    }
    return left;
}

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
        return folded(left, Tree<P, LOW + SPLIT, COUNT - SPLIT>::of(inputs, at));
    }
};

template <typename P, int LOW> struct Tree<P, LOW, 1> {
    __device__ static inline P of(const Ranks &inputs, u64 at) {
        return ((const P *)inputs.of[LOW])[at];
    }
};

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
// Gives each rank that has an output the fold of all up to it. Of so many ranks, each bit of their number is a full tree
// of as many; from the last one on they are what the canonical order folds.
template <typename P>
__device__ inline void prefixes(Ranks inputs, Ranks outputs, u64 begin, u64 end) {
    for (u64 at = begin + first_of_thread(); at < end; at += threads_of_grid()) {
        P trees[7], ahead = ((const P *)inputs.of[0])[at];
#pragma unroll
        for (int rank = 0; rank < RANKS; rank++) {
            P tree = ahead;
            if (rank + 1 < RANKS) {
                ahead = ((const P *)inputs.of[rank + 1])[at];
            }
            int level = 0;
#pragma unroll
            for (; level < 6 && rank >> level & 1; level++) {
                tree = folded(trees[level], tree);
            }
            trees[level] = tree;
            if (outputs.of[rank]) {
                P result = tree;
#pragma unroll
                for (int more = 0; more < 7; more++) {
                    if (more > level && (rank + 1) >> more & 1) {
                        result = folded(trees[more], result);
                    }
                }
                ((P *)outputs.of[rank])[at] = result;
            }
        }
    }
}
#endif

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
