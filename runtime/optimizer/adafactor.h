/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: Adafactor (adafactor.c). */
#ifndef ZPLAN_RT_ADAFACTOR_H
#define ZPLAN_RT_ADAFACTOR_H

#include "device.h"
#include "host_walk.h"
#include "state.h"

/* What Adafactor keeps of a parameter whole: of a matrix means of its rows, then of its columns; of a vector all of
 * them, as columns. Tensors of several matrices have those of all of them one after the other. */
typedef struct zpr_statistics {
  int64_t rows, cols; /* numbers of either */
  int64_t height, width, elements;
} zpr_statistics;
zpr_statistics zpr_statistics_of(const zpr_param *param);
/* Where those of parameter k of instance i of a run of this stage begin, in elements of stage->statistics. */
int64_t zpr_statistics_at(const zpr *c, const zpr_run *run, int64_t i, int k);

/* ---- by the back ends: cpu/adafactor.c, cuda/adafactor.c ---- */
/* A parameter of an instance, and what this rank updates of it. */
typedef struct zpr_factored {
  const zpr_run *run;
  const zpr_param *param;
  zpr_statistics has;
  int64_t state;                    /* its first statistic */
  int64_t sums;                     /* its first sum among those of the instance */
  int64_t number;                   /* lamb.h */
  zpr_block own;                    /* what this rank updates, */
  int64_t first;                    /* from this element of its share of the parameter on */
  zpr_share share;                  /* of the tensor rank */
  int64_t bucket_begin, bucket_end; /* own elements of the bucket that it is in, where runs are buckets */
  bool counted;
  bool without_state; /* of `own` gradients alone are on the device */
} zpr_factored;
/* Elements [begin, end) of what the rank updates. */
zpr_factored zpr_factored_part(const zpr_factored *tensor, int64_t begin, int64_t end);
/* What is no padding of these elements: neighbours [begin, end), which are neighbours in the tensor from element `at`
 * on. */
typedef void zpr_on_neighbours(void *arg, int64_t begin, int64_t end, int64_t at);
void zpr_factored_walk(const zpr_factored *tensor, int64_t begin, int64_t end, zpr_on_neighbours *on, void *arg);
enum { ZPR_FACTORED_PIECE = 65536 }; /* elements that a thread of a CPU rank takes */

/* Everything but `squares` is on the device. Sums of squared gradients of n tensors of an instance, by row and column;
 * they are zero before. */
void zpr_adafactor_sums(zpr *c, const zpk_update *rule, const zpr_factored *tensors, int n, double *sums);
/* to[i] = from[i] + from[count + i] + .., of n ranks. */
void zpr_adafactor_add(zpr *c, double *to, const double *from, int64_t count, int n);
/* New statistics: beta2 of the old ones, the rest from the sums and eps. */
void zpr_adafactor_means(zpr *c, const zpk_update *rule, const zpr_factored *tensor, const double *sums);
/* What gradients are multiplied by: 1 / sqrt(row / mean of the matrix' rows), then 1 / sqrt(col). */
void zpr_adafactor_factors(zpr *c, const zpr_factored *tensor, void *to);
/* Squares of parameters, and of updates; without_state: of updates alone. room: 16 bytes or more of the device; pieces:
 * [pieces of the tensor][2]. */
typedef struct zpr_adafactor_room {
  void *free;
  int64_t free_bytes;
  double *pieces;
} zpr_adafactor_room;
void zpr_adafactor_squares(zpr *c, const zpk_update *rule, const zpr_factored *tensor, const void *factors,
                           const zpr_adafactor_room *room, double squares[2]);
/* New parameters: `factor` of the update; lr only decays. */
void zpr_adafactor_apply(zpr *c, const zpk_update *rule, const zpr_factored *tensor, const void *factors,
                         double factor);

/* ---- of what is off the device: host_adafactor.c ---- */
typedef struct zpr_factored_offloaded zpr_factored_offloaded;
/* items: the n tensors of this stage, whole; borrowed. most_sums: of an instance. NULL: nothing is offloaded. */
zpr_factored_offloaded *zpr_factored_offloaded_open(zpr *c, const zpr_host_update *offloaded,
                                                    const zpr_stretches *stretches, const zpr_factored *items,
                                                    int64_t n, int64_t tensors, int64_t most_sums);
void zpr_factored_offloaded_close(zpr_factored_offloaded *offloaded);
/* Adds sums of squared gradients that are off the device to those of n tensors of an instance, of which there are
 * `count` with what fills them up; after them on the device is room for as many. */
void zpr_factored_offloaded_sums(zpr *c, zpr_factored_offloaded *offloaded, const zpk_update *rule,
                                 const zpr_factored *items, int n, double *sums, int64_t count);
/* Keeps the factors of a tensor, which are on the device. */
void zpr_factored_offloaded_keep(zpr *c, zpr_factored_offloaded *offloaded, const zpr_factored *item,
                                 const void *factors);
/* Adds squares of parameters that are off the device, and of updates whose gradients are, to those of their tensors. */
void zpr_factored_offloaded_squares(zpr *c, zpr_factored_offloaded *offloaded, const zpk_update *rule, double *squares);
/* New parameters. of_item: learning rate and factor by the items' numbers, as the device has them. */
typedef struct zpr_factored_step {
  double lr, factor;
} zpr_factored_step;
void zpr_factored_offloaded_apply(zpr *c, zpr_factored_offloaded *offloaded, const zpk_update *rule,
                                  const zpr_factored_step *of_item, zpr_between *between, void *arg);

#endif
