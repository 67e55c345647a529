// NVIDIA's occupancy calculator: a kernel on a device a line on stdin, blocks per SM on stdout; see occupancy.py.
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    cudaOccDeviceProp device = {};
    cudaOccFuncAttributes kernel = {};
    cudaOccDeviceState state = {};
    device.maxThreadsPerBlock = kernel.maxThreadsPerBlock = 1024;
    device.regsPerBlock = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 49152;
    device.numSms = 1;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.numBlockBarriers = 1;
    state.cacheConfig = CACHE_PREFER_NONE;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    int threads, registers, shared;
    while (scanf("%d %d %d %d", &device.computeMajor, &device.computeMinor,
                 &device.maxThreadsPerMultiprocessor, &device.regsPerMultiprocessor) == 4
           && scanf("%zu %zu %zu", &device.sharedMemPerMultiprocessor,
                    &device.sharedMemPerBlockOptin, &device.reservedSharedMemPerBlock) == 3
           && scanf("%d %d %d", &threads, &registers, &shared) == 3) {
        kernel.numRegs = registers;
        kernel.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin;
        cudaOccResult result;
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared);
        printf("%d\n", error ? -1 : result.activeBlocksPerMultiprocessor);
    }
}
