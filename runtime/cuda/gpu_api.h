/* Private: the functions of the CUDA driver and of cuBLAS that GPU trainers and `zplan calibrate` call. Both libraries
 * are opened when they are there, so that no CUDA package is needed to build or link anything. Types and constants are
 * those of the public API (CUDA Driver API, cuBLAS API); values that the API fixes are spelled out here. */
#ifndef ZPLAN_RT_CUDA_GPU_API_H
#define ZPLAN_RT_CUDA_GPU_API_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned long long gpu_pointer; /* CUdeviceptr */

enum { GPU_MULTIPROCESSORS = 16, GPU_CAPABILITY_MAJOR = 75, GPU_CAPABILITY_MINOR = 76 }; /* CUdevice_attribute */
enum { GPU_MAX_DYNAMIC_SHARED = 8 };                                                     /* CUfunction_attribute */
enum { GPU_F32 = 0, GPU_F16 = 2, GPU_BF16 = 14 };                                        /* cudaDataType */
enum { GPU_COMPUTE_F32 = 68, GPU_ANY_ALGORITHM = -1 }; /* cublasComputeType_t, cublasGemmAlgo_t */

/* name of the member, symbol, arguments; all return 0 for success */
#define GPU_DRIVER_FUNCTIONS(X)                                                                                        \
  X(init, "cuInit", (unsigned flags))                                                                                  \
  X(driver_version, "cuDriverGetVersion", (int *version))                                                              \
  X(device_count, "cuDeviceGetCount", (int *count))                                                                    \
  X(device, "cuDeviceGet", (int *device, int ordinal))                                                                 \
  X(error_name, "cuGetErrorName", (int result, const char **text))                                                     \
  X(error_text, "cuGetErrorString", (int result, const char **text))                                                   \
  X(device_id, "cuDeviceGetUuid", (void *uuid, int device))                                                            \
  X(device_name, "cuDeviceGetName", (char *name, int len, int device))                                                 \
  X(attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                                        \
  X(total_memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                                                 \
  X(retain_context, "cuDevicePrimaryCtxRetain", (void **context, int device))                                          \
  X(release_context, "cuDevicePrimaryCtxRelease_v2", (int device))                                                     \
  X(set_context, "cuCtxSetCurrent", (void *context))                                                                   \
  X(synchronize, "cuCtxSynchronize", (void))                                                                           \
  X(memory_info, "cuMemGetInfo_v2", (size_t * available, size_t * total))                                              \
  X(allocate, "cuMemAlloc_v2", (gpu_pointer * memory, size_t bytes))                                                   \
  X(release, "cuMemFree_v2", (gpu_pointer memory))                                                                     \
  X(allocate_host, "cuMemAllocHost_v2", (void **memory, size_t bytes))                                                 \
  X(release_host, "cuMemFreeHost", (void *memory))                                                                     \
  X(to_device, "cuMemcpyHtoDAsync_v2", (gpu_pointer to, const void *from, size_t bytes, void *stream))                 \
  X(to_host, "cuMemcpyDtoHAsync_v2", (void *to, gpu_pointer from, size_t bytes, void *stream))                         \
  X(copy, "cuMemcpyDtoDAsync_v2", (gpu_pointer to, gpu_pointer from, size_t bytes, void *stream))                      \
  X(fill_bytes, "cuMemsetD8Async", (gpu_pointer to, unsigned char value, size_t bytes, void *stream))                  \
  X(fill_rows, "cuMemsetD2D8Async",                                                                                    \
    (gpu_pointer to, size_t pitch, unsigned char value, size_t width, size_t height, void *stream))                    \
  X(new_stream, "cuStreamCreate", (void **stream, unsigned flags))                                                     \
  X(release_stream, "cuStreamDestroy_v2", (void *stream))                                                              \
  X(await_stream, "cuStreamSynchronize", (void *stream))                                                               \
  X(query_stream, "cuStreamQuery", (void *stream))                                                                     \
  X(query_event, "cuEventQuery", (void *event))                                                                        \
  X(stream_waits, "cuStreamWaitEvent", (void *stream, void *event, unsigned flags))                                    \
  X(unload_module, "cuModuleUnload", (void *module))                                                                   \
  X(load_module, "cuModuleLoadData", (void **module, const void *image))                                               \
  X(find_kernel, "cuModuleGetFunction", (void **kernel, void *module, const char *name))                               \
  X(set_attribute, "cuFuncSetAttribute", (void *kernel, int attribute, int value))                                     \
  X(launch, "cuLaunchKernel",                                                                                          \
    (void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,              \
     unsigned block_z, unsigned shared_bytes, void *stream, void **arguments, void **extra))                           \
  X(new_event, "cuEventCreate", (void **event, unsigned flags))                                                        \
  X(release_event, "cuEventDestroy_v2", (void *event))                                                                 \
  X(record, "cuEventRecord", (void *event, void *stream))                                                              \
  X(await_event, "cuEventSynchronize", (void *event))                                                                  \
  X(elapsed, "cuEventElapsedTime", (float *milliseconds, void *begin, void *end))

#define GPU_BLAS_FUNCTIONS(X)                                                                                          \
  X(blas_create, "cublasCreate_v2", (void **handle))                                                                   \
  X(blas_destroy, "cublasDestroy_v2", (void *handle))                                                                  \
  X(blas_stream, "cublasSetStream_v2", (void *handle, void *stream))                                                   \
  X(gemm_f32, "cublasSgemm_v2",                                                                                        \
    (void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha, gpu_pointer a, int lda,          \
     gpu_pointer b, int ldb, const float *beta, gpu_pointer y, int ldy))                                               \
  X(gemm_f64, "cublasDgemm_v2",                                                                                        \
    (void *handle, int trans_a, int trans_b, int m, int n, int k, const double *alpha, gpu_pointer a, int lda,         \
     gpu_pointer b, int ldb, const double *beta, gpu_pointer y, int ldy))                                              \
  X(gemm, "cublasGemmEx",                                                                                              \
    (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a, int type_a,        \
     int lda, gpu_pointer b, int type_b, int ldb, const void *beta, gpu_pointer y, int type_y, int ldy, int compute,   \
     int algorithm))                                                                                                   \
  X(gemms_f32, "cublasSgemmStridedBatched",                                                                            \
    (void *handle, int trans_a, int trans_b, int m, int n, int k, const float *alpha, gpu_pointer a, int lda,          \
     long long a_step, gpu_pointer b, int ldb, long long b_step, const float *beta, gpu_pointer y, int ldy,            \
     long long y_step, int count))                                                                                     \
  X(gemms_f64, "cublasDgemmStridedBatched",                                                                            \
    (void *handle, int trans_a, int trans_b, int m, int n, int k, const double *alpha, gpu_pointer a, int lda,         \
     long long a_step, gpu_pointer b, int ldb, long long b_step, const double *beta, gpu_pointer y, int ldy,           \
     long long y_step, int count))                                                                                     \
  X(gemms, "cublasGemmStridedBatchedEx",                                                                               \
    (void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, gpu_pointer a, int type_a,        \
     int lda, long long a_step, gpu_pointer b, int type_b, int ldb, long long b_step, const void *beta, gpu_pointer y, \
     int type_y, int ldy, long long y_step, int count, int compute, int algorithm))

typedef struct gpu_api {
#define GPU_MEMBER(name, symbol, arguments) int(*name) arguments;
  GPU_DRIVER_FUNCTIONS(GPU_MEMBER)
  GPU_BLAS_FUNCTIONS(GPU_MEMBER)
#undef GPU_MEMBER
  bool has_blas;
} gpu_api;

/* Opens the driver. `emulated`: the library that plays both (cuda/emulator), NULL: the system's. false, with the reason
 * in text that lives as long as the program, when there is none, or one that is too old. */
bool gpu_api_open(gpu_api *api, const char *emulated, const char **why_not);
/* Opens the newest cuBLAS that has kernels for GPU `device` and goes with its driver; an emulated one is open already.
 * false with the reason: all is there but products. */
bool gpu_api_open_blas(gpu_api *api, int device, const char **why_not);

#endif
