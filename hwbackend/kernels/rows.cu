// Kernels that go over rows or windows: linear layers of few rows, pools, sums, softmax, normalisations; and synth.

__device__ __forceinline__ float warp_total(float value, bool largest) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = !largest ? value + other : other > value || other != other ? other : value;
    }
    return value;
}

// Sum, or largest, of the values of all threads of a block, which has whole warps.
__device__ inline float block_total(float value, bool largest) {
    __shared__ float partial[32];
    value = warp_total(value, largest);
    __syncthreads();  // an earlier call has been read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int i = 1; i < (int)blockDim.x / 32; i++) {
        float other = partial[i];
        value = !largest ? value + other : other > value || other != other ? other : value;
    }
    return value;
}

// linear for few rows: a warp for each output element.
extern "C" __global__ void linear_few(const float* __restrict__ a, const float* __restrict__ b,
                                      const float* __restrict__ bias, float* __restrict__ y, int rows, int depth,
                                      int columns, int activation, Word* stamps) {
    begin(stamps);
    int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    bool inside = i < rows * columns;
    const float* left = a + (inside ? i / columns * depth : 0);
    const float* right = b + (inside ? i % columns * depth : 0);
    float sum = 0.0f;
    for (int k = lane; inside && k < depth; k += 32) sum = fmaf(left[k], right[k], sum);
    sum = warp_total(sum, false);
    if (inside && lane == 0) y[i] = activated(bias ? sum + bias[i % columns] : sum, activation);
    finish(stamps);
}

// times * the sum of each row, or the largest of it: a warp for each row.
extern "C" __global__ void reduce(const float* __restrict__ x, float* __restrict__ y, int rows, int length, int largest,
                                  float times, int activation, Word* stamps) {
    begin(stamps);
    int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    bool inside = i < rows;
    const float* row = x + (inside ? i * length : 0);
    float total = largest ? row[0] : 0.0f;
    for (int k = lane; inside && k < length; k += 32)
        total = !largest ? total + row[k] : row[k] > total || row[k] != row[k] ? row[k] : total;
    total = warp_total(total, largest);
    if (inside && lane == 0) y[i] = activated(times * total, activation);
    finish(stamps);
}

// Largest or sum of each window, times a number: a thread for each output.
extern "C" __global__ void pool(const float* __restrict__ x, float* __restrict__ y, int n, int items, int out_height,
                                int out_width, WINDOW_ARGUMENTS, int largest, float times, int activation,
                                Word* stamps) {
    begin(stamps);
    FOR_EACH_ELEMENT(i, n, items) {
        int rest = i / out_width, left = i % out_width * stride_x - padding_x;
        int top = rest % out_height * stride_y - padding_y;
        const float* from = x + rest / out_height * height * width;
        float total = largest ? -3.402823466e38f : 0.0f;
        for (int r = 0; r < kernel_y; r++) {
            int row = top + r * dilation_y;
            if (row < 0 || row >= height) continue;
            for (int s = 0; s < kernel_x; s++) {
                int column = left + s * dilation_x;
                if (column < 0 || column >= width) continue;
                float value = from[row * width + column];
                total = !largest ? total + value : value > total || value != value ? value : total;
            }
        }
        y[i] = activated(times * total, activation);
    }
    finish(stamps);
}

// A block for each row.
extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int length, int activation,
                                   Word* stamps) {
    begin(stamps);
    const float* row = x + blockIdx.x * length;
    float top = row[0], sum = 0.0f;
    for (int k = threadIdx.x; k < length; k += blockDim.x) top = row[k] > top || row[k] != row[k] ? row[k] : top;
    top = block_total(top, true);
    for (int k = threadIdx.x; k < length; k += blockDim.x) sum += expf(row[k] - top);
    sum = block_total(sum, false);
    for (int k = threadIdx.x; k < length; k += blockDim.x)
        y[blockIdx.x * length + k] = activated(expf(row[k] - top) / sum, activation);
    finish(stamps);
}

// (x - mean) / deviation * scale + shift of each row, or x / root mean square * scale if not centred: a block for each.
extern "C" __global__ void normalize(const float* __restrict__ x, const float* __restrict__ scale,
                                     const float* __restrict__ shift, float* __restrict__ y, int length, int centred,
                                     int activation, Word* stamps) {
    begin(stamps);
    const float* row = x + blockIdx.x * length;
    float mean = 0.0f, squares = 0.0f;
    if (centred) {
        for (int k = threadIdx.x; k < length; k += blockDim.x) mean += row[k];
        mean = block_total(mean, false) / length;
    }
    for (int k = threadIdx.x; k < length; k += blockDim.x) squares = fmaf(row[k] - mean, row[k] - mean, squares);
    float by = 1.0f / sqrtf(block_total(squares, false) / length + 1e-5f);
    for (int k = threadIdx.x; k < length; k += blockDim.x) {
        float value = (row[k] - mean) * by * scale[k];
        y[blockIdx.x * length + k] = activated(shift ? value + shift[k] : value, activation);
    }
    finish(stamps);
}

// ---------------------------------------------------------------------------------------------------------------------
// A kernel of chosen size. Every thread does 8 * iterations FLOP, every block moves `words` times 16 bytes from
// `source` and as many to `sink`, both of `n_words`. Blocks take turns around these buffers, whichever kernel they
// belong to, so what is read has long left the cache. `reads` holds an address and a number of elements for each input.

__device__ Word cursor;

__device__ __forceinline__ int wrapped(int position, int n) { return position < n ? position : position % n; }

extern "C" __global__ void synth(const Word* __restrict__ reads, int n_reads, const float* __restrict__ constant,
                                 float* y, int size, int iterations, int words, const float4* __restrict__ source,
                                 float4* sink, int n_words, Word* stamps, Word* block_stamps) {
    __shared__ int start;
    begin(stamps);
    if (block_stamps && threadIdx.x == 0) block_stamps[3 * blockIdx.x] = nanoseconds();
    if (words) {
        if (threadIdx.x == 0) start = (int)(atomicAdd(&cursor, (Word)words) % n_words);
        __syncthreads();
    }
    int step = blockDim.x, word = threadIdx.x, at = words ? wrapped(start + word, n_words) : 0;
    int rounds = words > 2 * step ? (words + 2 * step - 1) / (2 * step) : 1, some = iterations / rounds;
    float a = constant[0] + threadIdx.x, b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
    for (int round = 1; round <= rounds; round++, word += 2 * step) {
        int after = wrapped(at + step, n_words);
        float4 first, second;
        if (word < words) first = source[at];
        if (word + step < words) second = source[after];
        int n = round < rounds ? some : iterations - (rounds - 1) * some;
        for (int i = 0; i < n; i++) {  // while the words are on their way
            a = fmaf(a, 0.999f, 0.001f), b = fmaf(b, 0.999f, 0.001f);
            c = fmaf(c, 0.999f, 0.001f), d = fmaf(d, 0.999f, 0.001f);
        }
        if (word < words) sink[at] = first;
        if (word + step < words) sink[after] = second;
        at = wrapped(after + step, n_words);
    }
    if (a + b + c + d < -3e38f) sink[0] = make_float4(a, b, c, d);  // never so, but the compiler cannot know
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
    if (block_stamps) {
        __syncthreads();
        if (threadIdx.x == 0) {
            block_stamps[3 * blockIdx.x + 1] = nanoseconds();
            block_stamps[3 * blockIdx.x + 2] = processor();
        }
    }
    finish(stamps);
}
