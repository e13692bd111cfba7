// Stands before the source of each kernel, which the C++ compiler then takes. What the host calls is
// made after it, for each kernel: launch_NAME and sizes_NAME (nvrtc.cpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#ifdef SYNCHRONIZES
#include <sys/mman.h>
#include <ucontext.h>
#endif

struct dim3_t {
    unsigned x, y, z;
};

static thread_local dim3_t blockIdx, threadIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
// One block runs at a time on a thread.
#define __shared__ static thread_local

namespace standin {

template <typename... P, size_t... I>
inline void call(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) {
    kernel(*(P *)arguments[I]...);
}

#ifdef SYNCHRONIZES
// The threads of a block in turn, each up to its next barrier.
struct Turn {
    ucontext_t block, thread;
    void (*run)(void *);
    void *arguments;
    bool done;
};

static thread_local Turn *turn;

inline void begin() {
    turn->run(turn->arguments);
    turn->done = true;
    swapcontext(&turn->thread, &turn->block);
}

template <typename... P> struct Launched {
    void (*kernel)(P...);
    void **arguments;
    static void run(void *it) {
        auto *launched = (Launched *)it;
        call(launched->kernel, launched->arguments, std::index_sequence_for<P...>{});
    }
};

template <typename... P> inline void run_block(void (*kernel)(P...), void **arguments) {
    constexpr size_t STACK = 64 << 10;
    size_t threads = size_t(blockDim.x) * blockDim.y * blockDim.z;
    Launched<P...> launched{kernel, arguments};
    auto *turns = new Turn[threads];
    char *stacks = (char *)mmap(nullptr, threads * STACK, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < threads; at++) {
        Turn &its = turns[at];
        getcontext(&its.thread);
        its.thread.uc_stack.ss_sp = stacks + at * STACK;
        its.thread.uc_stack.ss_size = STACK;
        its.run = Launched<P...>::run, its.arguments = &launched, its.done = false;
        makecontext(&its.thread, begin, 0);
    }
    for (size_t left = threads; left > 0;) {
        left = 0;
        for (size_t at = 0; at < threads; at++) {
            turn = &turns[at];
            if (turn->done) continue;
            threadIdx = {unsigned(at % blockDim.x), unsigned(at / blockDim.x % blockDim.y),
                         unsigned(at / blockDim.x / blockDim.y)};
            swapcontext(&turn->block, &turn->thread);
            left += !turn->done;
        }
    }
    munmap(stacks, threads * STACK);
    delete[] turns;
}
#else
template <typename... P> inline void run_block(void (*kernel)(P...), void **arguments) {
    for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
        for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                call(kernel, arguments, std::index_sequence_for<P...>{});
}
#endif

// Runs a kernel: block by block, thread by thread.
template <typename... P>
inline void launch(void (*kernel)(P...), const unsigned *grid, const unsigned *block, void **arguments) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_block(kernel, arguments);
}

// How many arguments it has, and the bytes of each, of which `sizes` has room for 16.
template <typename... P> inline size_t sizes(void (*)(P...), size_t *sizes) {
    size_t all[] = {sizeof(P)..., 0};
    for (size_t at = 0; at < sizeof...(P) && at < 16; at++) sizes[at] = all[at];
    return sizeof...(P);
}

}  // namespace standin

#ifdef SYNCHRONIZES
inline void __syncthreads() {
    auto *own = standin::turn;
    swapcontext(&own->thread, &own->block);
}
#endif
