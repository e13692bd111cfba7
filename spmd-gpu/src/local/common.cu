// What all kernels of the plane `local` begin with.
//
// Each thread takes 16 bytes at a time where all memory is aligned to that, and goes through the
// arrays in steps of the whole grid.

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

__device__ inline u64 first_of_thread() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline u64 threads_of_grid() { return (u64)gridDim.x * blockDim.x; }
