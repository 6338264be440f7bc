/* Headers of safetensors files that somebody else may have written: sizes, offsets and names are checked before they
 * are used. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"

enum { LONGEST_HEADER = 100000000 }; /* the limit of the reference reader */

static bool corrupt(zpr_error *error, const char *path, const char *why) {
  zpr_error_set(error, "Z0812", "checkpoint file \"%s\" is corrupt: %s", path, why);
  return false;
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

static bool parse(zpr_tensors *list, const char *text, size_t bytes) {
  zpr_json j = zpr_json_open(text, bytes);
  char name[ZPR_TENSOR_NAME];
  if (bytes == 0 || text[0] != '{') return false;
  zpr_json_object(&j);
  while (zpr_json_key(&j, name, sizeof name)) {
    zpr_tensor tensor = {0};
    if (strcmp(name, "__metadata__") == 0)
      zpr_json_skip(&j);
    else if (!read_tensor(&j, &tensor) || !append(list, name, &tensor))
      return false;
  }
  return zpr_json_done(&j);
}

static int by_place(const void *a, const void *b) {
  const zpr_tensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const zpr_tensor *)a)->name, ((const zpr_tensor *)b)->name);
}

/* Length by shape; dtypes of other widths are refused later, by name (zpr_tensors_same). */
static bool length_fits(const zpr_tensor *tensor) {
  int64_t bytes = 0;
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    if (strcmp(tensor->dtype, zpr_dtype_name((zpk_dtype)dtype)) == 0) bytes = zpk_bytes((zpk_dtype)dtype);
  if (bytes == 0) return tensor->begin <= tensor->end;
  for (int k = 0; k < tensor->rank; k++)
    if (__builtin_mul_overflow(bytes, tensor->shape[k], &bytes)) return false;
  return tensor->begin <= tensor->end && tensor->end - tensor->begin == bytes;
}

/* The data must be covered without holes or overlap. */
static bool check_layout(zpr_tensors *list, int64_t data_bytes, const char *path, zpr_error *error) {
  int64_t at = 0;
  if (list->n > 0) qsort(list->tensor, (size_t)list->n, sizeof *list->tensor, by_place);
  for (int64_t i = 0; i < list->n; i++) {
    if (list->tensor[i].begin != at) return corrupt(error, path, "its tensors overlap or leave a hole");
    if (!length_fits(&list->tensor[i])) return corrupt(error, path, "a tensor's length does not fit its shape");
    at = list->tensor[i].end;
  }
  if (at != data_bytes) return corrupt(error, path, "its length is not what its header says");
  if (list->n > 0) qsort(list->tensor, (size_t)list->n, sizeof *list->tensor, by_name);
  for (int64_t i = 1; i < list->n; i++)
    if (by_name(&list->tensor[i - 1], &list->tensor[i]) == 0) return corrupt(error, path, "two tensors have one name");
  return true;
}

/* The header's text (owned), its length in *bytes. */
static char *load_header(int fd, int64_t file_bytes, int64_t *bytes, const char *path, zpr_error *error) {
  unsigned char raw[8];
  uint64_t length = 0;
  if (file_bytes < 8 || pread(fd, raw, 8, 0) != 8) {
    corrupt(error, path, "it is shorter than its header");
    return NULL;
  }
  for (int i = 0; i < 8; i++) length |= (uint64_t)raw[i] << (8 * i);
  if (length > LONGEST_HEADER || (int64_t)length > file_bytes - 8) {
    corrupt(error, path, "its header's length is out of range");
    return NULL;
  }
  char *text = malloc((size_t)length + 1);
  if (!text) {
    zpr_error_set(error, "Z0822", "cannot get memory for the header of \"%s\"", path);
    return NULL;
  }
  if (pread(fd, text, (size_t)length, 8) != (ssize_t)length) {
    corrupt(error, path, "its header could not be read");
    free(text);
    return NULL;
  }
  *bytes = (int64_t)length;
  return text;
}

bool zpr_tensors_read(zpr_tensors *list, const char *path, zpr_error *error) {
  struct stat status;
  int64_t header_bytes = 0;
  char *text = NULL;
  bool good = false;
  int fd = zpr_open_file(path);
  if (fd < 0 || fstat(fd, &status) != 0) {
    zpr_error_set(error, "Z0812", "cannot read checkpoint file \"%s\": %s", path, strerror(errno));
    goto done;
  }
  text = load_header(fd, status.st_size, &header_bytes, path, error);
  if (!text) goto done;
  list->data_start = 8 + header_bytes;
  list->file_bytes = status.st_size;
  if (!parse(list, text, (size_t)header_bytes))
    corrupt(error, path, "its header is not a list of tensors");
  else
    good = check_layout(list, status.st_size - list->data_start, path, error);
done:
  free(text);
  if (fd >= 0) close(fd);
  return good;
}
