// Stands before the source of each kernel, which the C++ compiler then takes. What the host calls is
// made after it, for each kernel: launch_NAME and sizes_NAME (nvrtc.cpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

struct dim3_t {
    unsigned x, y, z;
};

static thread_local dim3_t blockIdx, threadIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline

namespace standin {

template <typename... P, size_t... I>
inline void call(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) {
    kernel(*(P *)arguments[I]...);
}

// Runs a kernel: block by block, thread by thread.
template <typename... P>
inline void launch(void (*kernel)(P...), const unsigned *grid, const unsigned *block, void **arguments) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
                for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
                    for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
                        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                            call(kernel, arguments, std::index_sequence_for<P...>{});
}

// How many arguments it has, and the bytes of each, of which `sizes` has room for 16.
template <typename... P> inline size_t sizes(void (*)(P...), size_t *sizes) {
    size_t all[] = {sizeof(P)..., 0};
    for (size_t at = 0; at < sizeof...(P) && at < 16; at++) sizes[at] = all[at];
    return sizeof...(P);
}

}  // namespace standin
