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
