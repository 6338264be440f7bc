/* SPDX-License-Identifier: Apache-2.0 */
/* The map of given weights, as JSON:
 *
 *   {"format": "zplan-weights", "version": 1, "source": "gpt2/", "files": [{"path": "gpt2/model.safetensors", "bytes":
 * 548105171}], "parts": [{"name": "h.0.attn.c_attn.weight", "begin": 0, "file": 0, "offset": 16384, "dtype": "F32",
 * "extents": [2304, 768], "strides": [1, 2304]}, ...], "drawn": ["span.weight"]}
 *
 * It is read as strictly as if somebody else had written it: no number in it leads outside of a file or a parameter. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "given.h"

enum { MOST_MAP_BYTES = 256 << 20 };

/* Room for one more; false when there is no memory. */
static bool grow(void **list, int64_t n, size_t size) {
  if (n > 0 && (n & (n - 1)) != 0) return true; /* grown at powers of two */
  void *more = realloc(*list, (size_t)(n > 0 ? 2 * n : 1) * size);
  if (!more) return false;
  *list = more;
  return true;
}

static bool read_file(zpr_json *j, zpr_given *g) {
  char key[32], path[ZPR_PATH] = "";
  int64_t bytes = -1;
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    if (strcmp(key, "path") == 0)
      zpr_json_string(j, path, sizeof path);
    else if (strcmp(key, "bytes") == 0)
      zpr_json_int(j, &bytes);
    else
      zpr_json_skip(j);
  }
  if (j->failed || !path[0] || bytes < 0 || !grow((void **)&g->files, g->n_files, sizeof *g->files)) return false;
  char *copy = strdup(path);
  if (!copy) return false;
  g->files[g->n_files++] = (zpr_given_file){.path = copy, .bytes = bytes, .fd = -1};
  return true;
}

static bool read_list(zpr_json *j, int64_t list[ZPR_GIVEN_DIMS], int *n) {
  zpr_json_array(j);
  for (*n = 0; zpr_json_item(j); (*n)++)
    if (*n == ZPR_GIVEN_DIMS || !zpr_json_int(j, &list[*n])) return false;
  return !j->failed;
}

static bool dtype_of(const char *word, zpk_dtype *dtype) {
  for (int d = ZPK_F32; d <= ZPK_F16; d++)
    if (strcmp(word, zpr_dtype_name((zpk_dtype)d)) == 0) {
      *dtype = (zpk_dtype)d;
      return true;
    }
  return false;
}

/* Counts its elements, and the highest element of the file; false where a number overflows or one leads outside. */
static bool measure(const zpr_given *g, zpr_given_part *p) {
  int64_t bytes, end;
  p->elements = 1;
  p->last = 0;
  if (p->n == 0 || p->file < 0 || p->file >= g->n_files) return false;
  for (int k = 0; k < p->n; k++) {
    int64_t step;
    if (p->extents[k] < 1 || __builtin_mul_overflow(p->elements, p->extents[k], &p->elements)) return false;
    if (__builtin_mul_overflow(p->extents[k] - 1, p->strides[k], &step)) return false;
    if (__builtin_add_overflow(p->last, step, &p->last)) return false;
  }
  if (__builtin_add_overflow(p->last, 1, &bytes) || __builtin_mul_overflow(bytes, zpk_bytes(p->dtype), &bytes))
    return false;
  if (__builtin_add_overflow(bytes, p->offset, &bytes) || __builtin_add_overflow(p->begin, p->elements, &end))
    return false;
  return bytes <= g->files[p->file].bytes;
}

static bool read_part(zpr_json *j, zpr_given *g) {
  char key[32], name[ZPR_TENSOR_NAME] = "", dtype[12] = "";
  zpr_given_part p = {.begin = -1, .offset = -1, .file = -1};
  int64_t file = -1;
  int strides = 0;
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    if (strcmp(key, "name") == 0)
      zpr_json_string(j, name, sizeof name);
    else if (strcmp(key, "dtype") == 0)
      zpr_json_string(j, dtype, sizeof dtype);
    else if (strcmp(key, "begin") == 0)
      zpr_json_int(j, &p.begin);
    else if (strcmp(key, "file") == 0)
      zpr_json_int(j, &file);
    else if (strcmp(key, "offset") == 0)
      zpr_json_int(j, &p.offset);
    else if (strcmp(key, "extents") == 0)
      read_list(j, p.extents, &p.n);
    else if (strcmp(key, "strides") == 0)
      read_list(j, p.strides, &strides);
    else
      zpr_json_skip(j);
  }
  p.file = file < g->n_files ? (int)file : -1;
  bool good = !j->failed && name[0] && dtype_of(dtype, &p.dtype) && p.begin >= 0 && p.offset >= 0 && strides == p.n;
  if (!good || !measure(g, &p) || !grow((void **)&g->parts, g->n_parts, sizeof *g->parts)) return false;
  if (!(p.name = strdup(name))) return false;
  g->parts[g->n_parts++] = p;
  return true;
}

