/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated GPU itself: one, whatever the machine; contexts; names of errors. */
#include "emulator.h"
#include <stdio.h>
#include <string.h>

EMU_EXPORT(cuInit, (unsigned flags));
int cuInit(unsigned flags) { return flags ? EMU_INVALID_VALUE : EMU_SUCCESS; }

EMU_EXPORT(cuDriverGetVersion, (int *version));
int cuDriverGetVersion(int *version) {
  *version = (int)emu_trouble("driver", 13000);
  return EMU_SUCCESS;
}

EMU_EXPORT(cuDeviceGetCount, (int *count));
int cuDeviceGetCount(int *count) {
  *count = (int)emu_trouble("gpus", 1);
  return EMU_SUCCESS;
}

EMU_EXPORT(cuDeviceGet, (int *device, int ordinal));
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

EMU_EXPORT(cuDeviceGetName, (char *name, int len, int device));
int cuDeviceGetName(char *name, int len, int device) {
  (void)device;
  snprintf(name, (size_t)len, "emulated GPU (slow, for checks)");
  return EMU_SUCCESS;
}

EMU_EXPORT(cuDeviceGetUuid, (void *uuid, int device));
int cuDeviceGetUuid(void *uuid, int device) {
  (void)device;
  memcpy(uuid, "emulated GPU 000", 16);
  return EMU_SUCCESS;
}

EMU_EXPORT(cuDeviceGetAttribute, (int *value, int attribute, int device));
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
  case GPU_MULTIPROCESSORS: *value = 2; return EMU_SUCCESS;
  case GPU_CAPABILITY_MAJOR: *value = 8; return EMU_SUCCESS; /* as sm_86 */
  case GPU_CAPABILITY_MINOR: *value = 6; return EMU_SUCCESS;
  default: return EMU_INVALID_VALUE;
  }
}

EMU_EXPORT(cuDeviceTotalMem_v2, (size_t * bytes, int device));
EMU_EXPORT(cuMemGetInfo_v2, (size_t * available, size_t *total));
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  size_t available;
  (void)device;
  return cuMemGetInfo_v2(&available, bytes);
}

static char context;

EMU_EXPORT(cuDevicePrimaryCtxRetain, (void **made, int device));
int cuDevicePrimaryCtxRetain(void **made, int device) {
  *made = &context;
  return device == 0 ? EMU_SUCCESS : EMU_INVALID_VALUE;
}

EMU_EXPORT(cuDevicePrimaryCtxRelease_v2, (int device));
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return EMU_SUCCESS;
}

EMU_EXPORT(cuCtxSetCurrent, (void *chosen));
int cuCtxSetCurrent(void *chosen) { return chosen == &context ? EMU_SUCCESS : EMU_INVALID_VALUE; }

static const struct {
  int result;
  const char *name, *text;
} errors[] = {
    {EMU_SUCCESS, "CUDA_SUCCESS", "no error"},
    {EMU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {EMU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {EMU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "the image of the kernels is damaged"},
    {EMU_WRONG_ARCH, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {EMU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {EMU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel was given an address of no allocation"},
    {EMU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {EMU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "the emulated GPU cannot do this"},
    {EMU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"}};

static int describe(int result, const char **text, bool name) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == result) {
      *text = name ? errors[i].name : errors[i].text;
      return EMU_SUCCESS;
    }
  return EMU_INVALID_VALUE;
}

EMU_EXPORT(cuGetErrorName, (int result, const char **text));
int cuGetErrorName(int result, const char **text) { return describe(result, text, true); }

EMU_EXPORT(cuGetErrorString, (int result, const char **text));
int cuGetErrorString(int result, const char **text) { return describe(result, text, false); }
