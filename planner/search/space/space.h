/* SPDX-License-Identifier: Apache-2.0 */
/* The space: all degrees, all points of some degrees, and the shares of state off the device. */
#ifndef ZPLAN_SEARCH_SPACE_H
#define ZPLAN_SEARCH_SPACE_H

#include "progress.h"

/* ---- allowed.c: what the plan block allows ---- */
/* Only this value is allowed. */
bool zp_limit_is_pin(const zp_limit *limit);
/* Is a trainer generated for such values, or may they be considered without? Their constraint is not asked. */
bool zp_search_considers(const zp_search_input *in, const zp_limit *limit, bool plain);
/* Is the value in the space? `plain`: on CPU clusters, too, where no constraint names it. Values that a constraint
 * excludes are counted. */
bool zp_search_takes(zp_search_progress *progress, const zp_limit *limit, int value, bool plain);
/* zp_search_takes for schedules, some of which are considered only where they are named. */
bool zp_search_takes_schedule(zp_search_progress *progress, zp_schedule schedule);
/* Modes that the plan block allows; *excluded: how many others there would be. */
zp_mode_set zp_allowed_modes(const zp_search_input *in, int tensor, bool sequence, int *excluded);
/* The modes of all stages and layers where the plan block pins them; none: it does not. */
zp_mode_set zp_pinned_modes(const zp_constraints *constraints);
/* The choice's stages get them. Requires: they are pinned, for so many stages. */
void zp_pin_modes(zp_arena *arena, const zp_constraints *constraints, zp_choice *choice);
/* May parts of some class leave the device in a plan of the space? */
bool zp_some_state_may_leave(const zp_search_input *in);

/* ---- contexts.c ---- */
/* May the choice's context ranks exchange so? Without such ranks: heads alone. */
bool zp_may_exchange(const zp_spec *spec, const zp_choice *choice, zp_context_by by);

/* ---- degrees.c ---- */
/* All degrees that the constraints allow, with bounds by their products alone; those that leave devices idle as one.
 * Counts the rest. */
void zp_search_degrees(zp_search_progress *progress);
/* Those that leave devices idle, one by one, behind progress->degrees. */
void zp_open_idle(zp_search_progress *progress);
/* Degrees whose expert groups are open become some for each of their sizes, after progress->degrees. Counts the
 * rest. */
void zp_open_groups(zp_search_progress *progress, const zp_degrees *degrees);
/* The bound of their procedures. False: there are none, or they do not fit, which is counted. Requires: expert groups
 * of a known size. */
bool zp_measure_degrees(zp_search_progress *progress, zp_degrees *degrees);
/* Seconds of any plan with this tensor and context degree and micro-batch, at least, whatever it runs. O(1). */
double zp_bound_trip(const zp_search_cache *s, const zp_choice *choice, int64_t microbatch);

/* ---- losses.c ---- */
/* The next larger number of chunks of the loss that is considered for the choice's micro-batch; 0: there is none. */
int zp_next_loss_chunks(const zp_search_cache *s, const zp_choice *choice, int after);
/* The constraints allow none: s->reason says which there are. */
void zp_explain_loss_chunks(zp_search_cache *s);
/* Why no plan of these procedures with the loss in chunks can be had, as far as the same with the loss at once say;
 * ZP_REJECT_NONE: one may. */
zp_rejection zp_refuse_in_chunks(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes);

/* ---- space.c ---- */
/* Some degrees become choices of rank order, micro-batch, sequence and parts of the loss, and these the procedures that
 * they may run: counts candidates and rejections, keeps what may fit and may be faster than progress->cutoff_s. With
 * progress->keeps_all they become points at once. */
void zp_search_expand(zp_search_progress *progress, const zp_degrees *degrees);
void zp_open_modes(zp_search_progress *progress, const zp_point *choice);
/* Procedures of the same choice with layers in parts; what procedures, a schedule of them, consist of: in the same
 * way. */
void zp_open_inside(zp_search_progress *progress, const zp_point *whole);
void zp_open_schedules(zp_search_progress *progress, const zp_point *procedures);
void zp_open_zero(zp_search_progress *progress, const zp_point *schedule);
/* A schedule is not opened: progress->unsearched_s follows. */
void zp_note_open_zero(zp_search_progress *progress, const zp_point *schedule);

/* ---- homes.c ---- */
/* Why devices, or these, hosts and disks together, have no room for what all stages need, in O(1); ZP_REJECT_NONE: they
 * may have. smallest: of zp_smallest. */
zp_rejection zp_refuse_floor(const zp_search_cache *s, const zp_point *smallest);
/* Have they together room for the layers on every stage? */
bool zp_all_tiers_have_room(zp_search_cache *s, const zp_point *smallest);
/* The choice with all that lowers its memory and is in the space: no choice of its schedule needs less. */
zp_choice zp_smallest(const zp_search_cache *s, const zp_choice *choice);
/* The points of one choice in all modes together and in each of them by itself (none where modes are pinned). */
typedef struct zp_mode_points {
  zp_point all, one[ZP_MOST_MODES];
} zp_mode_points;
zp_mode_points zp_find_modes(zp_search_cache *s, const zp_point *all);
/* The point of another choice of the same procedures. */
zp_point zp_with_choice(const zp_search_cache *s, const zp_point *like, const zp_choice *choice);
/* The points of a choice, given those of another one of the same procedures: like zp_search_expand. */
void zp_try_homes(zp_search_progress *progress, const zp_choice *choice, const zp_mode_points *like);
/* Raise the least share and the bound of a family: by the room that the stages have together; by cuts that fit on the
 * devices. Why none of its points fits; ZP_REJECT_NONE: some may. */
zp_rejection zp_bound_family(zp_search_progress *progress, zp_point *family);
zp_rejection zp_fit_family(zp_search_progress *progress, zp_point *family);
/* Seconds between the micro-batches and the end of the step of any of its points, at least. Requires: its share. */
double zp_least_family_end(zp_search_cache *s, const zp_point *family);
/* What a family consists of, in the same way as zp_search_expand: points, or families of one class. */
void zp_open_family(zp_search_progress *progress, const zp_point *family);

/* ---- unsearched.c ---- */
/* Are the point's cuts stated ones, and others left out? */
bool zp_has_stated_cuts(const zp_search_cache *s, const zp_point *point);
/* What is left out: cuts of a point; of all points of a measured family; of all points of a choice, whose homes and
 * ZeRO stage are those of zp_smallest. */
typedef enum zp_unsearched { ZP_UNSEARCHED_POINT, ZP_UNSEARCHED_FAMILY, ZP_UNSEARCHED_CHOICE } zp_unsearched;
/* May progress->unsearched_s fall? Quick. */
bool zp_may_note_unsearched(const zp_search_progress *progress, const zp_point *point, zp_unsearched what);
/* progress->unsearched_s follows, whatever becomes of the point. */
void zp_note_unsearched(zp_search_progress *progress, const zp_point *point, zp_unsearched what);

/* ---- miss.c ---- */
/* Notes the point that needs the least beyond what there is. Requires: no point fits. */
void zp_note_misses(zp_search_progress *progress);

#endif
