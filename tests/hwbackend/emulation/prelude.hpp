// CUDA on the host, one fiber per thread of a block: what comes before the kernels; `epilogue.hpp` comes behind them.
//
// The blocks of a grid run one after the other, and so do the warps of a block: each from barrier to barrier, its
// threads taking turns in the order of their numbers or against it. So a barrier that is missing shows. Barriers that
// some threads wait at when others have ended, or that not all lanes of a warp come to, are errors.

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <utility>
#include <vector>

#define EMULATED
#define __global__
#define __device__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

struct Size {
    unsigned x, y, z;
};
struct float2 {
    float x, y;
} __attribute__((aligned(8)));
struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16)));

static Size threadIdx, blockIdx, blockDim, gridDim;

inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulation {
enum State { running, at_warp, at_block, ended };
const size_t stack = 1 << 16;
const unsigned warp = 32;
struct Fiber {
    ucontext_t context;
    State state;
};
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static std::vector<float> exchanged;
static ucontext_t outside;
static unsigned current;
static unsigned long long clock = 1000;
static void (*call)(void**);
static void** given;

inline void wait(State state) {
    fibers[current].state = state;
    swapcontext(&fibers[current].context, &outside);
}

static void run() {
    call(given);
    wait(ended);
}
}  // namespace emulation

inline void __syncthreads() { emulation::wait(emulation::at_block); }

inline float __shfl_xor_sync(unsigned, float value, int mask) {
    unsigned own = threadIdx.x;
    emulation::exchanged[own] = value;
    emulation::wait(emulation::at_warp);
    float found = emulation::exchanged[own ^ (unsigned)mask];
    emulation::wait(emulation::at_warp);
    return found;
}

template <class T>
T atomicAdd(T* at, T value) {
    T old = *at;
    *at += value;
    return old;
}

template <class T>
T atomicMin(T* at, T value) {
    T old = *at;
    if (value < old) *at = value;
    return old;
}

template <class T>
T atomicMax(T* at, T value) {
    T old = *at;
    if (value > old) *at = value;
    return old;
}

inline unsigned long long nanoseconds() { return emulation::clock++; }
inline unsigned processor() { return blockIdx.x % 4; }
