// A block of FMAs in 1, 2 or 4 chains that depend on nothing but themselves: every turn has four FMAs a thread, however
// they are chained. The first thread of a block writes its start and end in ns, and the number of its SM.
typedef unsigned long long Word;

__device__ __forceinline__ Word nanoseconds() {
    Word time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

extern "C" __global__ void probe(Word* stamps, float* sink, int turns, int chains) {
    Word start = nanoseconds();
    float x[4] = {1.0f * threadIdx.x, 2.0f, 3.0f, 4.0f};
    for (int i = 0; i < turns; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (chains == 1) x[0] = fmaf(x[0], 1.0001f, 0.1f);
            else if (chains == 2) x[k & 1] = fmaf(x[k & 1], 1.0001f, 0.1f);
            else x[k] = fmaf(x[k], 1.0001f, 0.1f);
        }
    if (x[0] + x[1] + x[2] + x[3] == 12345.678f) sink[0] = x[0];
    __syncthreads();  // the block ends with its last thread
    if (threadIdx.x) return;
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    stamps[3 * blockIdx.x] = start, stamps[3 * blockIdx.x + 1] = nanoseconds(), stamps[3 * blockIdx.x + 2] = number;
}

// Values of the timer, one after the other.
extern "C" __global__ void ticks(Word* values, int count) {
    for (int i = 0; i < count; i++) values[i] = nanoseconds();
}
