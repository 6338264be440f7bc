/* SPDX-License-Identifier: Apache-2.0 */
/* Values of given weights: read from their files piece by piece, brought into the order of the parameter, converted.
 *
 * What stands in the file in the parameter's order is read as it is asked for. What does not (GPT-2's matrices, which
 * are transposed) is read whole, once, and kept until another part is asked for: memory is bounded by the largest such
 * tensor. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "given.h"

enum { PIECE = 1 << 20 }; /* elements that are converted at once */

static bool in_order(const zpr_given_part *p) {
  int64_t inner = 1;
  for (int k = p->n - 1; k >= 0; inner *= p->extents[k--])
    if (p->extents[k] > 1 && p->strides[k] != inner) return false;
  return true;
}

/* `count` elements of the file from `first` on to the beginning of g->raw. */
static bool load(zpr_given *g, const zpr_given_part *p, int64_t first, int64_t count, zpr_error *error) {
  const zpr_given_file *f = &g->files[p->file];
  int64_t bytes = count * zpk_bytes(p->dtype), offset = p->offset + first * zpk_bytes(p->dtype);
  if (bytes > g->raw_bytes) {
    free(g->raw);
    g->raw = malloc((size_t)bytes);
    g->raw_bytes = g->raw ? bytes : 0;
  }
  if (!g->raw) {
    zpr_error_set(error, "Z0822", "cannot get %lld bytes of memory for weights of \"%s\"", (long long)bytes, f->path);
    return false;
  }
  for (int64_t at = 0; at < bytes;) {
    ssize_t got = pread(f->fd, g->raw + at, (size_t)(bytes - at), offset + at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      zpr_error_set(error, "Z0819", "cannot read the weights in \"%s\": %s", f->path,
                    got == 0 ? "it is shorter than expected" : strerror(errno));
      return false;
    }
    at += got;
  }
  return true;
}

typedef struct conversion {
  const zpr_given_part *part;
  const char *raw;
  int64_t raw_first; /* the element of the file that raw begins with */
  int64_t first;     /* of the part: what values begin with */
  zpk_dtype dtype;
  void *values;
} conversion;

static double value_at(zpk_dtype dtype, const char *raw, int64_t at) {
  float narrow;
  switch (dtype) {
  case ZPK_F32: return ((const float *)(const void *)raw)[at];
  case ZPK_F64: return ((const double *)(const void *)raw)[at];
  case ZPK_BF16:
  case ZPK_F16: zpk_widen(dtype, raw + 2 * at, &narrow, 1); return narrow;
  }
  return 0;
}

static void store(zpk_dtype dtype, void *values, int64_t at, double x) {
  float narrow = (float)x;
  switch (dtype) {
  case ZPK_F32: ((float *)values)[at] = narrow; break;
  case ZPK_F64: ((double *)values)[at] = x; break;
  case ZPK_BF16:
  case ZPK_F16: zpk_round(dtype, &narrow, (uint16_t *)values + at, 1); break;
  }
}

/* The element of the file that is element e of the part. */
static int64_t place_of(const zpr_given_part *p, int64_t e) {
  int64_t place = 0;
  for (int k = p->n - 1; k >= 0; k--) {
    place += e % p->extents[k] * p->strides[k];
    e /= p->extents[k];
  }
  return place;
}

static void convert(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const conversion *v = arg;
  const zpr_given_part *p = v->part;
  int64_t inner = p->extents[p->n - 1], stride = p->strides[p->n - 1];
  for (int64_t e = begin; e < end;) {
    int64_t in_row = (v->first + e) % inner, place = place_of(p, v->first + e) - v->raw_first;
    int64_t stop = end - e < inner - in_row ? end : e + inner - in_row;
    for (; e < stop; e++, place += stride) store(v->dtype, v->values, e, value_at(p->dtype, v->raw, place));
  }
}

static bool read_part(zpr *c, zpr_given *g, zpr_given_part *p, int64_t first, int64_t count, zpk_dtype dtype,
                      char *values, zpr_error *error) {
  bool ordered = in_order(p);
  if (!ordered && g->loaded != p - g->parts) {
    g->loaded = -1;
    if (!load(g, p, 0, p->last + 1, error)) return false;
    g->loaded = p - g->parts;
  }
  for (int64_t at = 0, n; at < count; at += n) {
    n = count - at < PIECE ? count - at : PIECE;
    if (ordered) {
      g->loaded = -1;
      if (!load(g, p, first + at, n, error)) return false;
    }
    conversion v = {.part = p,
                    .raw = g->raw,
                    .raw_first = ordered ? first + at : 0,
                    .first = first + at,
                    .dtype = dtype,
                    .values = values + at * zpk_bytes(dtype)};
    zpr_parallel(c, n, 1024, convert, &v);
  }
  return true;
}

bool zpr_given_read(zpr *c, zpr_given *g, const char *name, int64_t at, int64_t count, zpk_dtype dtype, void *values,
                    zpr_error *error) {
  assert(g && name && at >= 0 && count >= 0 && values);
  for (int64_t done = 0, n; done < count; done += n) {
    zpr_given_part *p = zpr_given_find(g, name, at + done);
    if (!p) {
      zpr_error_set(error, "Z0813", "the weights of \"%s\" have no element %lld of \"%s\"", g->source,
                    (long long)(at + done), name);
      return false;
    }
    int64_t first = at + done - p->begin;
    n = count - done < p->elements - first ? count - done : p->elements - first;
    if (!read_part(c, g, p, first, n, dtype, (char *)values + done * zpk_bytes(dtype), error)) return false;
  }
  return true;
}
