// Behind the kernels: calls one by name with arguments given by their addresses.

namespace emulation {
enum Outcome { fine, misfit, barrier, outside_memory };

static sigjmp_buf before;
static void on_fault(int) { siglongjmp(before, 1); }

// While it lives, an access to memory that is not there comes back to `before`.
struct Faults {
    std::vector<char> own = std::vector<char>(1 << 16);
    stack_t old_stack;
    struct sigaction old_action[2];

    Faults() {
        stack_t mine = {};
        mine.ss_sp = own.data(), mine.ss_size = own.size();
        sigaltstack(&mine, &old_stack);
        struct sigaction action = {};
        action.sa_handler = on_fault, action.sa_flags = SA_ONSTACK;
        sigaction(SIGSEGV, &action, &old_action[0]);
        sigaction(SIGBUS, &action, &old_action[1]);
    }
    ~Faults() {
        sigaction(SIGSEGV, &old_action[0], nullptr);
        sigaction(SIGBUS, &old_action[1], nullptr);
        sigaltstack(&old_stack, nullptr);
    }
};

template <class... Arguments, size_t... I>
void apply(void (*kernel)(Arguments...), void** values, std::index_sequence<I...>) {
    kernel(*static_cast<Arguments*>(values[I])...);
}

template <auto kernel>
struct Entry;

template <class... Arguments, void (*kernel)(Arguments...)>
struct Entry<kernel> {
    static void call(void** values) { apply(kernel, values, std::index_sequence_for<Arguments...>()); }
    static constexpr unsigned sizes[] = {sizeof(Arguments)...};
};

inline void resume(unsigned thread) {
    current = thread;
    threadIdx = {thread, 0, 0};
    fibers[thread].state = running;
    swapcontext(&outside, &fibers[thread].context);
}

// Runs the threads from `first` up to `last` until all wait for the block or have ended.
inline Outcome run_warp(unsigned first, unsigned last, bool backwards) {
    while (true) {
        for (unsigned i = first; i < last; i++) {
            unsigned thread = backwards ? first + last - 1 - i : i;
            if (fibers[thread].state != ended) resume(thread);
        }
        for (unsigned i = first; i < last; i++)
            if (fibers[i].state != fibers[first].state) return barrier;
        if (fibers[first].state != at_warp) return fine;
        if (last - first != warp) return barrier;
    }
}

inline Outcome run_block(unsigned threads, bool backwards) {
    for (unsigned t = 0; t < threads; t++) {
        getcontext(&fibers[t].context);
        fibers[t].context.uc_stack.ss_sp = &stacks[t * stack];
        fibers[t].context.uc_stack.ss_size = stack;
        fibers[t].context.uc_link = nullptr;
        makecontext(&fibers[t].context, run, 0);
        fibers[t].state = running;
    }
    unsigned warps = (threads + warp - 1) / warp;
    do {
        for (unsigned i = 0; i < warps; i++) {
            unsigned first = (backwards ? warps - 1 - i : i) * warp;
            Outcome found = run_warp(first, first + warp < threads ? first + warp : threads, backwards);
            if (found != fine) return found;
        }
        for (unsigned t = 0; t < threads; t++)
            if (fibers[t].state != fibers[0].state) return barrier;
    } while (fibers[0].state != ended);
    return fine;
}

template <auto kernel>
int launch(const unsigned* grid, const unsigned* block, unsigned n, const unsigned* sizes, void** values,
           int backwards) {
    if (n != sizeof(Entry<kernel>::sizes) / sizeof(unsigned)) return misfit;
    if (memcmp(sizes, Entry<kernel>::sizes, sizeof(Entry<kernel>::sizes))) return misfit;
    unsigned threads = block[0];
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {threads, 1, 1};
    fibers.resize(threads), stacks.resize(threads * stack), exchanged.resize(threads + warp);
    call = Entry<kernel>::call, given = values;
    Faults faults;
    if (sigsetjmp(before, 1)) return outside_memory;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                Outcome found = run_block(threads, backwards);
                if (found != fine) return found;
            }
    return fine;
}
}  // namespace emulation

#define ENTRY(NAME)                                                                                              \
    extern "C" int launch_##NAME(const unsigned* grid, const unsigned* block, unsigned n, const unsigned* sizes, \
                                 void** values, int backwards) {                                                 \
        return emulation::launch<NAME>(grid, block, n, sizes, values, backwards);                                \
    }
