/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: 1-bit LAMB (one_bit_lamb.c). */
#ifndef ZPLAN_RT_COMPRESS_LAMB_H
#define ZPLAN_RT_COMPRESS_LAMB_H

#include <stdio.h>
#include "one_bit_shards.h"
#include "device.h"

/* A number for every tensor (lamb.h), the same on all ranks. */
typedef struct zpr_coefficients {
  int64_t n;
  double *average; /* of LAMB's ratios until the variance froze; 0: of none */
  double *factor;  /* how far the ratio has moved since */
  bool followed;   /* the variance as it would be goes on from what the stage has; otherwise it begins as it froze */
} zpr_coefficients;
/* What a run with 1-bit LAMB has; made when it is first asked for. */
zpr_coefficients *zpr_coefficients_of(zpr *c);
/* After a step of LAMB, by the ratios of all tensors. */
void zpr_coefficients_average(zpr *c, const double *ratio);

/* ---- checkpoints: a member of the manifest ---- */
typedef struct zpr_saved_coefficient {
  char name[256];
  double average, factor;
} zpr_saved_coefficient;
typedef struct zpr_saved_coefficients {
  int64_t n;
  zpr_saved_coefficient *item; /* owned; for the length of the run */
} zpr_saved_coefficients;
void zpr_coefficients_write(zpr *c, FILE *out);
struct zpr_json;
bool zpr_coefficients_read(zpr *c, struct zpr_json *json, zpr_saved_coefficients *saved);
/* Rank 0: Z0813 when a run whose variance is frozen lacks one. */
bool zpr_coefficients_check(zpr *c, const zpr_saved_coefficients *saved, bool frozen, zpr_error *error);
/* From rank 0's to all ranks'. followed: the errors' file was read. Collective. */
void zpr_coefficients_resume(zpr *c, const zpr_saved_coefficients *saved, bool followed);

/* ---- by the back ends: cpu/one_bit_lamb.c, cuda/one_bit_lamb.c ---- */
/* Goes on with the variance as it would be; most[i]: of block i, the largest ratio. By momentum (zpk_lamb_fresh), or
 * with all ranks' records of what this one owns, and then momentum does as well (zpk_lamb_owner). */
void zpr_lamb_fresh(zpr *c, zpr_block_list *list, const zpk_update *rule, double fresh_bias2, const void *records,
                    double *most);
void zpr_lamb_frozen(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio);

#endif
