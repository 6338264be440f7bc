/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files of checkpoints: the list of tensors, its header, and lookups. All tensors of a file
 * have one dtype, so sorting by name is also the order of descending alignment that the format asks writers for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

static int64_t elements_of(const zpr_tensor *tensor) {
  int64_t n = 1;
  for (int k = 0; k < tensor->rank; k++) n *= tensor->shape[k];
  return n;
}

const char *zpr_dtype_name(zpk_dtype dtype) {
  static const char *const name[] = {[ZPK_F32] = "F32", [ZPK_F64] = "F64", [ZPK_BF16] = "BF16", [ZPK_F16] = "F16"};
  return name[dtype];
}

void zpr_tensors_add(zpr *c, zpr_tensors *list, const char *name, zpk_dtype dtype, const zpr_param *param, int stage,
                     int64_t local) {
  if (list->n == list->room) {
    list->room = list->room ? 2 * list->room : 64;
    zpr_tensor *more = realloc(list->tensor, (size_t)list->room * sizeof *more);
    if (!more) zpr_fail(c, "Z0822", "cannot get memory for a list of %lld tensors", (long long)list->room);
    list->tensor = more;
  }
  zpr_tensor *tensor = &list->tensor[list->n++];
  *tensor = (zpr_tensor){.rank = param->rank, .stage = stage, .local = local};
  tensor->name = zpr_alloc(c, strlen(name) + 1, 1);
  strcpy(tensor->name, name);
  strcpy(tensor->dtype, zpr_dtype_name(dtype));
  tensor->element_bytes = zpk_bytes(dtype);
  memcpy(tensor->shape, param->shape, (size_t)param->rank * sizeof *param->shape);
}

/* By name; copies of a tied parameter by stage and place, so that the owner comes first. */
static int compare(const void *a, const void *b) {
  const zpr_tensor *x = a, *y = b;
  int names = strcmp(x->name, y->name);
  if (names != 0) return names;
  if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
  return (x->local > y->local) - (x->local < y->local);
}

static void drop_copies(zpr_tensors *list) {
  int64_t kept = 0;
  for (int64_t i = 0; i < list->n; i++) {
    if (kept > 0 && strcmp(list->tensor[kept - 1].name, list->tensor[i].name) == 0)
      free(list->tensor[i].name);
    else
      list->tensor[kept++] = list->tensor[i];
  }
  list->n = kept;
}

/* {"__metadata__":{"format":"pt"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...} */
static void print_header(FILE *out, const zpr_tensors *list) {
  fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
  for (int64_t i = 0; i < list->n; i++) {
    const zpr_tensor *tensor = &list->tensor[i];
    fputc(',', out);
    zpr_put_json(out, tensor->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype);
    for (int k = 0; k < tensor->rank; k++) fprintf(out, "%s%lld", k ? "," : "", (long long)tensor->shape[k]);
    fprintf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)tensor->begin, (long long)tensor->end);
  }
  fputc('}', out);
}

char *zpr_tensors_seal(zpr *c, zpr_tensors *list) {
  if (list->n > 0) qsort(list->tensor, (size_t)list->n, sizeof *list->tensor, compare);
  drop_copies(list);
  int64_t at = 0;
  for (int64_t i = 0; i < list->n; i++) {
    list->tensor[i].begin = at;
    at = list->tensor[i].end = at + elements_of(&list->tensor[i]) * list->tensor[i].element_bytes;
  }
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) zpr_fail(c, "Z0822", "cannot get memory for the header of a checkpoint");
  fputs("        ", out); /* the length, below */
  print_header(out, list);
  while (ftell(out) % 8 != 0) fputc(' ', out);
  if (fclose(out) != 0 || !text) zpr_fail(c, "Z0822", "cannot get memory for the header of a checkpoint");
  for (int i = 0; i < 8; i++) text[i] = (char)((uint64_t)(bytes - 8) >> (8 * i));
  list->data_start = (int64_t)bytes;
  list->file_bytes = list->data_start + at;
  return text;
}

