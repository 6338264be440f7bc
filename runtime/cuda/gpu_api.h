/* SPDX-License-Identifier: Apache-2.0 */
/* Private: the functions of the CUDA driver and of cuBLASLt that GPU trainers and `zplan calibrate` call. Both
 * libraries are opened when they are there, so that no CUDA package is needed to build or link anything. Types and
 * constants are those of the public API (CUDA Driver API, cuBLASLt API); values that the API fixes are spelled out
 * here. */
#ifndef ZPLAN_RT_CUDA_GPU_API_H
#define ZPLAN_RT_CUDA_GPU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long gpu_pointer; /* CUdeviceptr */

enum { GPU_MULTIPROCESSORS = 16, GPU_CAPABILITY_MAJOR = 75, GPU_CAPABILITY_MINOR = 76 }; /* CUdevice_attribute */
enum { GPU_MAX_DYNAMIC_SHARED = 8 };                                                     /* CUfunction_attribute */
enum { GPU_F32 = 0, GPU_F64 = 1, GPU_F16 = 2, GPU_BF16 = 14 };                           /* cudaDataType */
enum { GPU_COMPUTE_F32 = 68, GPU_COMPUTE_F64 = 70 };                                     /* cublasComputeType_t */
enum { GPU_LAYOUT_BATCH_COUNT = 5, GPU_LAYOUT_BATCH_STEP = 6 }; /* cublasLtMatrixLayoutAttribute_t */
enum {                                                          /* cublasLtMatmulDescAttributes_t */
       GPU_PRODUCT_TRANS_A = 3,
       GPU_PRODUCT_TRANS_B = 4,
       GPU_PRODUCT_EPILOGUE = 7,
       GPU_PRODUCT_BIAS = 8,
       GPU_PRODUCT_AUX = 11,
       GPU_PRODUCT_AUX_LD = 12
};
enum { /* cublasLtEpilogue_t */
       GPU_EPILOGUE_NONE = 1,
       GPU_EPILOGUE_BIAS = 4,
       GPU_EPILOGUE_GELU_AUX_BIAS = 164,
       GPU_EPILOGUE_DGELU_BGRAD = 208,
       GPU_EPILOGUE_BGRADA = 256,
       GPU_EPILOGUE_BGRADB = 512
};
enum { /* cublasLtMatmulPreferenceAttributes_t */
       GPU_PREFER_WORKSPACE_BYTES = 1,
       GPU_PREFER_REDUCTIONS = 3,
       GPU_PREFER_ALIGNMENT_A = 5,
       GPU_PREFER_ALIGNMENT_B = 6,
       GPU_PREFER_ALIGNMENT_C = 7,
       GPU_PREFER_ALIGNMENT_D = 8
};
enum { GPU_REDUCE_COMPUTE_TYPE = 2 }; /* cublasLtReductionScheme_t */
enum { GPU_ALGORITHM_SETTINGS = 9 };  /* cublasLtMatmulAlgoConfigAttributes_t: 0 to 8 */

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

/* An algorithm of cuBLASLt, and what its heuristic says of one. */
typedef struct gpu_algorithm {
  uint64_t data[8];
} gpu_algorithm;
typedef struct gpu_heuristic {
  gpu_algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
} gpu_heuristic;

#define GPU_BLAS_FUNCTIONS(X)                                                                                          \
  X(blas_property, "cublasLtGetProperty", (int which, int *value))                                                     \
  X(blas_create, "cublasLtCreate", (void **handle))                                                                    \
  X(blas_destroy, "cublasLtDestroy", (void *handle))                                                                   \
  X(new_product, "cublasLtMatmulDescCreate", (void **product, int compute, int scale))                                 \
  X(release_product, "cublasLtMatmulDescDestroy", (void *product))                                                     \
  X(set_product, "cublasLtMatmulDescSetAttribute", (void *product, int attribute, const void *value, size_t bytes))    \
  X(new_layout, "cublasLtMatrixLayoutCreate", (void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld))     \
  X(release_layout, "cublasLtMatrixLayoutDestroy", (void *layout))                                                     \
  X(set_layout, "cublasLtMatrixLayoutSetAttribute", (void *layout, int attribute, const void *value, size_t bytes))    \
  X(new_preference, "cublasLtMatmulPreferenceCreate", (void **preference))                                             \
  X(release_preference, "cublasLtMatmulPreferenceDestroy", (void *preference))                                         \
  X(set_preference, "cublasLtMatmulPreferenceSetAttribute",                                                            \
    (void *preference, int attribute, const void *value, size_t bytes))                                                \
  X(choose_algorithm, "cublasLtMatmulAlgoGetHeuristic",                                                                \
    (void *handle, void *product, void *a, void *b, void *c, void *d, void *preference, int most,                      \
     gpu_heuristic *results, int *n))                                                                                  \
  X(ask_algorithm, "cublasLtMatmulAlgoConfigGetAttribute",                                                             \
    (const gpu_algorithm *algorithm, int attribute, void *value, size_t bytes, size_t *written))                       \
  X(multiply, "cublasLtMatmul",                                                                                        \
    (void *handle, void *product, const void *alpha, gpu_pointer a, void *a_layout, gpu_pointer b, void *b_layout,     \
     const void *beta, gpu_pointer c, void *c_layout, gpu_pointer d, void *d_layout, const gpu_algorithm *algorithm,   \
     gpu_pointer workspace, size_t workspace_bytes, void *stream))

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
/* Opens the newest cuBLASLt that has kernels for GPU `device` and goes with its driver; an emulated one is open
 * already. false with the reason: all is there but products. */
bool gpu_api_open_blas(gpu_api *api, int device, const char **why_not);

#endif
