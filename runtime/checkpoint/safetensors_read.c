/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files that somebody else may have written: sizes, offsets and names are checked before they
 * are used. Part of libzplanrt and of the compiler's exchange/weights: libc, json_scan.c, and no more. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zplan/safetensors.h>
#include <zplan/shown.h>
#include "json_scan.h"

enum { LONGEST_HEADER = 100000000 }; /* the limit of the reference reader */

__attribute__((format(printf, 2, 3))) static zpr_header_end corrupt(char why[ZPR_HEADER_WHY], const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, ZPR_HEADER_WHY, format, args);
  va_end(args);
  return ZPR_HEADER_CORRUPT;
}

static zpr_header_end no_memory(char why[ZPR_HEADER_WHY]) {
  snprintf(why, ZPR_HEADER_WHY, "no memory for its header");
  return ZPR_HEADER_NO_MEMORY;
}

int64_t zpr_element_bytes(const char *dtype) {
  static const struct {
    const char *word;
    int bytes;
  } rows[] = {{"F32", 4},     {"F64", 8}, {"BF16", 2}, {"F16", 2}, {"BOOL", 1}, {"U8", 1},  {"I8", 1}, {"F8_E4M3", 1},
              {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2},  {"I32", 4}, {"U32", 4},  {"I64", 8}, {"U64", 8}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].word, dtype) == 0) return rows[i].bytes;
  return 0;
}

static bool read_shape(zpr_json *j, zpr_tensor *tensor) {
  zpr_json_array(j);
  while (zpr_json_item(j)) {
    if (tensor->rank == ZPR_MAX_DIMS) return false;
    if (!zpr_json_int(j, &tensor->shape[tensor->rank++])) return false;
  }
  return !j->failed;
}

static bool read_offsets(zpr_json *j, zpr_tensor *tensor) {
  zpr_json_array(j);
  if (!zpr_json_item(j) || !zpr_json_int(j, &tensor->begin)) return false;
  if (!zpr_json_item(j) || !zpr_json_int(j, &tensor->end)) return false;
  return !zpr_json_item(j) && !j->failed;
}

static bool read_tensor(zpr_json *j, zpr_tensor *tensor) {
  char key[32];
  enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
  int seen = 0;
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    int field = strcmp(key, "dtype") == 0          ? DTYPE
                : strcmp(key, "shape") == 0        ? SHAPE
                : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                   : 0;
    if (field == 0 || (seen & field)) return false;
    seen |= field;
    if (field == DTYPE && !zpr_json_string(j, tensor->dtype, sizeof tensor->dtype)) return false;
    if (field == SHAPE && !read_shape(j, tensor)) return false;
    if (field == OFFSETS && !read_offsets(j, tensor)) return false;
  }
  return !j->failed && seen == ALL;
}

static bool append(zpr_tensors *list, const char *name, const zpr_tensor *tensor) {
  if (list->n == list->room) {
    int64_t room = list->room ? 2 * list->room : 64;
    zpr_tensor *more = realloc(list->tensor, (size_t)room * sizeof *more);
    if (!more) return false;
    list->tensor = more;
    list->room = room;
  }
  char *copy = strdup(name);
  if (!copy) return false;
  list->tensor[list->n] = *tensor;
  list->tensor[list->n++].name = copy;
  return true;
}

static bool is_utf8(const char *text) {
  size_t left = strlen(text), len;
  for (; left > 0; text += len, left -= len)
    if ((len = zp_character_length((const unsigned char *)text, left)) == 0) return false;
  return true;
}

