/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and texts of what the search rejects and why, each from its one list. */
#include <zplan/plan.h>

#include <assert.h>

double zp_certificate_gap(const zp_certificate *c) {
  assert(c->best_s >= 0);
  return c->best_s > 0 ? (c->best_s - c->bound_s) / c->best_s : 0;
}

const char *zp_rejection_key(zp_rejection r) {
  assert(r >= 0 && r < ZP_REJECT_COUNT);
  static const char *const key[] = {
#define ROW(name, k, text) k,
      ZP_REJECTIONS(ROW)
#undef ROW
  };
  return key[r];
}

const char *zp_cut_rule_key(zp_cut_pruning rule) {
  assert(rule < ZP_CUT_RULE_COUNT);
  static const char *const key[] = {
#define ROW(name, k) k,
      ZP_CUT_RULES(ROW)
#undef ROW
  };
  return key[rule];
}

const char *zp_rejection_text(zp_rejection r) {
  assert(r >= 0 && r < ZP_REJECT_COUNT);
  static const char *const text[] = {
#define ROW(name, k, t) t,
      ZP_REJECTIONS(ROW)
#undef ROW
  };
  return text[r];
}
