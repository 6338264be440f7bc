/* SPDX-License-Identifier: Apache-2.0 */
/* Logits of a forward pass for whoever looks at them: of a vocabulary that is split over the tensor ranks, all of
 * it. */
#include "device.h"
#include "state.h"

#include <stdlib.h>

/* Collective over the tensor axis where somebody looks, which all ranks then do. */
void zpr_show(zpr *c, const zpr_looked *part) {
  if (!zpr_looks(c, part->loss)) return;
  zpr_looked seen = *part;
  void *whole = NULL;
  if (seen.V < seen.classes) {
    int64_t count = seen.rows * seen.V;
    seen.ranks = c->program->tensor;
    seen.logits = whole = zpr_alloc(c, (size_t)(count * seen.ranks), (size_t)zpk_bytes(c->program->dtype));
    zpr_all_gather(c, ZPR_TENSOR, part->logits, count, whole);
  }
  c->state->look(c->state->look_arg, &seen);
  free(whole);
}

void zpr_show_logits(zpr *c, int loss, const void *logits, int64_t V, int64_t classes) {
  zpr_show(c, &(zpr_looked){.loss = loss, .logits = logits, .ranks = 1, .rows = 1, .V = V, .classes = classes});
}
