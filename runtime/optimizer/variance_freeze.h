/* SPDX-License-Identifier: Apache-2.0 */
/* Private: when 1-bit Adam freezes its variance (variance_freeze.c). */
#ifndef ZPLAN_RT_VARIANCE_FREEZE_H
#define ZPLAN_RT_VARIANCE_FREEZE_H

#include <stdio.h>
#include "internal.h"

enum { ZPR_NORMS = 64 };

/* What is known of the variance while the step of the switch is looked for; the same on all ranks. */
typedef struct zpr_variance_freeze {
  int64_t at;               /* applied steps after which it stays as it is; 0: not known yet */
  int64_t updates;          /* of the variance that are counted here */
  double norm;              /* the sum of its elements after them */
  double before[ZPR_NORMS]; /* that sum after earlier updates, a ring; 0: not known */
  double change;            /* that let it freeze: 1 less the ratio of the smaller norm to the larger */
} zpr_variance_freeze;

/* Is it 1-bit Adam, at whatever step it begins to compress? */
static inline bool zpr_is_one_bit(const zpr_program *p) {
  return p->freeze_step > 0 || p->freeze_threshold > 0 || p->n_phases > 0;
}
/* Updates that lie between the two norms that are compared. */
int64_t zpr_variance_freeze_span(const zpr_program *program);
/* After an update of plain Adam by gradients of this norm, clipped as they were, which all ranks know alike. */
void zpr_variance_freeze_count(zpr *c, double norm);

/* Tells of the switch: after the last step of plain Adam. */
void zpr_variance_freeze_report(zpr *c);

/* Members of a manifest, each with its comma: what a run needs to switch at the same step when it goes on. */
void zpr_variance_freeze_write(const zpr *c, FILE *out);
/* Reads the member `variance`. */

typedef struct zpr_variance {
  double beta2, norm, before[ZPR_NORMS]; /* before: the newest first */
  int64_t updates;
  int n; /* how many of `before` there are */
} zpr_variance;
struct zpr_json;
bool zpr_variance_freeze_read(struct zpr_json *json, zpr_variance *variance);
/* Goes on with what rank 0 has read of a checkpoint after `applied` steps, the last `frozen` of them with a frozen
 * variance; freezes_at 0: not decided in it. Collective. */
void zpr_variance_freeze_resume(zpr *c, const zpr_variance *variance, int64_t freezes_at, int64_t applied,
                                int64_t frozen);

#endif
