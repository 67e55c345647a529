// What all kernels share, and those that go over a tensor element by element.
//
// Tensors are dense, row-major float32 of at most 2^30 elements. Every kernel ends with `stamps`, two 64-bit words or
// null: the first is lowered to the time at which the first block began, the second raised to that at which the last
// one ended, so a span is measured without events, inside of a captured graph too. Comparisons are such that NaN
// stays NaN.

typedef unsigned long long Word;

#ifndef EMULATED
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
#endif

__device__ __forceinline__ void begin(Word* stamps) {
    if (stamps && threadIdx.x == 0) atomicMin(stamps, nanoseconds());
}

__device__ __forceinline__ void finish(Word* stamps) {
    if (!stamps) return;
    __syncthreads();  // the block ends with its last thread
    if (threadIdx.x == 0) atomicMax(stamps + 1, nanoseconds());
}

// ---------------------------------------------------------------------------------------------------------------------
// Activations, by number: `hwbackend.cuda_steps.ACTIVATIONS` lists them in this order.

__device__ __forceinline__ float limited(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

__device__ inline float activated(float x, int activation) {
    switch (activation) {
        case 1: return x < 0.0f ? 0.0f : x;                                                // relu
        case 2: return limited(x, 0.0f, 6.0f);                                             // relu6
        case 3: return x < 0.0f ? 0.01f * x : x;                                           // leaky_relu
        case 4: return x < 0.0f ? 0.25f * x : x;                                           // prelu
        case 5: return limited(x / 6.0f + 0.5f, 0.0f, 1.0f);                               // hard_sigmoid
        case 6: return logistic(x);                                                        // sigmoid
        case 7: return tanhf(x);                                                           // tanh
        case 8: return x * logistic(x);                                                    // silu
        case 9: return x * limited(x / 6.0f + 0.5f, 0.0f, 1.0f);                           // hard_swish
        case 10: return x < 0.0f ? expm1f(x) : x;                                          // elu
        case 11: return 1.05070099f * (x < 0.0f ? 1.67326324f * expm1f(x) : x);            // selu
        case 12: return softplus(x);                                                       // softplus
        case 13: return x * tanhf(softplus(x));                                            // mish
        case 14: return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));  // gelu
        case 15: return x * x;                                                             // square
        default: return x;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Elementwise: a block goes over blockDim.x * items elements, neighbouring threads over neighbouring elements.

#define FOR_EACH_ELEMENT(i, n, items)                                                                                 \
    for (int base_ = blockIdx.x * blockDim.x * (items), i = base_ + threadIdx.x, end_ =                               \
             (n) - base_ < (int)blockDim.x * (items) ? (n) : base_ + (int)blockDim.x * (items);                       \
         i < end_; i += blockDim.x)

// y = f(times * x * scale[c] + shift[c]), c being the channel; without scale and shift if they are null.
extern "C" __global__ void affine(const float* __restrict__ x, const float* __restrict__ scale,
                                  const float* __restrict__ shift, float* __restrict__ y, int n, int items,
                                  int channels, int inner, float times, int activation, Word* stamps) {
    begin(stamps);
    FOR_EACH_ELEMENT(i, n, items) {
        float value = times * x[i];
        if (scale || shift) {
            int c = i / inner % channels;
            if (scale) value *= scale[c];
            if (shift) value += shift[c];
        }
        y[i] = activated(value, activation);
    }
    finish(stamps);
}

// y = f(x0 + x1 + ...), f(x0 * x1 * ...) or f(x0 - x1 - ...); `reads` holds the addresses of the inputs.
extern "C" __global__ void combine(const Word* __restrict__ reads, int n_reads, float* __restrict__ y, int n, int items,
                                   int operation, int activation, Word* stamps) {
    begin(stamps);
    FOR_EACH_ELEMENT(i, n, items) {
        float value = reinterpret_cast<const float*>(reads[0])[i];
        for (int k = 1; k < n_reads; k++) {
            float other = reinterpret_cast<const float*>(reads[k])[i];
            value = operation == 0 ? value + other : operation == 1 ? value * other : value - other;
        }
        y[i] = activated(value, activation);
    }
    finish(stamps);
}

// Inputs behind each other along an axis. For each input `reads` holds its address, the first block that copies it, the
// length of a row of it (the axis and those behind it) and where that begins in a row of the output.
extern "C" __global__ void concat(const Word* __restrict__ reads, int n_reads, float* __restrict__ y, int outer,
                                  int width, int items, int activation, Word* stamps) {
    begin(stamps);
    int k = n_reads - 1;
    while (k && blockIdx.x < reads[4 * k + 1]) k--;
    const float* x = reinterpret_cast<const float*>(reads[4 * k]);
    int block = blockIdx.x - (int)reads[4 * k + 1], length = (int)reads[4 * k + 2], start = (int)reads[4 * k + 3];
    int first = block * blockDim.x * items, n = outer * length;
    for (int j = 0, i = first + threadIdx.x; j < items && i < n; j++, i += blockDim.x)
        y[i / length * width + start + i % length] = activated(x[i], activation);
    finish(stamps);
}

// A tensor of six axes, element by element from where `start` and the strides lead: a part cut out, an axis repeated
// (stride 0).
extern "C" __global__ void gather(const float* __restrict__ x, float* __restrict__ y, int n, int items, int start,
                                  int n1, int n2, int n3, int n4, int n5, int s0, int s1, int s2, int s3, int s4,
                                  int s5, int activation, Word* stamps) {
    begin(stamps);
    FOR_EACH_ELEMENT(i, n, items) {
        int rest = i, at = start + rest % n5 * s5;
        rest /= n5, at += rest % n4 * s4;
        rest /= n4, at += rest % n3 * s3;
        rest /= n3, at += rest % n2 * s2;
        rest /= n2, at += rest % n1 * s1;
        y[i] = activated(x[at + rest / n1 * s0], activation);
    }
    finish(stamps);
}

// Rows of a table, by indices that are numbers.
extern "C" __global__ void embed(const float* __restrict__ x, const float* __restrict__ table, float* __restrict__ y,
                                 int n, int items, int rows, int features, int activation, Word* stamps) {
    begin(stamps);
    FOR_EACH_ELEMENT(i, n, items) {
        float number = x[i / features], position = floorf(fabsf(number) * 1024.0f);
        unsigned row = position < 4e9f ? (unsigned)position % rows : 0;
        float found = number == number ? table[(long long)row * features + i % features] : number;
        y[i] = activated(found, activation);
    }
    finish(stamps);
}
