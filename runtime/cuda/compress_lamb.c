/* 1-bit LAMB is refused on GPUs when a plan is made (planner/program/moves/signs.c). */
#include "compress_lamb.h"
#include <assert.h>

void zpr_lamb_fresh(zpr *c, zpr_block_list *list, const zpk_update *rule, double fresh_bias2, double *most) {
  (void)c, (void)list, (void)rule, (void)fresh_bias2, (void)most;
  assert(!"no plan has it");
}

void zpr_lamb_frozen(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio) {
  (void)c, (void)list, (void)rule, (void)ratio;
  assert(!"no plan has it");
}