static int compare_name(const void *key, const void *tensor) { return strcmp(key, ((const zpr_tensor *)tensor)->name); }

const zpr_tensor *zpr_tensors_find(const zpr_tensors *list, const char *name) {
  if (list->n == 0) return NULL;
  return bsearch(name, list->tensor, (size_t)list->n, sizeof *list->tensor, compare_name);
}

static const char *shape_text(char *buf, size_t size, const zpr_tensor *tensor) {
  size_t used = (size_t)snprintf(buf, size, "[");
  for (int k = 0; k < tensor->rank && used < size; k++)
    used += (size_t)snprintf(buf + used, size - used, "%s%lld", k ? ", " : "", (long long)tensor->shape[k]);
  if (used < size) snprintf(buf + used, size - used, "]");
  return buf;
}

static bool same_tensor(const zpr_tensor *ours, const zpr_tensor *theirs, const char *path, zpr_error *error) {
  char want[128], got[128];
  if (strcmp(ours->dtype, theirs->dtype) != 0) {
    zpr_error_set(error, "Z0813", "\"%s\" has tensor \"%s\" as %s, this program trains in %s", path, theirs->name,
                  theirs->dtype, ours->dtype);
    return false;
  }
  bool same =
      ours->rank == theirs->rank && memcmp(ours->shape, theirs->shape, (size_t)ours->rank * sizeof *ours->shape) == 0;
  if (!same)
    zpr_error_set(error, "Z0813", "\"%s\" has tensor \"%s\" of shape %s, this model has %s", path, ours->name,
                  shape_text(got, sizeof got, theirs), shape_text(want, sizeof want, ours));
  return same;
}

/* An average of the weights. */
static bool is_average(const zpr_tensor *t) {
  size_t n = strlen(t->name);
  return n > 4 && strcmp(t->name + n - 4, ".ema") == 0;
}

bool zpr_tensors_same(const zpr_tensors *program, const zpr_tensors *file, const char *path, zpr_error *error) {
  for (int64_t i = 0; i < program->n || i < file->n; i++) {
    const zpr_tensor *ours = i < program->n ? &program->tensor[i] : NULL;
    const zpr_tensor *theirs = i < file->n ? &file->tensor[i] : NULL;
    int order = !ours ? 1 : !theirs ? -1 : strcmp(ours->name, theirs->name);
    if (order < 0 && is_average(ours))
      zpr_error_set(error, "Z0813", "\"%s\" has no average of the weights, which `ema` asks for: it began without",
                    path);
    else if (order > 0 && is_average(theirs))
      zpr_error_set(error, "Z0813", "\"%s\" has an average of the weights, and this training has no `ema`", path);
    else if (order < 0)
      zpr_error_set(error, "Z0813", "\"%s\" has no tensor \"%s\", which this model has", path, ours->name);
    else if (order > 0)
      zpr_error_set(error, "Z0813", "\"%s\" has a tensor \"%s\", which this model does not have", path, theirs->name);
    if (order != 0 || !same_tensor(ours, theirs, path, error)) return false;
  }
  return true;
}

bool zpr_tensors_read(zpr_tensors *list, const char *path, zpr_error *error) {
  char why[ZPR_HEADER_WHY];
  int fd = zpr_open_file(path);
  if (fd < 0) {
    zpr_error_set(error, "Z0812", "cannot read checkpoint file \"%s\": %s", path, strerror(errno));
    return false;
  }
  zpr_header_end end = zpr_header_read(list, fd, why);
  close(fd);
  if (end == ZPR_HEADER_NO_MEMORY)
    zpr_error_set(error, "Z0822", "cannot get memory for the header of \"%s\"", path);
  else if (end == ZPR_HEADER_CORRUPT)
    zpr_error_set(error, "Z0812", "checkpoint file \"%s\" is corrupt: %s", path, why);
  return end == ZPR_HEADER_READ;
}
