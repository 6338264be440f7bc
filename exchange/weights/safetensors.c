/* Headers of safetensors files: 8 bytes of length, JSON, then the data. Nothing in them is trusted: every tensor lies
 * inside the file, has as many bytes as its shape says, and touches no other. What tensors hold, and headers to
 * write. */
#include "element.h"
#include "weights_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zplan/json.h>

enum { LONGEST_HEADER = 100000000 }; /* the limit of the reference reader */

int zp_weight_dtype_bytes(const char *dtype) {
  static const struct {
    const char *word;
    int bytes;
  } rows[] = {{"F32", 4}, {"F64", 8}, {"BF16", 2}, {"F16", 2}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].word, dtype) == 0) return rows[i].bytes;
  return 0;
}

/* Some of them stand beside weights (masks, counters), and are never mapped. */
static int any_dtype_bytes(const char *dtype) {
  static const char *const words[] = {"BOOL", "U8",  "I8",  "F8_E4M3", "F8_E5M2", "I16",
                                      "U16",  "I32", "U32", "I64",     "U64"};
  static const int bytes[] = {1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(words[i], dtype) == 0) return bytes[i];
  return zp_weight_dtype_bytes(dtype);
}

typedef struct header {
  zp_arena *arena;
  zp_weight_folder *folder;
  int64_t data_start, data_bytes;
  const char *wrong; /* NULL: nothing */
} header;

static bool fail(header *h, const char *name, const char *why) {
  h->wrong = zp_format(h->arena, "tensor \"%.100s\" %s", name, why);
  return false;
}

static bool read_tensor(header *h, const char *name, const zp_json *value) {
  zp_weight_tensor t = {.name = zp_strdup(h->arena, name), .elements = 1, .file = h->folder->files.len - 1};
  const zp_json *shape = zp_json_get(value, "shape"), *offsets = zp_json_get(value, "data_offsets");
  t.dtype = zp_strdup(h->arena, zp_json_get_string(value, "dtype", ""));
  t.rank = zp_json_count(shape);
  int64_t begin = zp_json_int(zp_json_at(offsets, 0), -1), end = zp_json_int(zp_json_at(offsets, 1), -1), bytes;
  if (!zp_json_is_array(shape) || t.rank > ZP_TENSOR_RANK) return fail(h, name, "has no shape that is known");
  for (int k = 0; k < t.rank; k++) {
    t.shape[k] = zp_json_int(zp_json_at(shape, k), -1);
    if (t.shape[k] < 0 || __builtin_mul_overflow(t.elements, t.shape[k], &t.elements))
      return fail(h, name, "has a size that is no number");
  }
  int size = any_dtype_bytes(t.dtype);
  if (size == 0) return fail(h, name, zp_format(h->arena, "has the dtype \"%.40s\", which is not known", t.dtype));
  if (zp_json_count(offsets) != 2 || begin < 0 || end < begin || end > h->data_bytes)
    return fail(h, name, "lies outside of the file: is it truncated?");
  if (__builtin_mul_overflow(t.elements, size, &bytes) || bytes != end - begin)
    return fail(h, name, "has another number of bytes than its shape");
  t.offset = h->data_start + begin;
  zp_push(h->arena, &h->folder->tensors, t);
  return true;
}

static int by_offset(const void *a, const void *b) {
  int64_t x = ((const zp_weight_tensor *)a)->offset, y = ((const zp_weight_tensor *)b)->offset;
  return (x > y) - (x < y);
}

/* Those of one file, from `first` on. */
static bool lie_apart(header *h, int first) {
  zp_weight_tensor *t = h->folder->tensors.data + first;
  int n = h->folder->tensors.len - first;
  if (n > 1) qsort(t, (size_t)n, sizeof *t, by_offset);
  for (int i = 1; i < n; i++)
    if (t[i - 1].offset + t[i - 1].elements * any_dtype_bytes(t[i - 1].dtype) > t[i].offset)
      return fail(h, t[i].name, "overlaps another one");
  return true;
}

static void parse(header *h, const char *text, size_t len) {
  const char *error = NULL, *name;
  const zp_json *value;
  int first = h->folder->tensors.len;
  zp_json *root = zp_json_parse(h->arena, text, len, &error);
  if (!root || !zp_json_is_object(root)) h->wrong = error ? error : "its header is no object";
  bool good = !h->wrong;
  for (void *at = NULL; good && zp_json_next(root, &at, &name, &value);)
    good = strcmp(name, "__metadata__") == 0 || read_tensor(h, name, value);
  if (good) lie_apart(h, first);
  if (root) zp_json_free(root);
}

/* The header's text, with its length and the file's; NULL with *wrong. */
static char *read_header(zp_arena *arena, const char *path, int64_t *file_bytes, size_t *len, const char **wrong) {
  struct stat info;
  unsigned char raw[8];
  uint64_t length = 0;
  char *text = NULL;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not block here */
  if (fd < 0 || fstat(fd, &info) != 0) {
    *wrong = strerror(errno);
  } else if (!S_ISREG(info.st_mode) || pread(fd, raw, 8, 0) != 8) {
    *wrong = "it is shorter than a header";
  } else {
    for (int i = 0; i < 8; i++) length |= (uint64_t)raw[i] << (8 * i);
    if (length > LONGEST_HEADER || (int64_t)length > info.st_size - 8)
      *wrong = "its header is longer than the file: is it truncated, or no safetensors file?";
    else if (text = zp_alloc(arena, length + 1), pread(fd, text, length, 8) != (ssize_t)length)
      *wrong = "its header could not be read";
    *file_bytes = info.st_size;
    *len = length;
  }
  if (fd >= 0) close(fd);
  return *wrong ? NULL : text;
}

bool zp_safetensors_read(zp_arena *arena, zp_diags *diags, zp_weight_folder *folder, const char *path) {
  header h = {.arena = arena, .folder = folder};
  int64_t bytes = 0;
  size_t len = 0;
  char *text = read_header(arena, path, &bytes, &len, &h.wrong);
  if (text) {
    zp_push(arena, &folder->files, ((zp_weight_file){zp_strdup(arena, path), bytes}));
    h.data_start = 8 + (int64_t)len;
    h.data_bytes = bytes - h.data_start;
    parse(&h, text, len);
  }
  if (h.wrong) zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "cannot read the weights in %s: %s", path, h.wrong);
  return !h.wrong;
}

/* {"__metadata__":{"format":"pt"},"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}, with its length
 * before it and blanks behind it, as the reference writes them. */
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
