/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a tensor of theirs, put together from a checkpoint of zplan: parts of several parameters, each in its
 * order, with adapters added where that is wanted. */
#include "element.h"
#include "weights_internal.h"

#include <assert.h>
#include <stdlib.h>

/* Weights of 16-bit trainings have an f32 copy in the optimizer's file, which is more exact: where more is wanted. */
static const zp_weight_tensor *source_of(const zp_gather *g, const char *ours) {
  const zp_weight_tensor *t = zp_weights_find(g->checkpoint, ours);
  bool wants_more = t && zp_weight_dtype_bytes(g->dtype) > zp_weight_dtype_bytes(t->dtype);
  return zp_weights_source(g->arena, g->checkpoint, ours, wants_more);
}

static int64_t elements_of(const zp_weight_part *p) {
  int64_t all = 1;
  for (int k = 0; k < p->n; k++) all *= p->extents[k];
  return all;
}

static void scatter(const zp_gather *g, const zp_weight_part *p, const char *dtype, const void *from, void *to) {
  int64_t index[ZP_WEIGHT_DIMS] = {0}, place = p->from, count = elements_of(p), size = zp_weight_dtype_bytes(g->dtype);
  bool same = strcmp(dtype, g->dtype) == 0;
  for (int64_t i = 0; i < count; i++) {
    if (same)
      memcpy((char *)to + place * size, (const char *)from + i * size, (size_t)size);
    else
      zp_element_write(g->dtype, to, place, zp_element_read(dtype, from, i));
    for (int k = p->n - 1; k >= 0; k--) {
      place += p->strides[k];
      if (++index[k] < p->extents[k]) break;
      place -= p->strides[k] * p->extents[k];
      index[k] = 0;
    }
  }
}

/* The sum is in f64, and rounded once. */
static bool add_adapter(const zp_gather *g, const zp_merge *merge, const zp_weight_part *p, const char *dtype,
                        const void *raw, void *data) {
  int64_t count = elements_of(p);
  double *sum = malloc((size_t)count * sizeof *sum);
  bool good = sum != NULL;
  for (int64_t i = 0; good && i < count; i++) sum[i] = zp_element_read(dtype, raw, i);
  good = good && zp_merge_add(g->arena, g->diags, g->checkpoint, merge, p->begin, count, sum);
  if (!sum) zp_report(g->diags, ZP_Z0695, ZP_NO_SPAN, "no memory for the adapter of %s", p->ours);
  if (good) scatter(g, p, "F64", sum, data);
  free(sum);
  return good;
}

bool zp_weights_gather(const zp_gather *g, const zp_mapped_tensor *tensor, void *data) {
  for (int i = 0; i < tensor->parts.len; i++) {
    const zp_weight_part *p = &tensor->parts.data[i];
    const zp_weight_tensor *t = source_of(g, p->ours);
    assert(t); /* the checkpoint was compared with the model */
    int64_t count = elements_of(p);
    void *raw = malloc((size_t)(count * zp_weight_dtype_bytes(t->dtype)));
    bool good = raw && zp_weights_read(g->diags, g->checkpoint, t, p->begin, count, raw);
    const zp_merge *merge = zp_merge_of(g->merges, p->ours);
    if (!raw) zp_report(g->diags, ZP_Z0695, ZP_NO_SPAN, "no memory for tensor %s", tensor->name);
    if (good && !merge) scatter(g, p, t->dtype, raw, data);
    if (good && merge) good = add_adapter(g, merge, p, t->dtype, raw, data);
    free(raw);
    if (!good) return false;
  }
  return true;
}
