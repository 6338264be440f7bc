/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that a map gives: orders, dtypes, parts of one parameter, and what is wrong with maps and files. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "given.h"
#include "state.h"

enum { ELEMENTS = 64 };

static zpr c;
static char folder[ZPR_PATH];

static const char *in_folder(const char *name) {
  static char path[4][ZPR_PATH];
  static int next;
  return zpr_path(path[next++ % 4], "%s/%s", folder, name);
}

/* "data": 64 elements of every dtype, one block of 512 bytes each; element e is e + 0.5, exact in all of them. */
static void write_data(int64_t bytes) {
  static char block[4][8 * ELEMENTS];
  for (int e = 0; e < ELEMENTS; e++) {
    float x = (float)e + 0.5f;
    ((float *)(void *)block[ZPK_F32])[e] = x;
    ((double *)(void *)block[ZPK_F64])[e] = x;
    zpk_round(ZPK_BF16, &x, (uint16_t *)(void *)block[ZPK_BF16] + e, 1);
    zpk_round(ZPK_F16, &x, (uint16_t *)(void *)block[ZPK_F16] + e, 1);
  }
  FILE *f = fopen(in_folder("data"), "wb");
  fwrite(block, (size_t)bytes, 1, f);
  cr_assert_eq(fclose(f), 0);
}

static void write_map(const char *files, const char *parts) {
  FILE *f = fopen(in_folder("map"), "w");
  fprintf(f, "{\"format\": \"zplan-weights\", \"version\": 1, \"source\": \"there\", \"files\": [%s], \"parts\": [%s]}",
          files, parts);
  cr_assert_eq(fclose(f), 0);
}

static const char *data_file(int64_t bytes) {
  static char text[ZPR_PATH + 64];
  snprintf(text, sizeof text, "{\"path\": \"%s\", \"bytes\": %lld}", in_folder("data"), (long long)bytes);
  return text;
}

static void setup(void) {
  zpr_path(folder, "%s/zplan_given_XXXXXX", P_tmpdir);
  cr_assert(mkdtemp(folder));
  c = (zpr){.ranks = 1};
  c.state = zpr_alloc(&c, 1, sizeof *c.state);
  zpr_pool_start(&c, 2, false);
  write_data(4 * 8 * ELEMENTS);
}

static void teardown(void) {
  zpr_pool_stop(&c);
  free(c.state);
  unlink(in_folder("data"));
  unlink(in_folder("map"));
  rmdir(folder);
}

TestSuite(given, .init = setup, .fini = teardown);

static zpr_given *open_map(const char *parts) {
  zpr_error error = {0};
  write_map(data_file(4 * 8 * ELEMENTS), parts);
  zpr_given *g = zpr_given_open(in_folder("map"), &error);
  cr_assert(g, "%s", error.text);
  return g;
}

static const char *part(const char *name, int begin, zpk_dtype dtype, int skipped, const char *shape) {
  static char text[4][256];
  static int next;
  snprintf(text[next % 4], sizeof *text,
           "{\"name\": \"%s\", \"begin\": %d, \"file\": 0, \"offset\": %d, \"dtype\": \"%s\", %s}", name, begin,
           (int)(dtype * 8 * ELEMENTS + skipped * zpk_bytes(dtype)), zpr_dtype_name(dtype), shape);
  return text[next++ % 4];
}

Test(given, every_dtype_becomes_every_other) {
  for (int from = ZPK_F32; from <= ZPK_F16; from++) {
    zpr_given *g = open_map(part("w", 0, (zpk_dtype)from, 4, "\"extents\": [60], \"strides\": [1]"));
    for (int to = ZPK_F32; to <= ZPK_F16; to++) {
      double raw[ELEMENTS];
      zpr_error error = {0};
      cr_assert(zpr_given_read(&c, g, "w", 3, 50, (zpk_dtype)to, raw, &error), "%s", error.text);
      for (int e = 0; e < 50; e++) {
        float x = 0;
        if (to == ZPK_F64)
          x = (float)raw[e];
        else if (to == ZPK_F32)
          x = ((float *)(void *)raw)[e];
        else
          zpk_widen((zpk_dtype)to, (uint16_t *)(void *)raw + e, &x, 1);
        cr_expect_eq(x, (float)(4 + 3 + e) + 0.5f, "%d to %d, element %d", from, to, e);
      }
    }
    zpr_given_close(g);
  }
}

