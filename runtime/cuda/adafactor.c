/* Adafactor is not built for GPUs: such plans are refused (frontend/driver/target.c). */
#include "adafactor.h"
#include <assert.h>
#include <stdlib.h>

zpr_adafactor *zpr_adafactor_open(zpr *c) {
  (void)c;
  assert(!"plans with adafactor on GPUs are refused");
  abort();
}

void zpr_adafactor_close(zpr_adafactor *a) { assert(!a), (void)a; }

void zpr_adafactor_update(zpr *c, zpr_adafactor *a, const zpk_update *rule, int64_t step) {
  (void)c, (void)a, (void)rule, (void)step;
  abort();
}
