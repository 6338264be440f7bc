/* SPDX-License-Identifier: Apache-2.0 */
/* Incremental decoding of experts: row kernels, products and sums over ranks on the slots that the tokens of a stretch
 * have, a call of the back end for every expert that has some. */
#include <assert.h>
#include "device.h"
#include "state.h"

/* Rows first .. end - 1 of all experts' slots that the chosen ones of an expert are; none: end is 0. */
typedef struct slot_range {
  int64_t first, end;
} slot_range;

/* Widens the range of the slot's expert to it, where that is one of this rank's. */
static void take_slot(const zpr_chosen *chosen, int32_t number, slot_range *range) {
  int64_t slot = number - chosen->first;
  if (number < 0 || slot < 0 || slot >= chosen->experts * chosen->slots) return;
  slot_range *r = &range[slot / chosen->slots];
  if (r->end == 0) *r = (slot_range){slot, slot + 1};
  assert(slot >= r->first);
  if (slot >= r->end) r->end = slot + 1;
}

/* The ranges of all experts. A GPU is waited for here: the host must know how many rows there are. */
static void find_ranges(zpr *c, const zpr_chosen *chosen, slot_range *range) {
  assert(chosen->experts <= ZPK_MAX_EXPERTS);
  for (int64_t e = 0; e < chosen->experts; e++) range[e] = (slot_range){0, 0};
  int64_t most = zpr_window_bytes(c) / (int64_t)sizeof(int32_t);
  for (int64_t at = 0; at < chosen->n; at += most) {
    int64_t n = chosen->n - at < most ? chosen->n - at : most;
    void *there = (void *)(uintptr_t)(chosen->slot + at);
    const int32_t *number = zpr_window_open(c, there, n * (int64_t)sizeof(int32_t), true);
    for (int64_t i = 0; i < n; i++) take_slot(chosen, number[i], range);
    zpr_window_close(c);
  }
}

void zpr_chosen_rows(zpr *c, const zpr_rows_call *call, zpr_chosen chosen) {
  slot_range range[ZPK_MAX_EXPERTS];
  find_ranges(c, &chosen, range);
  zpr_rows_call some = *call;
  for (int64_t e = 0; e < chosen.experts; e++) {
    if (range[e].end == 0) continue;
    some.first = range[e].first;
    some.rows = range[e].end - range[e].first;
    zpr_rows(c, &some);
  }
}

void zpr_chosen_gemm(zpr *c, bool trans, int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w, void *y,
                     int64_t y_ld, zpr_chosen chosen) {
  slot_range range[ZPK_MAX_EXPERTS];
  int64_t size = zpk_bytes(c->program->dtype);
  find_ranges(c, &chosen, range);
  for (int64_t e = 0; e < chosen.experts; e++)
    if (range[e].end > 0)
      zpr_gemm(c, false, trans, range[e].end - range[e].first, n, k, (const char *)x + range[e].first * x_ld * size,
               x_ld, (const char *)w + e * k * n * size, trans ? k : n, false, (char *)y + range[e].first * y_ld * size,
               y_ld);
}

void zpr_chosen_all_reduce(zpr *c, void *x, int64_t cols, zpr_chosen chosen) {
  slot_range range[ZPK_MAX_EXPERTS];
  assert(chosen.first == 0); /* all tensor ranks have all experts, and so the same ranges */
  find_ranges(c, &chosen, range);
  for (int64_t e = 0; e < chosen.experts; e++)
    if (range[e].end > 0)
      zpr_all_reduce(c, ZPR_TENSOR, (char *)x + range[e].first * cols * zpk_bytes(c->program->dtype),
                     (range[e].end - range[e].first) * cols);
}
