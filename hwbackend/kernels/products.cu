// Matrix products: convolutions (without writing the matrix of patches that they multiply), linear layers, matmul.
//
// A block makes a tile of ROWS x COLUMNS outputs and a thread HEIGHT x WIDTH of them, from strips of both operands that
// lie in shared memory, DEPTH steps along the inner dimension at a time. The next strips are read into registers while
// the present ones are multiplied.

const int DEPTH = 16;
const int PADDING = 4;  // floats behind each row of a strip: rows stay aligned to 16 bytes and begin in other banks

// RESIDENT blocks are to fit on a processor at a time: that bounds the registers.
template <int ROWS, int COLUMNS, int HEIGHT, int WIDTH, int RESIDENT>
struct Tile {
    static const int rows = ROWS, columns = COLUMNS, height = HEIGHT, width = WIDTH, resident = RESIDENT;
    static const int threads = (ROWS / HEIGHT) * (COLUMNS / WIDTH), unrolled = HEIGHT * WIDTH < 64 ? DEPTH : 4;
};

typedef Tile<128, 128, 8, 8, 2> Large;  // 256 threads
typedef Tile<64, 64, 4, 4, 4> Middle;   // 256 threads
typedef Tile<32, 32, 2, 4, 8> Small;    // 128 threads

// An operand whose elements are neighbours along the inner dimension: (i, k) is at[i * stride + k].
template <int SIZE, int THREADS>
struct Along {
    static const int each = SIZE * DEPTH / THREADS, step = THREADS / DEPTH;
    const float* at;
    int first, n, stride, depth;

    __device__ void fetch(float (&held)[each], int start) {
        int k = start + threadIdx.x % DEPTH, i = first + threadIdx.x / DEPTH;
#pragma unroll
        for (int j = 0; j < each; j++, i += step) held[j] = i < n && k < depth ? at[i * stride + k] : 0.0f;
    }

    __device__ void put(const float (&held)[each], float (&strip)[DEPTH][SIZE + PADDING]) {
#pragma unroll
        for (int j = 0; j < each; j++) strip[threadIdx.x % DEPTH][threadIdx.x / DEPTH + j * step] = held[j];
    }
};

// What operands have in common whose elements are neighbours across the inner dimension: a thread keeps to one i.
template <int SIZE, int THREADS>
struct Columns {
    static const int each = SIZE * DEPTH / THREADS, step = THREADS / SIZE;

    __device__ void put(const float (&held)[each], float (&strip)[DEPTH][SIZE + PADDING]) {
#pragma unroll
        for (int j = 0; j < each; j++) strip[threadIdx.x / SIZE + j * step][threadIdx.x % SIZE] = held[j];
    }
};

// (i, k) is at[k * stride + i].
template <int SIZE, int THREADS>
struct Across : Columns<SIZE, THREADS> {
    using Columns<SIZE, THREADS>::each;
    using Columns<SIZE, THREADS>::step;
    const float* at;
    int first, n, stride, depth;

    __device__ void fetch(float (&held)[each], int start) {
        int k = start + threadIdx.x / SIZE, i = first + threadIdx.x % SIZE;
#pragma unroll
        for (int j = 0; j < each; j++, k += step) held[j] = i < n && k < depth ? at[k * stride + i] : 0.0f;
    }
};

struct Window {  // of a convolution or pool
    int height, width, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x;
};

// Patches of images: i is an output pixel, k goes over channel and kernel position. The strips are fetched in order, so
// the position moves on by a fixed step and nothing is divided on the way.
template <int SIZE, int THREADS>
struct Patches : Columns<SIZE, THREADS> {
    using Columns<SIZE, THREADS>::each;
    using Columns<SIZE, THREADS>::step;
    const float* at;
    Window window;
    int channels, top, left, channel, row, column;
    int step_channel, step_row, step_column;
    bool inside;

    __device__ Patches(const float* x, const Window& given, int pixel, int n_pixels, int out_height, int out_width,
                       int image_channels, int group_channels, int group)
        : window(given), channels(group_channels), inside(pixel < n_pixels) {
        int image = pixel / (out_height * out_width), y = pixel / out_width % out_height;
        at = x + (inside ? (image * image_channels + group * group_channels) * window.height * window.width : 0);
        top = y * window.stride_y - window.padding_y;
        left = pixel % out_width * window.stride_x - window.padding_x;
        int area = window.kernel_y * window.kernel_x, k = threadIdx.x / SIZE;
        channel = k / area, row = k % area / window.kernel_x, column = k % window.kernel_x;
        step_channel = step / area, step_row = step % area / window.kernel_x, step_column = step % window.kernel_x;
    }

