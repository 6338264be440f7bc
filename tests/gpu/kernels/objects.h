/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel texts as the tests load and launch them (tests/unit/cuda_objects.h), on the GPU. */
#ifndef ZPLAN_GPU_KERNELS_OBJECTS_H
#define ZPLAN_GPU_KERNELS_OBJECTS_H

#include <stdbool.h>
#include "gpu_api.h"

extern gpu_api gpu_driver;
/* Ends the test when the result of a driver's function is an error: "cannot <what>: CUDA_ERROR_...". */
void gpu_must(int result, const char *what);

#endif