static zpr_header_end parse(zpr_tensors *list, const char *text, size_t bytes, char why[ZPR_HEADER_WHY]) {
  zpr_json j = zpr_json_open(text, bytes);
  char name[ZPR_TENSOR_NAME];
  bool good = bytes > 0 && text[0] == '{';
  zpr_json_object(&j);
  while (good && zpr_json_key(&j, name, sizeof name)) {
    zpr_tensor tensor = {0};
    if (strcmp(name, "__metadata__") == 0)
      zpr_json_skip(&j);
    else if (!(good = is_utf8(name) && read_tensor(&j, &tensor)))
      break;
    else if (!append(list, name, &tensor))
      return no_memory(why);
  }
  return good && zpr_json_done(&j) ? ZPR_HEADER_READ : corrupt(why, "its header is not a list of tensors");
}

static int by_place(const void *a, const void *b) {
  const zpr_tensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const zpr_tensor *)a)->name, ((const zpr_tensor *)b)->name);
}

static bool length_fits(const zpr_tensor *tensor) {
  int64_t bytes = zpr_element_bytes(tensor->dtype);
  for (int k = 0; k < tensor->rank; k++)
    if (__builtin_mul_overflow(bytes, tensor->shape[k], &bytes)) return false;
  return tensor->begin <= tensor->end && tensor->end - tensor->begin == bytes;
}

static zpr_header_end check_layout(zpr_tensors *list, int64_t data_bytes, char why[ZPR_HEADER_WHY]) {
  int64_t at = 0;
  if (list->n > 0) qsort(list->tensor, (size_t)list->n, sizeof *list->tensor, by_place);
  for (int64_t i = 0; i < list->n; i++) {
    const zpr_tensor *t = &list->tensor[i];
    if (zpr_element_bytes(t->dtype) == 0)
      return corrupt(why, "tensor \"%.100s\" has the dtype \"%s\", which is not known", t->name, t->dtype);
    if (t->begin != at) return corrupt(why, "tensor \"%.100s\" overlaps another one, or leaves a hole", t->name);
    if (!length_fits(t)) return corrupt(why, "the length of tensor \"%.100s\" does not fit its shape", t->name);
    at = t->end;
  }
  if (at != data_bytes) return corrupt(why, "its length is not what its header says: is it truncated?");
  if (list->n > 0) qsort(list->tensor, (size_t)list->n, sizeof *list->tensor, by_name);
  for (int64_t i = 1; i < list->n; i++)
    if (by_name(&list->tensor[i - 1], &list->tensor[i]) == 0)
      return corrupt(why, "two tensors are named \"%.100s\"", list->tensor[i].name);
  return ZPR_HEADER_READ;
}

static zpr_header_end read_text(zpr_tensors *list, int fd, char *text, char why[ZPR_HEADER_WHY]) {
  int64_t bytes = list->data_start - 8;
  if (pread(fd, text, (size_t)bytes, 8) != (ssize_t)bytes) return corrupt(why, "its header could not be read");
  zpr_header_end end = parse(list, text, (size_t)bytes, why);
  return end == ZPR_HEADER_READ ? check_layout(list, list->file_bytes - list->data_start, why) : end;
}

zpr_header_end zpr_header_read(zpr_tensors *list, int fd, char why[ZPR_HEADER_WHY]) {
  struct stat status;
  unsigned char raw[8];
  uint64_t length = 0;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return corrupt(why, "it is no regular file");
  if (pread(fd, raw, 8, 0) != 8) return corrupt(why, "it is shorter than its header");
  for (int i = 0; i < 8; i++) length |= (uint64_t)raw[i] << (8 * i);
  if (length > LONGEST_HEADER || (int64_t)length > status.st_size - 8)
    return corrupt(why, "its header's length is out of range: is it truncated, or no safetensors file?");
  char *text = malloc((size_t)length + 1);
  if (!text) return no_memory(why);
  list->data_start = 8 + (int64_t)length;
  list->file_bytes = status.st_size;
  zpr_header_end end = read_text(list, fd, text, why);
  free(text);
  return end;
}

void zpr_tensors_free(zpr_tensors *list) {
  for (int64_t i = 0; i < list->n; i++) free(list->tensor[i].name);
  free(list->tensor);
  *list = (zpr_tensors){0};
}
