/* SPDX-License-Identifier: Apache-2.0 */
/* Private: where parameters and gradients stand that may be off the device.
 *
 * What a rank updates is numbered 0 .. zpr_shard_elements - 1: its own elements, as the optimizer's state has them. Of
 * a class the last stage->..._offloaded.elements of these are off the device. Where a rank holds a class whole whose
 * owners are several ranks (parameters below ZeRO 3, gradients below ZeRO 2), it has every owner's elements, and of
 * each the same are off the device. So a bucket is shards of equal size, one after the other, of which the first
 * elements are on the device and the last ones off it, and either side has its parts of them as neighbours: what owners
 * share out or collect of a bucket is one collective a side. */
#ifndef ZPLAN_RT_HOME_H
#define ZPLAN_RT_HOME_H

#include "device.h"

typedef enum zpr_class { ZPR_CLASS_PARAMS, ZPR_CLASS_GRADS, ZPR_CLASSES } zpr_class;

/* What this rank has of a bucket. */
typedef struct zpr_bucket_home {
  const zpr_run *run; /* whose instance i it is */
  int64_t i;
  int shards, mine;   /* that it has: 1, or every owner's; which of them it updates */
  int64_t size, here; /* elements of a shard, and how many of these are on the device */
  int64_t own, flat;  /* its first own element: its number, and that in the flat buffers */
  int64_t device;     /* shards * here neighbours in the device's buffer, from this element on */
  int64_t host;       /* shards * (size - here) in what is off the device, from this element on */
} zpr_bucket_home;
/* Where instance i of a run is. Without ZeRO 1 to 3, and with nothing off the device, a run need be no bucket: then
 * only own and flat mean anything. */
zpr_bucket_home zpr_home_of_bucket(zpr *c, zpr_class class, const zpr_run *run, int64_t i);

/* One part of every shard, alike in all, between where shards stand one after the other and where the part stands on
 * its side: n copies of `count` elements, from element `first` on and `stride` apart there, one after the other from
 * `at` on here. Where the part is all of every shard they are one copy. */
typedef struct zpr_side {
  int n; /* 0: nothing is on this side */
  int64_t first, stride, count, at;
} zpr_side;
zpr_side zpr_side_of(const zpr_bucket_home *bucket, bool offloaded);

/* Own elements that are on the device. */
int64_t zpr_own_here(const zpr *c, zpr_class class);
/* Elements of the class that the rank holds; those of them that are on the device. */
int64_t zpr_held(const zpr *c, zpr_class class);
int64_t zpr_held_here(zpr *c, zpr_class class);

/* Own elements [begin, end) that are neighbours everywhere. Element e < zpr_own_here stands at e + here[class] of the
 * device's buffer, others at e + offloaded[class] of what is off it; among all parameters that the rank holds it is e +
 * held. */
typedef struct zpr_stretch {
  int64_t begin, end;
  int64_t here[ZPR_CLASSES], offloaded[ZPR_CLASSES], held;
} zpr_stretch;
/* All own elements, in their order. Made once, at the start; freed with the update. */
typedef struct zpr_stretches {
  int64_t n;
  zpr_stretch *item;
} zpr_stretches;
zpr_stretches zpr_find_stretches(zpr *c);
const zpr_stretch *zpr_stretch_of(const zpr_stretches *all, int64_t own);
/* What this rank updates of a parameter of instance i of a run, as the device's buffers have it, all of it there;
 * empty: nothing. *first: of the elements that the rank's share of the parameter has. */
zpr_block zpr_own_block(zpr *c, const zpr_stretches *all, const zpr_run *run, int64_t i, const zpr_param *param,
                        int64_t *first);
/* What of a block of own elements comes before own element `end`, as the device's buffers have it; not counted where
 * that is nothing. */
zpr_block zpr_block_here(const zpr_stretches *all, const zpr_block *own, int64_t end);

#endif
