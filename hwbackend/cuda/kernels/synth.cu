// Kernels of a chosen size. They differ in the registers that a thread holds, and compute the same.
//
// A thread does 8 * iterations FLOP, in 1, 2 or 4 chains of FMAs that do not depend on each other. A block moves `words`
// times 16 bytes from `source` and as many to `sink`, both of `n_words`. Blocks take turns around these buffers, whichever
// kernel they belong to, so the words read have long left the cache. A block lasts `hold` ns at least.
//
// `reads` holds an address and a number of elements for each input. `stamps` are two words or null: the first is lowered
// to the time at which the first block began, the second raised to the time at which the last block ended. `block_stamps`
// are three words for each block, or null: begin, end, number of the SM.

typedef unsigned long long Word;

__device__ Word cursor;

__device__ __forceinline__ Word nanoseconds() {
    Word time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__device__ __forceinline__ unsigned processor() {
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

__device__ __forceinline__ int wrapped(int position, int n) { return position < n ? position : position % n; }

// Four FMAs an iteration: each of CHAINS values gets 4 / CHAINS of them, one after the other.
template <int CHAINS>
__device__ __forceinline__ void computed(float (&value)[4], int iterations) {
#pragma unroll 4
    for (int i = 0; i < iterations; i++) {
#pragma unroll
        for (int k = 0; k < 4; k++) value[k % CHAINS] = fmaf(value[k % CHAINS], 0.999f, 0.001f);
    }
}

// HELD numbers stay in registers from the first statement to the last.
template <int HELD>
__device__ __forceinline__ void block(const Word* __restrict__ reads, int n_reads, const float* __restrict__ constant,
                                      float* y, int size, int iterations, int chains, int words,
                                      const float4* __restrict__ source, float4* sink, int n_words, int hold,
                                      Word* stamps, Word* block_stamps) {
    __shared__ int start;
    Word begun = nanoseconds();
    if (stamps && threadIdx.x == 0) atomicMin(stamps, begun);
    float held[HELD + 1];
#pragma unroll
    for (int k = 0; k < HELD; k++) asm volatile("add.f32 %0, %1, %2;" : "=f"(held[k]) : "f"(constant[0]), "f"(1.0f * k));
    if (words) {
        if (threadIdx.x == 0) start = (int)(atomicAdd(&cursor, (Word)words) % n_words);
        __syncthreads();
    }
    int step = blockDim.x, word = threadIdx.x, at = words ? wrapped(start + word, n_words) : 0;
    int rounds = words > 2 * step ? (words + 2 * step - 1) / (2 * step) : 1, some = iterations / rounds;
    float value[4];
    for (int k = 0; k < 4; k++) value[k] = constant[0] + threadIdx.x + k;
    for (int round = 1; round <= rounds; round++, word += 2 * step) {
        int after = wrapped(at + step, n_words);
        float4 first, second;
        if (word < words) first = source[at];
        if (word + step < words) second = source[after];
        int n = round < rounds ? some : iterations - (rounds - 1) * some;  // while the words are on their way
        if (chains == 1) computed<1>(value, n);
        else if (chains == 2) computed<2>(value, n);
        else computed<4>(value, n);
        if (word < words) sink[at] = first;
        if (word + step < words) sink[after] = second;
        at = wrapped(after + step, n_words);
    }
    // the last blocks write the output, since blocks begin in order
    int writers = gridDim.x < (unsigned)size ? gridDim.x : size, writer = blockIdx.x - (gridDim.x - writers);
    int each = (size + writers - 1) / writers;
    if (writer >= 0) {
        for (int i = writer * each + threadIdx.x; i < size && i < (writer + 1) * each; i += blockDim.x) {
            float sum = 0.0f;
            for (int k = 0; k < n_reads; k++)
                sum += reinterpret_cast<const float*>(reads[2 * k])[i % (int)reads[2 * k + 1]];
            y[i] = n_reads ? constant[0] + 0.5f / n_reads * sum : constant[0];
        }
    }
    while (hold && nanoseconds() - begun < (Word)hold) {}
#pragma unroll
    for (int k = 0; k < HELD; k++) asm volatile("add.f32 %0, %0, %1;" : "+f"(value[0]) : "f"(held[k]));
    if (value[0] + value[1] + value[2] + value[3] < -3e38f) sink[0].x = value[0];  // never, but the compiler cannot know
    if (!stamps && !block_stamps) return;
    __syncthreads();  // the block ends with its last thread
    if (threadIdx.x) return;
    Word end = nanoseconds();
    if (stamps) atomicMax(stamps + 1, end);
    if (block_stamps) {
        block_stamps[3 * blockIdx.x] = begun;
        block_stamps[3 * blockIdx.x + 1] = end;
        block_stamps[3 * blockIdx.x + 2] = processor();
    }
}

#define KERNEL(name, threads, held)                                                                                    \
    extern "C" __global__ void __launch_bounds__(threads)                                                              \
        name(const Word* __restrict__ reads, int n_reads, const float* __restrict__ constant, float* y, int size,      \
             int iterations, int chains, int words, const float4* __restrict__ source, float4* sink, int n_words,      \
             int hold, Word* stamps, Word* block_stamps) {                                                             \
        block<held>(reads, n_reads, constant, y, size, iterations, chains, words, source, sink, n_words, hold, stamps, \
                    block_stamps);                                                                                     \
    }

KERNEL(synth, 1024, 0)
KERNEL(synth_64, 1024, 24)
KERNEL(synth_128, 512, 88)
KERNEL(synth_168, 384, 128)
KERNEL(synth_255, 256, 215)
