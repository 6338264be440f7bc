/* SPDX-License-Identifier: Apache-2.0 */
/* The current ranks, the variants that they run, and what the stages of a point run. */
#ifndef ZPLAN_SEARCH_PROCEDURES_H
#define ZPLAN_SEARCH_PROCEDURES_H

#include "cache.h"

/* ---- ranks.c ---- */
/* From now on plans use so many ranks. */
void zp_search_use(zp_search_cache *s, int ranks);
/* What ranks of the current machine may use. */
void zp_use_limits(zp_search_cache *s);
/* Index of the tensor groups of that size among the current ranks; -1 when they are not known yet. */
int zp_find_groups(const zp_search_cache *s, int tensor);
bool zp_same_link(const zp_group_link *a, const zp_group_link *b);
bool zp_same_links(const zp_exchange_links *a, const zp_exchange_links *b);
/* Index of the tensor groups of that size, made where they are not known yet. */
int zp_use_groups(zp_search_cache *s, int tensor);
/* What the ranks of a machine may use. */
zp_limits zp_machine_limits(const zp_search_input *in, const zp_machine *machine);
/* Several node types: of a rank on the smallest of them. */
zp_limits zp_search_limits(const zp_search_cache *s);
/* Limits of one stage: where its node types have more than the smallest, it may use so much more. */
zp_limits zp_limits_of_stage(zp_search_cache *s, const zp_choice *choice, int stage, const zp_limits *smallest);
/* Where the stages of a choice stand; clusters of several node types only. */
const zp_stage_nodes_memo *zp_find_stage_nodes(zp_search_cache *s, const zp_choice *choice);

/* ---- chunks.c ---- */
/* What stage `stage` of a cut has of every chunk: part[chunks]. */
void zp_parts_of_stage(const zp_choice *choice, int stage, const int64_t *cut, zp_units *part);
/* Is every cut of the point in the space? The choice says what may leave the device. */
bool zp_every_chunk_cut(const zp_search_cache *s, const zp_point *point);
/* Are its ways to cut so few that branch and bound settles them for certain? */
bool zp_few_chunk_cuts(const zp_search_cache *s, const zp_point *point);

/* ---- variant.c ---- */
/* Index of the variant of these modes, made on demand; -1 when the model cannot be split or lowered that way
 * (s->reason). Of the choice only tensor, sequence, microbatch and loss_chunks
 * count. */
int zp_search_variant(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes);
/* The links of the choice's expert and context groups. Several node types: of all of them. */
const zp_exchange_links *zp_links_of_exchanges(zp_search_cache *s, const zp_choice *choice);
/* May variants of groups on other links be priced again by their exchanges alone? */
bool zp_may_price_again(const zp_search_cache *s);
/* What a variant takes on the links of the choice, which has expert or context groups: all that zp_measure_units fills
 * in, in *v, from s->arena. It is no variant of the search. Requires: zp_may_price_again. */
void zp_price_variant_again(zp_search_cache *s, const zp_choice *choice, int variant, zp_variant *v);
/* What all stages of a choice run, from s->arena. Requires: variants of their modes. */
const zp_lowered **zp_search_stages(zp_search_cache *s, const zp_choice *choice);

/* The variant of one mode with the prices of a stage's node types; itself in a plain cluster. */
const zp_variant *zp_on_stage(zp_search_cache *s, const zp_choice *choice, const zp_variant *of_mode, int stage);
/* The variant of the same mode for a set of node types. */
const zp_variant *zp_on_types(const zp_search_cache *s, const zp_variant *of_mode, zp_node_set types);

/* ---- measure.c ---- */
/* Fills in what units and all of them together take: the least of these modes, [n]. Requires: v->lowered is one. */
void zp_measure_units(zp_search_cache *s, zp_variant *v, zp_lowered *const *modes, int n);
/* The seconds of its first units are known from now on. */
void zp_make_sums(zp_search_cache *s, int variant);
/* What a stage takes that runs these units, at least. One more unit always adds at least what it takes by itself in
 * prefix_s. Requires: sums, first < end. */
zp_part_seconds zp_stage_seconds(const zp_variant *v, int64_t first, int64_t end);
/* Work of a mixed stage, where that of a unit is as prefix_s has it. */
double zp_mixed_work(const zp_variant *v, int64_t first, int64_t end);
/* Work of any stage, the same way. */
static inline double zp_stage_work(const zp_variant *v, int64_t first, int64_t end) {
  return v->rest ? zp_mixed_work(v, first, end) : v->prefix_s[end] - v->prefix_s[first];
}

/* ---- mixed.c ---- */
/* Layers in a range of units: of repeats, a piece of one counts as a layer. */
int64_t zp_stage_layers(const zp_lowered *lowered, int64_t first, int64_t end);
/* The unit from which on a range's layers run the mixed variant's rest. */
int64_t zp_stage_rest(const zp_variant *mixed, int64_t first, int64_t end);
/* The variant of a mixed stage, made on demand. Requires: sums of both. */
const zp_variant *zp_mixed_variant(zp_search_cache *s, const zp_variant *first, const zp_variant *rest, int64_t layers);

/* ---- modes.c ---- */
/* zp_search_point for bounds of all units together: its variants may have no seconds of the first units. */
bool zp_measure_point(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes, zp_point *point);
/* Its variants have them from now on. */
void zp_make_point_sums(zp_search_cache *s, const zp_point *point);
/* The point of a choice whose stages may have these modes; false when none of them can be lowered. */
bool zp_search_point(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes, zp_point *point);
/* Is every mode of the point at most as long as the next one, forward and backward, in every unit? Then no plan of the
 * same cut is faster than that with the fastest mode that fits on every stage. */
bool zp_modes_are_ordered(zp_search_cache *s, const zp_point *point);
/* What a stage with these parts runs: the fastest mode that fits, or a mix of modes with less work than that has; NULL
 * when it does not stay within the limits. */
const zp_variant *zp_stage_variant(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part,
                                   const zp_limits *limits);
/* Is there one? */
bool zp_stage_fits(zp_search_cache *s, const zp_point *point, int stage, const zp_units *part, const zp_limits *limits);
/* May layers of one stage of the point recompute differently, where that is not pinned? */
static inline bool zp_may_mix(const zp_search_cache *s, const zp_point *point) {
  return s->in->mixes && point->n_modes > 1 && point->choice.pipeline > 1 && zp_chunks(&point->choice) == 1 &&
         !zp_has_types(s) && !zp_choice_has_modes(&point->choice) && zp_all_on_device(&point->choice);
}
/* zp_stage_variant of all stages of a cut, [pipeline]. False when one does not fit. */
bool zp_cut_variants(zp_search_cache *s, const zp_point *point, const zp_limits *limits, const int64_t *cut,
                     const zp_variant **stage);
/* The choice with that cut (borrowed) and the modes of these variants, from s->arena. */
zp_choice zp_choice_of_cut(zp_search_cache *s, const zp_point *point, int64_t *cut, const zp_variant *const *stage);

#endif