    __device__ void fetch(float (&held)[each], int) {
#pragma unroll
        for (int j = 0; j < each; j++) {
            int y = top + row * window.dilation_y, x = left + column * window.dilation_x;
            bool found = inside && channel < channels && y >= 0 && y < window.height && x >= 0 && x < window.width;
            held[j] = found ? at[(channel * window.height + y) * window.width + x] : 0.0f;
            column += step_column, row += step_row, channel += step_channel;
            if (column >= window.kernel_x) column -= window.kernel_x, row++;
            if (row >= window.kernel_y) row -= window.kernel_y, channel++;
        }
    }
};

// The activation of one of many outputs of a thread: code for all of them at every output would fill the caches.
__device__ __noinline__ float activated_once(float x, int activation) { return activated(x, activation); }

__device__ __forceinline__ float activated_briefly(float x, int activation) {
    if (activation > 1) return activated_once(x, activation);
    return activation == 1 && x < 0.0f ? 0.0f : x;
}

template <int COUNT>
__device__ __forceinline__ void load(const float* from, float* to) {
    if constexpr (COUNT % 4 == 0) {
        float4 four = *reinterpret_cast<const float4*>(from);
        to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else {
        float2 two = *reinterpret_cast<const float2*>(from);
        to[0] = two.x, to[1] = two.y;
    }
}

// A thread's rows (and columns) lie in runs of up to four, so that a run is one load and neighbours load neighbours.
template <int SIZE, int COUNT>
__device__ __forceinline__ int place(int thread, int i) {
    constexpr int run = COUNT < 4 ? COUNT : 4;
    return i / run * (SIZE * run / COUNT) + thread * run + i % run;
}

template <class T, class Left, class Right, class Store>
__device__ __forceinline__ void multiply(int depth, Left left, Right right, const Store& store) {
    __shared__ __align__(16) float lefts[DEPTH][T::rows + PADDING];
    __shared__ __align__(16) float rights[DEPTH][T::columns + PADDING];
    constexpr int down = T::height < 4 ? T::height : 4, across = T::width < 4 ? T::width : 4;
    int x = threadIdx.x % (T::columns / T::width), y = threadIdx.x / (T::columns / T::width);
    float sums[T::height][T::width] = {};
    float next_left[Left::each], next_right[Right::each];
    left.fetch(next_left, 0);
    right.fetch(next_right, 0);
    for (int start = 0; start < depth; start += DEPTH) {
        left.put(next_left, lefts);
        right.put(next_right, rights);
        __syncthreads();
        if (start + DEPTH < depth) {
            left.fetch(next_left, start + DEPTH);
            right.fetch(next_right, start + DEPTH);
        }
#pragma unroll(T::unrolled)
        for (int k = 0; k < DEPTH; k++) {
            float a[T::height], b[T::width];
#pragma unroll
            for (int i = 0; i < T::height; i += down) load<down>(&lefts[k][place<T::rows, T::height>(y, i)], a + i);
#pragma unroll
            for (int j = 0; j < T::width; j += across)
                load<across>(&rights[k][place<T::columns, T::width>(x, j)], b + j);
#pragma unroll
            for (int i = 0; i < T::height; i++)
#pragma unroll
                for (int j = 0; j < T::width; j++) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < T::width; j++) {
        int offset = store.column(place<T::columns, T::width>(x, j));
        if (offset < 0) continue;  // beyond the edge
#pragma unroll
        for (int i = 0; i < T::height; i++) store.put(offset, place<T::rows, T::height>(y, i), sums[i][j]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Grid of a convolution: tiles of output pixels, tiles of a group's output channels, groups.

struct ConvStore {
    float* y;
    const float* bias;
    int pixel, n_pixels, channel, group_channels, all_channels, group, area, activation;

    __device__ __forceinline__ int column(int j) const {
        int p = pixel + j;
        return p < n_pixels ? p / area * all_channels * area + p % area : -1;
    }

    __device__ __forceinline__ void put(int offset, int i, float sum) const {
        int c = channel + i;
        if (c >= group_channels) return;
        c += group * group_channels;
        y[offset + c * area] = activated_briefly(bias ? sum + bias[c] : sum, activation);
    }
};

template <class T>
__device__ __forceinline__ void convolve(const float* x, const float* weight, const float* bias, float* y, int batch,
                                         int in_channels, int out_channels, int out_height, int out_width,
                                         const Window& window, int activation, Word* stamps) {
    begin(stamps);
    int groups = gridDim.z, group = blockIdx.z, n_pixels = batch * out_height * out_width;
    int channels = out_channels / groups, group_inputs = in_channels / groups;
    int depth = group_inputs * window.kernel_y * window.kernel_x;
    int pixel = blockIdx.x * T::columns, channel = blockIdx.y * T::rows;
    Along<T::rows, T::threads> left = {weight + group * channels * depth, channel, channels, depth, depth};
    Patches<T::columns, T::threads> right(x, window, pixel + threadIdx.x % T::columns, n_pixels, out_height, out_width,
                                          in_channels, group_inputs, group);
    ConvStore store = {y, bias, pixel, n_pixels, channel, channels, out_channels, group, out_height * out_width,
                       activation};
    multiply<T>(depth, left, right, store);
    finish(stamps);
}

#define WINDOW_ARGUMENTS                                                                                              \
    int height, int width, int kernel_y, int kernel_x, int stride_y, int stride_x, int padding_y, int padding_x,      \
        int dilation_y, int dilation_x
#define WINDOW                                                                                                        \
    {height, width, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x}

#define CONV(NAME, TILE)                                                                                              \
    extern "C" __global__ void __launch_bounds__(TILE::threads, TILE::resident)                                       \
        NAME(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,           \
             float* __restrict__ y, int batch, int in_channels, int out_channels, int out_height, int out_width,      \
             WINDOW_ARGUMENTS, int activation, Word* stamps) {                                                        \
        Window window = WINDOW;                                                                                       \
        convolve<TILE>(x, weight, bias, y, batch, in_channels, out_channels, out_height, out_width, window,           \
                       activation, stamps);                                                                           \
    }

CONV(conv_128x128, Large)
CONV(conv_64x64, Middle)
CONV(conv_32x32, Small)

// A convolution in which each output channel reads one input channel: a thread for each output.
extern "C" __global__ void depthwise(const float* __restrict__ x, const float* __restrict__ weight,
                                     const float* __restrict__ bias, float* __restrict__ y, int n, int items,
                                     int in_channels, int out_channels, int out_height, int out_width, WINDOW_ARGUMENTS,
                                     int activation, Word* stamps) {
    begin(stamps);
    FOR_EACH_ELEMENT(i, n, items) {
        int rest = i / out_width, left = i % out_width * stride_x - padding_x;
        int top = rest % out_height * stride_y - padding_y;
        rest /= out_height;
        int channel = rest % out_channels, image = rest / out_channels;
        const float* from = x + (image * in_channels + channel / (out_channels / in_channels)) * height * width;
        const float* by = weight + channel * kernel_y * kernel_x;
        float sum = bias ? bias[channel] : 0.0f;
        for (int r = 0; r < kernel_y; r++) {
            int row = top + r * dilation_y;
            if (row < 0 || row >= height) continue;
            for (int s = 0; s < kernel_x; s++) {
                int column = left + s * dilation_x;
                if (column >= 0 && column < width)
                    sum = fmaf(from[row * width + column], by[r * kernel_x + s], sum);
            }
        }
        y[i] = activated(sum, activation);
    }
    finish(stamps);
}

// ---------------------------------------------------------------------------------------------------------------------
// Grid of a product: tiles of columns, tiles of rows, matrices. `step_b` 0 is one matrix for all.

struct MatrixStore {
    float* y;
    const float* bias;
    int row, n_rows, first_column, n_columns, activation;

    __device__ __forceinline__ int column(int right) const {
        int j = first_column + right;
        return j < n_columns ? j : -1;
    }

    __device__ __forceinline__ void put(int j, int down, float sum) const {
        int i = row + down;
        if (i < n_rows) y[i * n_columns + j] = activated_briefly(bias ? sum + bias[j] : sum, activation);
    }
};

template <class T, class Right>
__device__ __forceinline__ void times_matrix(const float* a, const float* b, const float* bias, float* y, int rows,
                                             int depth, int columns, int step_b, int stride_b, int activation,
                                             Word* stamps) {
    begin(stamps);
    int row = blockIdx.y * T::rows, column = blockIdx.x * T::columns, matrix = blockIdx.z;
    Along<T::rows, T::threads> left = {a + matrix * rows * depth, row, rows, depth, depth};
    Right right;
    right.at = b + matrix * step_b;
    right.first = column, right.n = columns, right.stride = stride_b, right.depth = depth;
    MatrixStore store = {y + matrix * rows * columns, bias, row, rows, column, columns, activation};
    multiply<T>(depth, left, right, store);
    finish(stamps);
}

// linear: y = f(a b^T + bias), b being (columns, depth); matmul: y = f(a b), b being (depth, columns).
#define PRODUCT(NAME, TILE, RIGHT, STRIDE)                                                                            \
    extern "C" __global__ void __launch_bounds__(TILE::threads, TILE::resident)                                       \
        NAME(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ bias,                \
             float* __restrict__ y, int rows, int depth, int columns, int step_b, int activation, Word* stamps) {     \
        times_matrix<TILE, RIGHT<TILE::columns, TILE::threads>>(a, b, bias, y, rows, depth, columns, step_b,          \
                                                                STRIDE, activation, stamps);                          \
    }

PRODUCT(linear_128x128, Large, Along, depth)
PRODUCT(linear_64x64, Middle, Along, depth)
PRODUCT(linear_32x32, Small, Along, depth)
PRODUCT(matmul_128x128, Large, Across, columns)
PRODUCT(matmul_64x64, Middle, Across, columns)
PRODUCT(matmul_32x32, Small, Across, columns)
