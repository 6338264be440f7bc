/* Private: parameters that may be off the device. A rank's parameters are numbered as the flat buffers, with ZeRO 3 as
 * its shards; the last stage->params_away.elements of them live in the host arena. Units get them through a ring of two
 * buffers (zpr_fetch_params, zpr_gather_params). */
#ifndef ZPLAN_RT_PARAM_HOME_H
#define ZPLAN_RT_PARAM_HOME_H

#include "device.h"

/* How many parameters the rank has, and how many of them are on the device. */
int64_t zpr_params_held(const zpr *c);
static inline int64_t zpr_params_here(const zpr *c) { return zpr_params_held(c) - c->stage->params_away.elements; }
/* Elements off the device stand here; `at` >= zpr_params_here. */
char *zpr_param_away_at(zpr *c, int64_t at);
/* Host access between steps, as zpr_window_open, to elements from `at` on; *count becomes what there is at once. */
void *zpr_params_open(zpr *c, int64_t at, int64_t *count, bool to_read);
void zpr_params_close(zpr *c);
void zpr_params_zero(zpr *c);
/* The optimizer on the device over the parts of blocks whose parameters are off it and whose state is not, by pieces
 * through the ring. */
void zpr_update_params_away(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule);

#endif
