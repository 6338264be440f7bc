/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the tests' device kernels (kernels.cpp) into a program, as a generated trainer carries them; and copies between
 * the host and the arena, wherever that is. */
#ifndef ZPLAN_TEST_DEVICE_IMAGE_H
#define ZPLAN_TEST_DEVICE_IMAGE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device.h"

/* The image lives as long as the process. ZPLAN_TEST_KERNELS is the folder of device_kernels_f32.so and _f64.so. */
static inline void device_image(zpr_program *program) {
#ifdef ZPLAN_TEST_KERNELS
  static void *image;
  const char *path = program->dtype == ZPK_F64 ? ZPLAN_TEST_KERNELS "/device_kernels_f64.so"
                                               : ZPLAN_TEST_KERNELS "/device_kernels_f32.so";
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END) != 0) {
    perror(path);
    exit(99);
  }
  size_t bytes = (size_t)ftell(f);
  rewind(f);
  free(image);
  image = malloc(bytes);
  if (!image || fread(image, 1, bytes, f) != bytes) exit(99);
  fclose(f);
  program->device_image = image;
  program->device_image_bytes = (int64_t)bytes;
#else
  (void)program;
#endif
}

static inline void to_arena(zpr *c, void *to, const void *from, int64_t bytes) {
  for (int64_t at = 0, most = zpr_window_bytes(c); at < bytes; at += most) {
    int64_t n = bytes - at < most ? bytes - at : most;
    memcpy(zpr_window_open(c, (char *)to + at, n, false), (const char *)from + at, (size_t)n);
    zpr_window_close(c);
  }
}

static inline void from_arena(zpr *c, void *to, void *from, int64_t bytes) {
  for (int64_t at = 0, most = zpr_window_bytes(c); at < bytes; at += most) {
    int64_t n = bytes - at < most ? bytes - at : most;
    memcpy((char *)to + at, zpr_window_open(c, (char *)from + at, n, true), (size_t)n);
    zpr_window_close(c);
  }
}

#endif