/* Any range of a [3, 2, 4] tensor whose file is ordered [4][3][2]. */
Test(given, any_range_of_a_permuted_tensor) {
  zpr_given *g = open_map(part("w", 0, ZPK_F32, 0, "\"extents\": [3, 2, 4], \"strides\": [2, 1, 6]"));
  for (int at = 0; at < 24; at++)
    for (int count = 0; at + count <= 24; count++) {
      float values[24];
      zpr_error error = {0};
      cr_assert(zpr_given_read(&c, g, "w", at, count, ZPK_F32, values, &error), "%s", error.text);
      for (int e = 0; e < count; e++) {
        int i = (at + e) / 8, j = (at + e) / 4 % 2, k = (at + e) % 4;
        cr_expect_eq(values[e], (float)(2 * i + j + 6 * k) + 0.5f);
      }
    }
  zpr_given_close(g);
}

Test(given, one_parameter_of_several_parts) {
  char parts[800];
  snprintf(parts, sizeof parts, "%s, %s, %s", part("w", 6, ZPK_BF16, 10, "\"extents\": [2, 3], \"strides\": [1, 2]"),
           part("w", 0, ZPK_F32, 0, "\"extents\": [6], \"strides\": [1]"),
           part("v", 0, ZPK_F32, 0, "\"extents\": [1], \"strides\": [1]"));
  static const double want[12] = {0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 10.5, 12.5, 14.5, 11.5, 13.5, 15.5};
  zpr_given *g = open_map(parts);
  double values[12];
  zpr_error error = {0};
  cr_assert(zpr_given_read(&c, g, "w", 0, 12, ZPK_F64, values, &error), "%s", error.text);
  for (int e = 0; e < 12; e++) cr_expect_eq(values[e], want[e], "element %d", e);
  cr_expect(!zpr_given_read(&c, g, "w", 10, 3, ZPK_F64, values, &error)); /* ends with element 11 */
  cr_expect_str_eq(error.code, "Z0813");
  cr_expect(strstr(error.text, "no element 12 of \"w\""), "%s", error.text);
  cr_expect(!zpr_given_find(g, "u", 0));
  zpr_given_close(g);
}

static void refused(const char *files, const char *parts, const char *code) {
  zpr_error error = {0};
  write_map(files, parts);
  cr_expect(!zpr_given_open(in_folder("map"), &error), "accepted: %s", parts);
  cr_expect_str_eq(error.code, code, "%s", error.text);
}

Test(given, maps_that_lead_outside) {
  static const char *const shapes[] = {"\"extents\": [], \"strides\": []",
                                       "\"extents\": [0], \"strides\": [1]",
                                       "\"extents\": [4], \"strides\": [1, 1]",
                                       "\"extents\": [257], \"strides\": [1]",
                                       "\"extents\": [2], \"strides\": [256]",
                                       "\"extents\": [-1], \"strides\": [1]",
                                       "\"extents\": [9223372036854775807, 2], \"strides\": [0, 0]",
                                       "\"extents\": [2], \"strides\": [9223372036854775807]",
                                       "\"extents\": [1,1,1,1,1,1,1], \"strides\": [1,1,1,1,1,1,1]"};
  int64_t bytes = 4 * 8 * ELEMENTS;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    refused(data_file(bytes), part("w", 0, ZPK_F16, 0, shapes[i]), "Z0812");
  refused(data_file(bytes), "", "Z0812");
  refused("", part("w", 0, ZPK_F32, 0, "\"extents\": [1], \"strides\": [1]"), "Z0812");
  refused(data_file(bytes), part("", 0, ZPK_F32, 0, "\"extents\": [1], \"strides\": [1]"), "Z0812");
  refused(data_file(bytes), part("w", -1, ZPK_F32, 0, "\"extents\": [1], \"strides\": [1]"), "Z0812");
}

Test(given, files_that_have_changed) {
  const char *shape = part("w", 0, ZPK_F32, 0, "\"extents\": [64], \"strides\": [1]");
  refused(data_file(4 * 8 * ELEMENTS + 8), shape, "Z0819");
  refused("{\"path\": \"/nowhere/w\", \"bytes\": 2048}", shape, "Z0819");
  zpr_error error = {0};
  cr_expect(!zpr_given_open(in_folder("none"), &error));
  cr_expect_str_eq(error.code, "Z0819");
  zpr_given *g = open_map(shape);
  cr_assert_eq(truncate(in_folder("data"), 100), 0);
  float values[ELEMENTS];
  error = (zpr_error){0};
  cr_expect(!zpr_given_read(&c, g, "w", 0, ELEMENTS, ZPK_F32, values, &error));
  cr_expect_str_eq(error.code, "Z0819");
  cr_expect(strstr(error.text, "shorter than expected"), "%s", error.text);
  zpr_given_close(g);
}
