/* SPDX-License-Identifier: Apache-2.0 */
/* Files of NumPy, read in place (format: numpy.lib.format, versions 1.0 to 3.0): a magic, a version, the length of a
 * header, and the header as a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (60, 49, 48), }. */
#include <stdlib.h>
#include <string.h>
#include "data.h"

enum { MAGIC_BYTES = 6, MOST_HEADER = 4096 };

typedef struct cursor {
  const char *at;
  bool bad;
} cursor;

static void skip(cursor *c) {
  while (*c->at == ' ' || *c->at == '\n') c->at++;
}

static bool take(cursor *c, char wanted) {
  skip(c);
  if (*c->at != wanted) return false;
  c->at++;
  return true;
}

static void expect(cursor *c, char wanted) {
  if (!c->bad && !take(c, wanted)) c->bad = true;
}

/* A string in single quotes, which is what Python's repr writes. */
static void take_string(cursor *c, char *to, size_t size) {
  size_t n = 0;
  expect(c, '\'');
  while (!c->bad && *c->at != '\'') {
    if (!*c->at || n + 1 >= size) c->bad = true;
    if (!c->bad) to[n++] = *c->at++;
  }
  to[n] = 0;
  expect(c, '\'');
}

static bool take_word(cursor *c, const char *word) {
  skip(c);
  size_t n = strlen(word);
  if (strncmp(c->at, word, n) != 0) return false;
  c->at += n;
  return true;
}

/* (), (60,), (60, 49): at most ZPR_NPY_RANK of them. */
static void take_shape(cursor *c, zpr_npy *npy) {
  expect(c, '(');
  npy->rank = 0;
  while (!c->bad && !take(c, ')')) {
    char *end;
    skip(c);
    long long dim = *c->at >= '0' && *c->at <= '9' ? strtoll(c->at, &end, 10) : -1;
    c->bad = dim < 0 || dim > INT32_MAX || npy->rank == ZPR_NPY_RANK;
    if (c->bad) return;
    npy->dim[npy->rank++] = dim;
    c->at = end;
    if (take(c, ')')) return;
    expect(c, ',');
  }
}

typedef struct header {
  char descr[16];
  bool fortran, has_descr, has_order, has_shape;
} header;

static bool read_dictionary(const char *text, header *h, zpr_npy *npy) {
  cursor c = {.at = text};
  expect(&c, '{');
  while (!c.bad && !take(&c, '}')) {
    char key[32] = "";
    take_string(&c, key, sizeof key);
    expect(&c, ':');
    if (strcmp(key, "descr") == 0) {
      take_string(&c, h->descr, sizeof h->descr);
      h->has_descr = true;
    } else if (strcmp(key, "fortran_order") == 0) {
      h->fortran = take_word(&c, "True");
      c.bad = c.bad || (!h->fortran && !take_word(&c, "False"));
      h->has_order = true;
    } else if (strcmp(key, "shape") == 0) {
      take_shape(&c, npy);
      h->has_shape = true;
    } else {
      c.bad = true;
    }
    take(&c, ',');
  }
  return !c.bad && h->has_descr && h->has_order && h->has_shape;
}

/* "<f4", "|u1": byte order, kind, bytes of an element. */
static bool read_kind(const char *descr, zpr_npy *npy) {
  bool ordered = descr[0] == '<', single = descr[0] == '|';
  if ((!ordered && !single) || !strchr("fiu", descr[1]) || !descr[1]) return false;
  if (descr[2] < '1' || descr[2] > '8' || descr[3]) return false;
  npy->kind = descr[1];
  npy->width = descr[2] - '0';
  return single ? npy->width == 1 : true;
}

/* The text of the header, owned, and where it ends in the file; NULL: there is none. */
static char *header_text(const zpr_shard *file, size_t *end) {
  const unsigned char *b = file->map;
  size_t size = file->map_bytes;
  if (size < MAGIC_BYTES + 6 || memcmp(b, "\x93NUMPY", MAGIC_BYTES) != 0 || b[6] < 1 || b[6] > 3) return NULL;
  size_t begin = b[6] == 1 ? 10 : 12;
  size_t length = b[8] | (size_t)b[9] << 8;
  if (b[6] > 1) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
  if (length > MOST_HEADER || begin + length > size) return NULL;
  char *text = malloc(length + 1);
  if (!text) return NULL;
  memcpy(text, b + begin, length);
  text[length] = 0;
  *end = begin + length;
  return text;
}

static bool refuse(zpr_error *error, const char *path, const char *why) {
  zpr_error_set(error, "Z0802", "\"%s\" %s", path, why);
  return false;
}

bool zpr_npy_read(const zpr_shard *file, zpr_npy *npy, zpr_error *error) {
  header h = {0};
  size_t end = 0;
  *npy = (zpr_npy){0};
  char *text = header_text(file, &end);
  bool ok = text && read_dictionary(text, &h, npy);
  free(text);
  if (!ok) return refuse(error, file->path, "is not a NumPy file: numpy.save writes what is read here");
  if (h.fortran) return refuse(error, file->path, "is in Fortran order: save numpy.ascontiguousarray(x)");
  if (!read_kind(h.descr, npy)) {
    zpr_error_set(error, "Z0802",
                  "\"%s\" has elements of type '%s', which are not read: save x.astype('int32') of ids, "
                  "or 'float32' of numbers",
                  file->path, h.descr);
    return false;
  }
  size_t elements = 1, left = (file->map_bytes - end) / (size_t)npy->width;
  for (int i = 0; i < npy->rank; i++) {
    if (npy->dim[i] > 0 && elements > left / (size_t)npy->dim[i])
      return refuse(error, file->path, "is truncated: it has fewer elements than its shape says");
    elements *= (size_t)npy->dim[i];
  }
  if (elements * (size_t)npy->width != file->map_bytes - end)
    return refuse(error, file->path, "is damaged: it has other elements than its shape says");
  npy->body = (const unsigned char *)file->map + end;
  return true;
}
