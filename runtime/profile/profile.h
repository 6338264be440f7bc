/* SPDX-License-Identifier: Apache-2.0 */
/* Private: where the time of a training step goes, on this rank (profile.c), and how it is told (profile_log.c).
 *
 * A rank is always in exactly one step: a step of a procedure, or a fixed one (rt_tables.h). Every change of step is a
 * point in time, and the time between two points belongs to the step that began at the first. So the times of all steps
 * add up to the training step. */
#ifndef ZPLAN_RT_PROFILE_H
#define ZPLAN_RT_PROFILE_H

#include "internal.h"

/* Training steps of a process that are never measured unless --profile-steps names them: they touch memory for the
 * first time, and libraries make up their minds. */
enum { ZPR_PROFILE_WARMUP = 3 };

/* Collective, before the first training step: refuses what cannot be measured (Z0842). Does nothing without --profile.
 * `last`: the step that the run ends with. */
void zpr_profile_open(zpr *c, int64_t last);
void zpr_profile_close(zpr *c);
/* Around a training step. ms: how long it took. */
void zpr_profile_begin_step(zpr *c);
void zpr_profile_end_step(zpr *c, double ms);
/* Collective. Tells what was measured, once: when all steps that were asked for are done, and at the end of a run. */
void zpr_profile_tell(zpr *c, bool at_end);

/* Until zpr_leave, with what this returns: the fixed step. Inside one that ends a training step nothing changes. */
int zpr_profile_enter(zpr *c, zpr_fixed_step step);
void zpr_profile_leave(zpr *c, int before);
/* For the runtime's functions: no more than a look at a pointer where nothing is profiled. */
#define zpr_enter(c, step) ((c)->state->profile ? zpr_profile_enter((c), (step)) : -1)
#define zpr_leave(c, before) ((c)->state->profile ? zpr_profile_leave((c), (before)) : (void)0)

/* ---- between the two files ---- */

/* A stretch of the last measured step: of an action of the schedule, or of a fixed step. */
typedef struct zpr_span {
  double begin_ns, end_ns; /* from the begin of the step */
  int32_t microbatch;
  int16_t chunk;
  char action;  /* 'F', 'B', 'I', 'W'; 0: the fixed step */
  int8_t fixed; /* zpr_fixed_step */
} zpr_span;
enum { ZPR_MOST_SPANS = 2048 };

typedef struct zpr_step_time {
  double ns; /* of all measured training steps */
  int64_t calls;
} zpr_step_time;

/* What this rank has measured. */
typedef struct zpr_measured {
  int n;                      /* steps of the program's table, then the fixed ones */
  zpr_step_time *time;        /* [n] */
  int64_t steps;              /* training steps that were measured */
  double with_ms, without_ms; /* medians of the steps that were measured, and of the others; 0: there are none */
  int n_spans;
  bool spans_cut; /* there were more than ZPR_MOST_SPANS */
  const zpr_span *spans;
} zpr_measured;

/* Collective: the JSON line and the lines on the screen. */
void zpr_profile_log(zpr *c, const zpr_measured *measured);

#endif
