/* 0/1 Adam is refused on GPUs when a plan is made (planner/program/moves/signs.c). */
#include "compress_local.h"
#include <assert.h>

void zpr_variance_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  (void)c, (void)blocks, (void)n, (void)rule;
  assert(!"no plan has it");
}

void zpr_local_add(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double weight) {
  (void)c, (void)blocks, (void)n, (void)rule, (void)weight;
  assert(!"no plan has it");
}

void zpr_local_weights(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, double total) {
  (void)c, (void)blocks, (void)n, (void)rule, (void)total;
  assert(!"no plan has it");
}

void zpr_local_mean(zpr *c, const zpr_block *blocks, int64_t n, double total) {
  (void)c, (void)blocks, (void)n, (void)total;
  assert(!"no plan has it");
}
