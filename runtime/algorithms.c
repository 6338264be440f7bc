/* SPDX-License-Identifier: Apache-2.0 */
/* With which algorithms a device's products are computed, where a library chooses them: told in the log, kept in
 * checkpoints, and compared when a run goes on, because other algorithms add in another order. All ranks' are folded
 * into one number; of another plan nothing can be said, so only runs of the same one are compared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "device.h"
#include "state.h"

/* One line of the log for every product of this rank, which is rank 0. */
static void log_products(zpr *c) {
  char line[512], text[384];
  snprintf(line, sizeof line, "{\"event\": \"products\", \"with\": \"%s\"}", c->state->algorithms);
  zpr_log_event(c, line);
  for (int i = 0; zpr_device_product_text(c, i, text, sizeof text); i++) {
    snprintf(line, sizeof line, "{\"event\": \"product\", %s}", text);
    zpr_log_event(c, line);
  }
}

static void compare(zpr *c) {
  const char *before = c->state->algorithms_before, *now = c->state->algorithms;
  char plan[80];
  snprintf(plan, sizeof plan, "plan %s,", c->program->plan_hash);
  if (!strstr(before, plan) || strcmp(before, now) == 0) return;
  zpr_log_note(c,
               "warning: products are not computed as before the checkpoint, so losses may differ in their last "
               "digits; then: %s; now: %s",
               before, now);
}

void zpr_algorithms_note(zpr *c) {
  zpr_products_used mine = {0};
  zpr_device_products(c, &mine);
  if (!mine.by[0]) return;
  uint64_t *all = zpr_alloc(c, (size_t)c->ranks, sizeof *all), hash = UINT64_C(14695981039346656037);
  zpr_world_gather(c, &mine.algorithms, sizeof *all, all);
  for (int r = 0; r < c->ranks; r++)
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ (all[r] >> (8 * byte) & 0xff)) * UINT64_C(1099511628211);
  free(all);
  snprintf(c->state->algorithms, sizeof c->state->algorithms, "plan %s, %s, algorithms %016" PRIx64,
           c->program->plan_hash, mine.by, hash);
  if (c->rank != 0) return;
  log_products(c);
  compare(c);
}
