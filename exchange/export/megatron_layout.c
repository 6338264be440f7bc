/* SPDX-License-Identifier: Apache-2.0 */
/* The cut of a plan as the text of --pipeline-model-parallel-layout: E embedding, t layer, L head and loss, `|` between
 * model chunks; (x)*n and t*n repeat. Chunks stand in the order of the model, which is Megatron-LM's numbering too. */
#include "megatron.h"

static int64_t chunk_count(const zp_choice *c) { return (int64_t)c->pipeline * (c->chunks > 1 ? c->chunks : 1); }

/* Units are whole segments' iterations: 0 the embedding, then the layers, then the head. */
static const char *chunk_text(const zp_exporter *e, int64_t first, int64_t end, int64_t layers) {
  zp_buf out = zp_buf_new(e->arena);
  zp_buf_puts(&out, first == 0 && end > 0 ? "E" : "");
  int64_t begin = first > 1 ? first : 1, last = end < layers + 1 ? end : layers + 1, n = last - begin;
  if (n > 3)
    zp_buf_printf(&out, "t*%lld", (long long)n);
  else
    for (int64_t i = 0; i < n; i++) zp_buf_puts(&out, "t");
  zp_buf_puts(&out, end == layers + 2 && first < end ? "L" : "");
  return out.data;
}

const char *zp_megatron_layout(const zp_exporter *e) {
  const zp_choice *c = e->choice;
  if (c->fine) return NULL;
  int64_t chunks = chunk_count(c), layers = e->spec->model->segments.data[1].count;
  zp_buf out = zp_buf_new(e->arena);
  for (int64_t k = 0, same; k < chunks; k += same) {
    const char *text = chunk_text(e, c->cut[k], c->cut[k + 1], layers);
    same = 1;
    while (k + same < chunks && strcmp(text, chunk_text(e, c->cut[k + same], c->cut[k + same + 1], layers)) == 0)
      same++;
    if (same == 1) /* so is the last: no other has the head */
      zp_buf_printf(&out, "%s%s", text, k + 1 == chunks ? "" : "|");
    else
      zp_buf_printf(&out, "(%s|)*%lld", text, (long long)same);
  }
  return out.data;
}