static bool read_drawn(zpr_json *j, zpr_given *g) {
  char name[ZPR_TENSOR_NAME] = "";
  zpr_json_string(j, name, sizeof name);
  if (j->failed || !name[0] || !grow((void **)&g->drawn, g->n_drawn, sizeof *g->drawn)) return false;
  if (!(g->drawn[g->n_drawn] = strdup(name))) return false;
  g->n_drawn++;
  return true;
}

static int by_place(const void *a, const void *b) {
  const zpr_given_part *x = a, *y = b;
  int names = strcmp(x->name, y->name);
  return names ? names : (x->begin > y->begin) - (x->begin < y->begin);
}

/* Files stand before the parts, which count them. */
static bool parse(zpr_given *g, const char *text, size_t bytes) {
  char key[32], format[32] = "";
  int64_t version = 0;
  zpr_json j = zpr_json_open(text, bytes);
  zpr_json_object(&j);
  while (zpr_json_key(&j, key, sizeof key)) {
    bool files = strcmp(key, "files") == 0, drawn = strcmp(key, "drawn") == 0;
    if (strcmp(key, "format") == 0)
      zpr_json_string(&j, format, sizeof format);
    else if (strcmp(key, "version") == 0)
      zpr_json_int(&j, &version);
    else if (strcmp(key, "source") == 0)
      zpr_json_string(&j, g->source, sizeof g->source);
    else if (!files && !drawn && strcmp(key, "parts") != 0)
      zpr_json_skip(&j);
    else
      for (zpr_json_array(&j); zpr_json_item(&j);)
        if (!(files ? read_file(&j, g) : drawn ? read_drawn(&j, g) : read_part(&j, g))) return false;
  }
  if (!zpr_json_done(&j) || strcmp(format, "zplan-weights") != 0 || version != 1 || g->n_parts == 0) return false;
  qsort(g->parts, (size_t)g->n_parts, sizeof *g->parts, by_place);
  return true;
}

static bool open_files(zpr_given *g, zpr_error *error) {
  for (int64_t i = 0; i < g->n_files; i++) {
    zpr_given_file *f = &g->files[i];
    struct stat status;
    f->fd = zpr_open_file(f->path);
    if (f->fd < 0 || fstat(f->fd, &status) != 0) {
      zpr_error_set(error, "Z0819", "cannot read the weights in \"%s\": %s", f->path, strerror(errno));
      return false;
    }
    if (status.st_size == f->bytes) continue;
    zpr_error_set(error, "Z0819", "the weights in \"%s\" have changed: %lld bytes, there were %lld", f->path,
                  (long long)status.st_size, (long long)f->bytes);
    return false;
  }
  return true;
}

static char *load(const char *path, size_t *bytes, zpr_error *error) {
  struct stat status;
  char *text = NULL;
  int fd = zpr_open_file(path);
  bool there = fd >= 0 && fstat(fd, &status) == 0;
  if (!there) zpr_error_set(error, "Z0819", "cannot read the map of weights \"%s\": %s", path, strerror(errno));
  *bytes = there ? (size_t)status.st_size : 0;
  if (there && *bytes <= MOST_MAP_BYTES) text = malloc(*bytes + 1);
  bool good = text && read(fd, text, *bytes) == (ssize_t)*bytes;
  if (there && !good) zpr_error_set(error, "Z0819", "cannot read the map of weights \"%s\"", path);
  if (fd >= 0) close(fd);
  if (good) return text;
  free(text);
  return NULL;
}

zpr_given *zpr_given_open(const char *path, zpr_error *error) {
  size_t bytes;
  char *text = load(path, &bytes, error);
  if (!text) return NULL;
  zpr_given *g = calloc(1, sizeof *g);
  bool good = g && parse(g, text, bytes);
  if (!good) zpr_error_set(error, "Z0812", "\"%s\" is corrupt: it is no map of weights", path);
  free(text);
  if (good && open_files(g, error)) {
    g->loaded = -1;
    return g;
  }
  zpr_given_close(g);
  return NULL;
}

void zpr_given_close(zpr_given *g) {
  if (!g) return;
  for (int64_t i = 0; i < g->n_files; i++) {
    free(g->files[i].path);
    if (g->files[i].fd >= 0) close(g->files[i].fd);
  }
  for (int64_t i = 0; i < g->n_parts; i++) free(g->parts[i].name);
  for (int64_t i = 0; i < g->n_drawn; i++) free(g->drawn[i]);
  free(g->files);
  free(g->drawn);
  free(g->parts);
  free(g->raw);
  free(g);
}

bool zpr_given_draws(const zpr_given *g, const char *name) {
  for (int64_t i = 0; i < g->n_drawn; i++)
    if (strcmp(g->drawn[i], name) == 0) return true;
  return false;
}

zpr_given_part *zpr_given_find(const zpr_given *g, const char *name, int64_t at) {
  int64_t low = 0, high = g->n_parts; /* the last part that does not stand after it */
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    const zpr_given_part *p = &g->parts[middle];
    int order = strcmp(p->name, name);
    if (order < 0 || (order == 0 && p->begin <= at))
      low = middle + 1;
    else
      high = middle;
  }
  zpr_given_part *p = low > 0 ? &g->parts[low - 1] : NULL;
  return p && strcmp(p->name, name) == 0 && at < p->begin + p->elements ? p : NULL;
}
