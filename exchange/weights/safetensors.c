/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files: what their headers say, as trainers read them (zplan/safetensors.h), what tensors hold, and
 * headers to write. */
#include "element.h"
#include "weights_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zplan/safetensors.h>

_Static_assert((int)ZP_TENSOR_RANK == (int)ZPR_MAX_DIMS, "what is read fits");

int zp_weight_dtype_bytes(const char *dtype) {
  static const struct {
    const char *word;
    int bytes;
  } rows[] = {{"F32", 4}, {"F64", 8}, {"BF16", 2}, {"F16", 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].word, dtype) == 0) return rows[i].bytes;
  return 0;
}

static void add_tensor(zp_arena *arena, zp_weight_folder *folder, const zpr_tensor *read, int64_t data_start) {
  zp_weight_tensor t = {.name = zp_strdup(arena, read->name),
                        .dtype = zp_strdup(arena, read->dtype),
                        .rank = read->rank,
                        .elements = (read->end - read->begin) / zpr_element_bytes(read->dtype),
                        .file = folder->files.len - 1,
                        .offset = data_start + read->begin};
  memcpy(t.shape, read->shape, sizeof *t.shape * (size_t)t.rank);
  zp_push(arena, &folder->tensors, t);
}

bool zp_safetensors_read(zp_arena *arena, zp_diags *diags, zp_weight_folder *folder, const char *path) {
  zpr_tensors list = {0};
  char why[ZPR_HEADER_WHY];
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not block here */
  const char *wrong = fd < 0 ? strerror(errno) : zpr_header_read(&list, fd, why) != ZPR_HEADER_READ ? why : NULL;
  if (fd >= 0) close(fd);
  if (wrong)
    zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "cannot read the weights in %s: %s", path, wrong);
  else
    zp_push(arena, &folder->files, ((zp_weight_file){zp_strdup(arena, path), list.file_bytes}));
  for (int64_t i = 0; !wrong && i < list.n; i++) add_tensor(arena, folder, &list.tensor[i], list.data_start);
  zpr_tensors_free(&list);
  return !wrong;
}

/* {"__metadata__":{"format":"pt"},"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}, with its length
 * before it and blanks after it, as the reference writes them. */
zp_buf zp_safetensors_header(zp_arena *arena, const char *dtype, const zp_out_tensor *tensors, int n) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "        {\"__metadata__\":{\"format\":\"pt\"}");
  for (int i = 0; i < n; i++) {
    const zp_out_tensor *t = &tensors[i];
    zp_buf_printf(&out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, dtype);
    for (int k = 0; k < t->rank; k++) zp_buf_printf(&out, "%s%lld", k ? "," : "", (long long)t->shape[k]);
    zp_buf_printf(&out, "],\"data_offsets\":[%lld,%lld]}", (long long)t->begin, (long long)(t->begin + t->bytes));
  }
  zp_buf_puts(&out, "}");
  while (out.len % 8 != 0) zp_buf_puts(&out, " ");
  for (int i = 0; i < 8; i++) out.data[i] = (char)((uint64_t)(out.len - 8) >> (8 * i));
  return out;
}

bool zp_weights_read(zp_diags *diags, const zp_weight_folder *folder, const zp_weight_tensor *t, int64_t first,
                     int64_t count, void *data) {
  const char *path = folder->files.data[t->file].path;
  int64_t size = zp_weight_dtype_bytes(t->dtype), at = 0, bytes = count * size;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  for (ssize_t got = 1; fd >= 0 && at < bytes && got > 0; at += got > 0 ? got : 0) {
    do got = pread(fd, (char *)data + at, (size_t)(bytes - at), t->offset + first * size + at);
    while (got < 0 && errno == EINTR);
  }
  if (at < bytes)
    zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "cannot read the weights in %s: %s", path,
              fd < 0 || errno ? strerror(errno) : "it is shorter than its header says");
  if (fd >= 0) close(fd);
  return at == bytes;
}

double *zp_weights_read_all(zp_diags *diags, const zp_weight_folder *folder, const zp_weight_tensor *t) {
  double *values = malloc((size_t)t->elements * sizeof *values);
  void *raw = malloc((size_t)(t->elements * zp_weight_dtype_bytes(t->dtype)));
  bool good = values && raw;
  if (!good) zp_report(diags, ZP_Z0695, ZP_NO_SPAN, "no memory for tensor %s", t->name);
  good = good && zp_weights_read(diags, folder, t, 0, t->elements, raw);
  for (int64_t i = 0; good && i < t->elements; i++) values[i] = zp_element_read(t->dtype, raw, i);
  free(raw);
  if (good) return values;
  free(values);
  return NULL;
}

static void *read_raw(const zp_weight_folder *folder, const zp_weight_tensor *t) {
  zp_arena *scratch = zp_arena_new("compare");
  void *raw = malloc((size_t)(t->elements * zp_weight_dtype_bytes(t->dtype)) + 1);
  bool good = raw && zp_weights_read(zp_diags_new(scratch), folder, t, 0, t->elements, raw);
  zp_arena_free(scratch);
  if (good) return raw;
  free(raw);
  return NULL;
}

bool zp_weights_are_equal(const zp_weight_folder *folder, const zp_weight_tensor *t, const zp_weight_folder *of,
                          const char *name) {
  const zp_weight_tensor *other = zp_weights_find(of, name);
  if (!other || strcmp(t->dtype, other->dtype) != 0 || t->rank != other->rank ||
      memcmp(t->shape, other->shape, sizeof *t->shape * (size_t)t->rank) != 0)
    return false;
  void *a = read_raw(folder, t), *b = a ? read_raw(of, other) : NULL;
  bool equal = b && memcmp(a, b, (size_t)(t->elements * zp_weight_dtype_bytes(t->dtype))) == 0;
  free(a);
  free(b);
  return equal;
}
