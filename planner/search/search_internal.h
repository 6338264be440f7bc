/* Shared inside this folder. A *point* is everything a plan decides but the cuts; for every point the cuts are solved.
 */
#ifndef ZPLAN_SEARCH_INTERNAL_H
#define ZPLAN_SEARCH_INTERNAL_H

#include <zplan/plan.h>
#include <zplan/search_numbers.h>
#include <zplan/cost.h>
#include <zplan/profile.h>

enum { ZP_MOST_CHUNKS = ZP_CUT_MOST_CHUNKS }; /* of a stage */

/* A set of modes that stages may have: bit zp_stage_mode. */
typedef unsigned zp_mode_set;
enum { ZP_MOST_MODES = 4 };
static inline zp_mode_set zp_set_of_mode(zp_stage_mode mode) { return 1u << mode; }

/* All points with the same procedures share one of these. One of several modes has the least of them in everything:
 * what is bounded with it is bounded for every stage. Seconds of the first units, [units + 1] each: */
typedef struct zp_variant {
  int tensor;
  int groups;                      /* index of the tensor groups that it is priced on */
  int expert;                      /* ranks of an expert group, 1: none */
  zp_group_link expert_link;       /* of more than one: all that prices know of where they stand in a plain cluster */
  int expert_stride, expert_ranks; /* several node types: from one rank of a group to the next; of the plan. Else 0 */
  bool sequence;
  int64_t microbatch;
  zp_mode_set modes;
  zp_node_set types;   /* node types that it is priced on; 0: all, of several the least */
  zp_stage_mode mode;  /* the one of `lowered` */
  bool fine;           /* units are parts of layers: with pieces */
  zp_lowered *lowered; /* priced; of several modes, one of them; NULL when it cannot be lowered */
  double *prefix_s;    /* forward and backward */
  double *unit_s;      /* the same of one iteration of a segment or piece, [segments] */
  double *kept_bytes, *part_elements, *part_spread; /* saved for one micro-batch; parameters, as below: of parts,
                                                     * [segments]. No piece has less than its parts together */
  double *forward_s;                                /* forward alone */
  double *input_s;          /* forward and the part of backward that yields gradients of inputs. Forward, this part and
                             * the rest, prefix_s - input_s, are each the least by itself */
  int64_t *elements_before; /* parameters that all data ranks hold, shared ones left out; one array a sharding */
  int64_t *spread_before;   /* the same of those that are spread over expert groups */
  double *longest_chunk_s;  /* [chunks]: the shortest possible longest of so many; 0: not known yet (chunk_cut.c);
                             * NULL: none is */
  double longest_s;         /* of one unit */
  double backward_share;    /* smallest share of backward in a unit's time */
  int64_t carry_elements;   /* smallest carry between two units */
  int64_t elements; /* parameters of the whole model on one tensor rank, shared ones once, held by all data ranks */
  int64_t spread_elements; /* the same of those that are spread over expert groups: what one rank has */
  int64_t saved_bytes;     /* of one micro-batch in all units */
} zp_variant;

/* What memory forces on stages that choose among modes (least_work.c). */
typedef struct zp_least_work {
  double unit_s[ZP_MOST_MODES];
  double *rooms;         /* [pipeline + 1][modes] */
  int64_t *units_before; /* [units + 1] */
  bool before, after;    /* may be counted of the stages before, after a known one */
} zp_least_work;

enum { ZP_LOOKS = 3 }; /* at a point until it is priced */
enum { ZP_ALL_CLASSES = 1 + ZP_STATE_COUNT };

/* Every stage of a point takes the fastest of its modes that fits (modes.c), or the one that is pinned. */
typedef struct zp_point {
  zp_choice
      choice;  /* cut: NULL; recompute: only where one mode is possible; stage_recompute: only where it is pinned */
  int variant; /* index, of all modes together */
  int n_modes, modes[ZP_MOST_MODES]; /* indices of their variants, fastest first */
  bool every_cut;                    /* of several chunks a stage are looked at; else stated ones (chunk_cut.c) */
  double work_s, longest_s;          /* of all units and of the longest stage, at least */
  zp_least_work *least;              /* while the point is priced; NULL: its variant says all */
  int64_t fits;                      /* number of what is remembered of it (fit_table.c); 0: nothing */
  double cut_s;                      /* of the stated cuts, whatever their memory and homes; 0: not known */
  double end_s;                      /* of a family: the end of its steps, at least */
  double bound_s;                    /* no plan of this point is faster */
  double seen_s;                     /* of the fastest cut that was simulated or bounded as if */
  int looks;                         /* how many it has had (price.c) */
  int open; /* 1 + the class of state whose share is open: a family of points; ZP_ALL_CLASSES: all of these (homes.c) */
} zp_point;

/* One way to divide the model over the ranks of a tensor and an expert group; NULL: there is none. */
typedef struct zp_sharding_try {
  int expert;
  bool sequence;
  const zp_sharding *sharding;
  ZP_VEC(const zp_lowered *) lowered[2];          /* one of every micro-batch and mode: layers whole, and in parts */
  int64_t *elements_before[2], *spread_before[2]; /* of its variants: layers whole, and in parts; NULL: not known yet */
} zp_sharding_try;

/* The procedures of some groups: variants of all modes together, of every micro-batch and sequence; why there are none.
 */
typedef struct zp_runnable {
  zp_ints least;
  zp_rejection why_none;
  bool incomplete; /* the search came near its memory budget: there may be more, and nothing is bounded by these */
} zp_runnable;

/* Tensor groups of one size, and the ranks that they consist of. Plans that use different numbers of ranks have the
 * same procedures and prices where these are equal. */
typedef struct zp_tensor_groups {
  int tensor;
  int64_t count; /* of groups; only where it decides which node types they stand on, else 0 */
  zp_machine machine;
  zp_group_link link;
  ZP_VEC(zp_sharding_try) shardings; /* made on demand */
  bool measured;                     /* the next is known */
  zp_runnable all;
} zp_tensor_groups;

/* Tensor x pipeline x data of a subspace that has not been looked into. */
typedef struct zp_degrees {
  int tensor, pipeline, data;
  double bound_s;      /* no plan of these degrees is faster */
  bool measured;       /* the bound is that of their procedures, and the next two are known */
  int64_t floor_bytes; /* no plan of these degrees needs less on its fullest stage */
  bool may_fit;        /* as far as a guess knows */
} zp_degrees;
typedef ZP_VEC(zp_degrees) zp_degrees_list;

/* Bytes of one rank. */
typedef struct zp_limits {
  int64_t device, host, nvme;
} zp_limits;

/* Clusters of several node types: where the stages of the choice at hand stand. Groups of many ranks are slow to look
 * through. */
typedef struct zp_places_memo {
  bool known;
  zp_choice choice;   /* tensor, pipeline, data and order count */
  zp_node_set *types; /* [pipeline]; room for the most stages */
  zp_limits *limits;  /* [pipeline] */
  zp_node_set *sets;  /* the different ones among `types` */
  int n_sets;
} zp_places_memo;

/* What the bounds of neighbouring points share: groups of thousands of ranks are slow to look through. */
typedef struct zp_step_end_memo {
  bool known;
  zp_choice choice;        /* degrees, expert groups and rank order count */
  const int64_t *elements; /* elements_before of the variants */
  double gather_s, reduce_s;
  zp_step_end update; /* with all state on the device */
} zp_step_end_memo;
typedef struct zp_moving_memo { /* of the point that was asked for last */
  bool known;
  zp_choice choice; /* degrees, expert groups, rank order, ZeRO stage and homes count */
  zp_relaxed_unit mean;
  zp_least_moving moving;
} zp_moving_memo;
typedef struct zp_link_memo {
  bool known;
  zp_choice choice;
  zp_group_link link;
} zp_link_memo;
enum { ZP_FLIGHT_SLOTS = 512 };
typedef struct zp_flight_memo { /* of one pipeline that was asked for */
  bool known;
  zp_schedule schedule;
  int chunks, pipeline, room; /* room: for model chunks */
  int64_t microbatches;
  double *flight;     /* [pipeline]: see least_work.c */
  double least, most; /* of all stages */
  bool descend;       /* no stage has more than the one before it */
  int64_t *chunk;     /* [pipeline][chunks]: zp_in_flight_chunk */
} zp_flight_memo;
enum { ZP_STATED_CUT_SLOTS = 512 };
typedef struct zp_stated_cut_memo { /* zp_state_cut of one variant, asked for lately */
  bool known, possible;
  int variant, chunks; /* variant: index */
  bool from_back;
  int room;     /* for numbers of a cut */
  int64_t *cut; /* [chunks + 1] */
} zp_stated_cut_memo;
enum { ZP_STATED_BOUND_SLOTS = 1 << 13 };
typedef struct zp_stated_bound_memo { /* of the stated cuts of a point (price.c) */
  bool known;
  int64_t key[5]; /* variant, schedule, chunks a stage, pipeline, data */
  double seconds;
} zp_stated_bound_memo;
/* What fits of the last point that zp_remember_fits was called for. */
typedef struct zp_known_fit {
  int64_t fits, fails; /* units: the most that are known to fit, the fewest that are known not to */
} zp_known_fit;
/* A range of units inside one segment, on any stage but the first and the last one. */
typedef struct zp_known_inner {
  int64_t point; /* number of the point; another one: not known */
  zp_inner_stage stage;
} zp_known_inner;
/* Ranges of units inside one segment from some unit on. */
typedef struct zp_range_order {
  int order;
  int64_t segment_end;
} zp_range_order;
typedef struct zp_fits_memo {
  int64_t point;           /* its number */
  const zp_pieces *pieces; /* of the next two */
  zp_range_order *order;   /* [units] */
  int orders;              /* of ranges (fit_table.c) */
  zp_limits limits;        /* that were asked for */
  int64_t cap;
  zp_known_fit *known; /* [pipeline][modes][orders] */
  int64_t inner_cap;
  zp_known_inner *inner; /* [modes][orders][units]: of ranges inside a segment */
  int64_t laid_out;      /* stages, for answers that were not known */
} zp_fits_memo;
typedef struct zp_communicators_memo {
  bool known;
  zp_choice choice; /* degrees, expert groups, rank order, schedule and chunks count */
  int64_t bytes;
} zp_communicators_memo;
typedef struct zp_search_memo {
  zp_places_memo places;
  zp_flight_memo flight[ZP_FLIGHT_SLOTS];
  zp_stated_cut_memo stated[ZP_STATED_CUT_SLOTS];
  zp_stated_bound_memo stated_bound[ZP_STATED_BOUND_SLOTS];
  zp_fits_memo fits;
  zp_communicators_memo communicators;
  ZP_VEC(int64_t *) units_before;              /* of a variant: zp_least_work's */
  ZP_VEC(struct zp_part_knapsack *) knapsacks; /* of a variant: zp_find_least_parts' */
  zp_step_end_memo end[4][2];                  /* [zero][compress] */
  int groups, groups_tensor, groups_ranks;     /* the tensor groups that were asked for last */
  zp_moving_memo moving;
  zp_link_memo data, replicas, stages; /* of the data ranks, of those that hold the same experts, between stages */
} zp_search_memo;

/* What branch and bound over cuts took, and may still take. */
typedef struct zp_effort {
  zp_cut_effort cuts;
  int64_t chunk_work_left; /* of cuts.work_left what points of several chunks a stage with many cuts may take */
} zp_effort;

typedef struct zp_searcher {
  zp_arena_budget budget; /* of all arenas of the search (budget.c) */
  zp_arena *arena;        /* of the search, given back at its end */
  zp_arena *kept;         /* the same for what is made while some of the other one is on its way to be given back */
  const zp_spec *spec;
  const zp_constraints *constraints;
  int devices;        /* given: plans use at most so many */
  zp_machine machine; /* of the ranks that the plan at hand uses (zp_search_use), like the limits below */
  bool generated_only;
  zp_trainer trainer;             /* what it can do bounds the space */
  zp_software_floor floor;        /* terms of the generated trainer that bound those of the program */
  bool wants_miss;                /* where nothing fits */
  unsigned without;               /* provers: zp_search_options */
  int64_t limit_bytes;            /* arena bytes that a rank may use; several node types: on the smallest */
  int64_t most_bytes;             /* the same on the largest */
  int64_t host_bytes, nvme_bytes; /* a rank's equal share of its node's */
  int64_t n_units;                /* cut between layers; of a point: zp_point_units */
  const zp_pieces *pieces;        /* where cuts inside layers are allowed and possible; NULL: nowhere */
  int64_t most_units;             /* of any point: cut inside layers, too, where that is allowed */
  ZP_VEC(zp_tensor_groups) groups;
  ZP_VEC(zp_variant) variants;
  zp_ints variant_index;     /* hash table: 1 + their places; 0: free */
  zp_degrees_list degrees;   /* subspaces: none is looked into that cannot beat the plans that are known by then */
  zp_degrees_list too_small; /* those that do not fit, by their memory floor */
  ZP_VEC(zp_point) points;   /* those that may fit into memory */
  bool opens_families;       /* of a choice as soon as they are found: none would wait in vain */
  bool keeps_all;            /* and those that do not: nothing fits, and the nearest miss is looked for */
  double cutoff_s;           /* points of the subspace at hand that are not faster are left out */
  double expanding_s;        /* bound of the degrees that are being looked into */
  double left_out_s;         /* the least bound of what was left out so */
  double unsearched_s;       /* of all cuts of points whose cuts are stated */
  zp_search_memo *memo;
  zp_certificate certificate;
  zp_effort effort;
  zp_miss miss;
  double miss_ratio;      /* need / have of the nearest miss */
  const char *cut_reason; /* why layers could not be cut (arena) */
  const char *reason; /* why the last tensor degree could not be split or lowered, or no trainer is generated (arena) */
} zp_searcher;

/* Model chunks of all stages together. */
static inline int zp_model_chunks(const zp_choice *choice) {
  return choice->pipeline * (choice->chunks > 1 ? choice->chunks : 1);
}
static inline const zp_variant *zp_variant_of(const zp_searcher *s, const zp_point *point) {
  return &s->variants.data[point->variant];
}

/* Elements that a rank keeps of `whole` ones that all data ranks hold and `spread` ones over expert groups, sharded
 * over those who hold the same, or not. */
static inline int64_t zp_held_elements(const zp_choice *c, int64_t whole, int64_t spread, bool sharded) {
  return sharded ? whole / c->data + spread / (c->data / zp_expert_ranks(c)) : whole + spread;
}

enum { ZP_EIGHTHS = 8 }; /* of a class of state: the shares that leave the device */
/* Those that stay on the device at least. A home off the device without eighths: how much leaves
 * is open. */
static inline int zp_eighths_here(const zp_choice *c, zp_state state) {
  const zp_home *home = &c->home[state];
  return home->tier == ZP_TIER_DEVICE ? ZP_EIGHTHS : home->eighths ? ZP_EIGHTHS - home->eighths : 0;
}

static inline int64_t zp_point_units(const zp_searcher *s, const zp_point *point) {
  return zp_variant_of(s, point)->lowered->n_units;
}

/* ---- search.c ---- */
/* Fills in what follows from the input; s->arena is there, the rest is zero. options may be NULL. */
void zp_search_start(zp_searcher *s, const zp_spec *spec, const zp_machine *machine, const zp_search_options *options);
/* Gives the memory back; started or not. */
void zp_search_end(zp_searcher *s);

/* ---- budget.c ---- */
/* What makes the search grow, in the order in which it does without. */
typedef enum zp_growth {
  ZP_GROW_EARLY,      /* degrees are measured while plans are still missing: the others wait until these are known */
  ZP_GROW_PROCEDURES, /* degrees are measured */
  ZP_GROW_POINTS,     /* degrees are looked into, families opened */
  ZP_GROW_MORE,       /* what is begun of that goes on */
  ZP_GROW_CUTS        /* branch and bound, simulations */
} zp_growth;
/* Is there room for it, and for `bytes` besides? */
bool zp_has_room(const zp_searcher *s, zp_growth what, size_t bytes);
/* zp_has_room for whoever takes it; false is noted in the certificate: whoever asks leaves it out. */
bool zp_may_grow(zp_searcher *s, zp_growth what, size_t bytes);
/* Plans with this bound are not looked for any more: counted. */
void zp_leave_out(zp_searcher *s, double bound_s);
/* The point waits in s->points. False: the list cannot grow, and it is left out. */
bool zp_keep_point(zp_searcher *s, const zp_point *point);

/* ---- ranks.c ---- */
/* From now on plans that use so many ranks are at hand. */
void zp_search_use(zp_searcher *s, int ranks);
/* What ranks of the machine at hand may use. */
void zp_use_limits(zp_searcher *s);
/* Index of the tensor groups of that size among the ranks at hand; -1 when they are not known yet. */
int zp_find_groups(const zp_searcher *s, int tensor);
bool zp_same_link(const zp_group_link *a, const zp_group_link *b);
/* Index of the tensor groups of that size, made where they are not known yet. */
int zp_use_groups(zp_searcher *s, int tensor);

/* ---- degrees.c ---- */
/* All degrees that the constraints allow, with bounds by their products alone. Counts the rest. */
void zp_search_degrees(zp_searcher *s);
/* The bound of their procedures. False: there are none, or they do not fit, which is counted. */
bool zp_measure_degrees(zp_searcher *s, zp_degrees *degrees);
/* No plan of this point's degrees, micro-batch and variant is faster, whatever its schedule: its work alone. O(1). */
double zp_bound_work(const zp_searcher *s, const zp_point *point);

/* ---- variant.c ---- */
/* Index of the variant of these modes, made on demand; -1 when the model cannot be split or lowered that way
 * (s->reason). Of the choice only tensor, sequence and microbatch count. */
int zp_search_variant(zp_searcher *s, const zp_choice *choice, zp_mode_set modes);
/* What all stages of a choice run, from s->arena. Requires: variants of their modes. */
const zp_lowered **zp_search_stages(const zp_searcher *s, const zp_choice *choice);

/* Have the nodes several types? Then what all stages share is bounded by the least of the types, and every stage has
 * variants of its own. */
static inline bool zp_has_types(const zp_searcher *s) { return s->machine.cluster->groups.len > 0; }
/* Where the stages of a choice stand; clusters of several node types only. */
const zp_places_memo *zp_find_places(const zp_searcher *s, const zp_choice *choice);
/* The variant of one mode with the prices of a stage's node types; itself in a plain cluster. */
const zp_variant *zp_on_stage(const zp_searcher *s, const zp_choice *choice, const zp_variant *of_mode, int stage);
/* The variant of the same mode for a set of node types. */
const zp_variant *zp_on_types(const zp_searcher *s, const zp_variant *of_mode, zp_node_set types);

/* ---- modes.c ---- */
/* The point of a choice whose stages may have these modes; false when none of them can be lowered. */
bool zp_search_point(zp_searcher *s, const zp_choice *choice, zp_mode_set modes, zp_point *point);
/* Is every mode of the point at most as long as the next one, forward and backward, in every unit? Then no plan of the
 * same cut is faster than that with the fastest mode that fits on every stage. */
bool zp_modes_are_ordered(const zp_searcher *s, const zp_point *point);
/* What a stage with these parts runs; NULL when it does not stay within the limits. */
const zp_variant *zp_stage_variant(const zp_searcher *s, const zp_point *point, int stage, const zp_units *part,
                                   const zp_limits *limits);
/* zp_stage_variant of all stages of a cut, [pipeline]. False when one does not fit. */
bool zp_cut_variants(const zp_searcher *s, const zp_point *point, const zp_limits *limits, const int64_t *cut,
                     const zp_variant **stage);
/* The choice with that cut (borrowed) and the modes of these variants, from s->arena. */
zp_choice zp_choice_of_cut(const zp_searcher *s, const zp_point *point, int64_t *cut, const zp_variant *const *stage);

/* ---- least_work.c ---- */
/* What is asked: is there room; the work_s of the point, too; and once it is worth more time, longest_s and what the
 * next two functions need. */
typedef enum zp_least_ask { ZP_ASK_ROOM, ZP_ASK_WORK, ZP_ASK_ALL } zp_least_ask;
/* Fills in what is asked of the point. False: the stages together have no room for the layers. */
bool zp_find_least_work(const zp_searcher *s, zp_point *point, zp_least_ask ask);
/* Seconds of the units before `first` on the stages before `stage`, of those from `end` on on the stages after it, at
 * least. */
double zp_least_before(const zp_searcher *s, const zp_point *point, int stage, int64_t first);
double zp_least_after(const zp_searcher *s, const zp_point *point, int stage, int64_t end);

/* Several chunks a stage: no cut, in any of the point's modes, has its micro-batches done sooner. memory: what the
 * stages have room for counts. Plans that take high_s or longer are not told apart. */
double zp_bound_any_chunks(const zp_searcher *s, const zp_point *point, bool memory, double high_s);

/* What the chunks of the stages have in flight. */
const zp_flight_memo *zp_find_flights(const zp_searcher *s, const zp_choice *choice);

/* ---- least_parts.c ---- */
/* Bytes of a parameter, its gradient and optimizer state on a rank: where all data ranks hold it, and where it is
 * spread.
 */
typedef struct zp_state_bytes {
  double whole, spread;
} zp_state_bytes;
/* The work_s of a point whose cuts may lie inside layers; false as above. kept: share of what micro-batches save that
 * stays on the device. */
bool zp_find_least_parts(const zp_searcher *s, zp_point *point, zp_state_bytes each, double kept,
                         const zp_flight_memo *flights, zp_least_ask ask);

/* ---- space.c ---- */
/* Only this value is allowed. */
bool zp_limit_is_pin(const zp_limit *limit);
void zp_search_reject(zp_searcher *s, zp_rejection why);
/* Is a trainer generated for such values, or may they be looked at without? Their constraint is not asked. */
bool zp_search_considers(const zp_searcher *s, const zp_limit *limit, bool plain);
/* Modes that the plan block allows; *excluded: how many others there would be. */
zp_mode_set zp_allowed_modes(const zp_searcher *s, int tensor, bool sequence, int *excluded);
/* Nothing with this bound beats the plans that are known: counted. */
bool zp_is_beaten(zp_searcher *s, double bound_s);
/* All points of some degrees: counts candidates and rejections, keeps those that may fit and may be faster than
 * s->cutoff_s. */
void zp_search_expand(zp_searcher *s, const zp_degrees *degrees);

/* ---- homes.c ---- */
bool zp_some_state_may_leave(const zp_searcher *s);
/* The choice with all that lowers its memory and is in the space: no choice of its schedule needs less. */
zp_choice zp_smallest(const zp_searcher *s, const zp_choice *choice);
/* The points of one choice in all modes together and in each of them by itself (none where modes are pinned). */
typedef struct zp_mode_points {
  zp_point all, one[ZP_MOST_MODES];
} zp_mode_points;
zp_mode_points zp_find_modes(zp_searcher *s, const zp_point *all);
/* The point of another choice of the same procedures. */
zp_point zp_with_choice(const zp_searcher *s, const zp_point *like, const zp_choice *choice);
/* The points of a choice, given those of another one of the same procedures: like zp_search_expand. */
void zp_try_homes(zp_searcher *s, const zp_choice *choice, const zp_mode_points *like);
/* Raise the least share and the bound of a family: by the room that the stages have together; by cuts that fit on the
 * devices. Why none of its points fits; ZP_REJECT_NONE: some may. */
zp_rejection zp_bound_family(zp_searcher *s, zp_point *family);
zp_rejection zp_fit_family(zp_searcher *s, zp_point *family);
/* What a family consists of, in the same way as zp_search_expand: points, or families of one class. */
void zp_open_family(zp_searcher *s, const zp_point *family);

/* ---- fit.c: memory ---- */
/* Least bytes that the fullest stage of a point needs, however it is cut. O(1). */
int64_t zp_memory_floor(const zp_searcher *s, const zp_point *point);
/* The fewest eighths of a class off the device with which that may fit; more than there are: none. */
int zp_least_eighths(const zp_searcher *s, const zp_point *point, zp_state state);
/* Least bytes on the host and on disks that a point needs, however it is cut. */
zp_limits zp_away_floor(const zp_searcher *s, const zp_point *point);
/* What the ranks of a machine may use. */
zp_limits zp_machine_limits(const zp_searcher *s, const zp_machine *machine);
/* Several node types: of a rank on the smallest of them. */
zp_limits zp_search_limits(const zp_searcher *s);
/* Limits of one stage: where its node types have more than the smallest, it may use so much more. */
zp_limits zp_limits_of_stage(const zp_searcher *s, const zp_choice *choice, int stage, const zp_limits *smallest);
/* Is there a cut that fits? False: *why says whether the device or the host was short. What fits is remembered from
 * then on (fit_table.c). */
bool zp_point_fits(const zp_searcher *s, zp_point *point, zp_rejection *why);
/* Does the point fit the devices alone? Nothing is remembered. */
bool zp_fits_device(const zp_searcher *s, const zp_point *point);
/* Notes the point that needs the least beyond what there is. Requires: no point fits. */
void zp_note_misses(zp_searcher *s);

/* ---- fit_table.c ---- */
/* From now on, until another point comes, what fits on the stages of this one within these limits is remembered. Homes
 * must not change. Several chunks a stage: nothing is. */
void zp_remember_fits(const zp_searcher *s, zp_point *point, const zp_limits *limits);
/* Bytes of the communicators of every rank of the choice. */
int64_t zp_choice_communicator_bytes(const zp_searcher *s, const zp_choice *choice, int ties);
/* The first of the point's modes first .. end - 1 in which the stage with these parts stays within the limits; -1: none
 * does. */
int zp_first_mode_that_fits(const zp_searcher *s, const zp_point *point, int first, int end, int stage,
                            const zp_units *part, const zp_limits *limits);

/* ---- cut.c: one chunk a stage ---- */
/* Cuts whose every stage is possible: at most stage_s long, zp_bound_of_stage at most total_s, within the limits.
 * Stages are filled from the front, or from the back. False when there are none. cut: pipeline + 1 numbers. */
typedef struct zp_cut_rule {
  double stage_s, total_s;
  zp_limits limits;
  bool from_back;
} zp_cut_rule;
bool zp_cut_within(const zp_searcher *s, const zp_point *point, const zp_cut_rule *rule, int64_t *cut);
/* Shortest possible longest stage of cuts that fit into memory. Requires: such cuts exist. */
double zp_cut_bottleneck(const zp_searcher *s, const zp_point *point);
/* No cut that fits has all stages' bounds below the result, or it is low_s: cuts below that are not told apart. cut:
 * the one that comes closest. Requires: a cut whose bounds are at most high_s. */
double zp_cut_least_bound(const zp_searcher *s, const zp_point *point, double low_s, double high_s, int64_t *cut);
/* Smallest possible largest stage, in bytes, and the cuts that reach it. Host and disks are not looked at. */
int64_t zp_cut_least_memory(const zp_searcher *s, const zp_point *point, int64_t *cut);
/* Calls on_cut for every way to cut that fits into memory; false, without a call, when there are too many. */
typedef void zp_on_cut(void *user, int64_t *cut);
bool zp_cut_all(zp_searcher *s, const zp_point *point, zp_on_cut *on_cut, void *user);

/* ---- chunk_cut.c: several chunks a stage ---- */
/* Is there a way to cut into `pipeline` stages of at most stage_s in the point's fastest mode, whatever their memory?
 */
bool zp_cut_is_possible(const zp_searcher *s, const zp_point *point, double stage_s);
/* A cut among those into model chunks with the shortest longest chunk: by the times of the point's mode `by`, the one
 * with the longest first chunks, or with the longest last chunks. cut: chunks + 1 numbers. */
bool zp_state_cut(const zp_searcher *s, const zp_point *point, int by, bool from_back, int64_t *cut);
/* The stated cuts of a point by all of its modes, whatever their memory, each once; from the arena. */
typedef struct zp_stated_cuts {
  int n;
  int64_t *cut[2 * ZP_MOST_MODES]; /* [chunks + 1] */
} zp_stated_cuts;
zp_stated_cuts zp_state_cuts(zp_arena *arena, const zp_searcher *s, const zp_point *point);
/* Does a cut into any number of chunks a stage fit into memory? */
bool zp_chunks_fit(const zp_searcher *s, const zp_point *point, const zp_limits *limits, const int64_t *cut);
/* Is every cut of the point in the space? The choice says what may leave the device. */
bool zp_every_chunk_cut(const zp_searcher *s, const zp_point *point);
/* Are its ways to cut so few that branch and bound settles them for certain? */
bool zp_few_chunk_cuts(const zp_searcher *s, const zp_point *point);
/* Any cut that fits into memory, found or ruled out in a limited number of steps. cut: chunks + 1 numbers. */
typedef enum zp_any_cut { ZP_ANY_CUT, ZP_NO_CUT, ZP_CUT_UNKNOWN } zp_any_cut;
zp_any_cut zp_find_chunk_cut(const zp_searcher *s, const zp_point *point, int64_t *cut);
/* What stage `stage` of a cut has of every chunk: part[chunks]. */
void zp_parts_of_stage(const zp_choice *choice, int stage, const int64_t *cut, zp_units *part);

/* ---- unsearched.c ---- */
/* Are the point's cuts stated ones, and others left out? */
bool zp_has_stated_cuts(const zp_searcher *s, const zp_point *point);
/* What is left out: cuts of a point; of all points of a measured family; of all points of a choice, whose homes and
 * ZeRO stage are those of zp_smallest. */
typedef enum zp_unsearched { ZP_UNSEARCHED_POINT, ZP_UNSEARCHED_FAMILY, ZP_UNSEARCHED_CHOICE } zp_unsearched;
/* s->unsearched_s follows, whatever becomes of the point. */
void zp_note_unsearched(zp_searcher *s, const zp_point *point, zp_unsearched what);

/* ---- bound.c ---- */
/* Seconds of a message between neighbouring stages, at least. */
double zp_least_message(const zp_searcher *s, const zp_point *point);
/* A proven lower bound of the simulated step time over all cuts. O(1). */
double zp_bound(const zp_searcher *s, const zp_point *point);
/* Bound of a point's micro-batches alone, wherever its state is. */
double zp_bound_microbatches(const zp_searcher *s, const zp_point *point);
/* Bound of a point's micro-batches with what moves beside them: with more state off the device never less, but for the
 * work that memory forces on the stages. */
double zp_bound_moving(const zp_searcher *s, const zp_point *point);
/* zp_bound_moving for one way to cut; own: what the stages run. */
double zp_bound_of_cut(const zp_searcher *s, const zp_point *point, const int64_t *cut, const zp_variant *const *own);
/* With several chunks a stage, the part of it that no home changes. */
double zp_bound_of_chunks(const zp_searcher *s, const zp_point *point, const int64_t *cut,
                          const zp_variant *const *own);
/* Seconds of all micro-batches, at least, when a stage (one chunk) runs units first .. end - 1 of `own`. Without its
 * waits the bound grows with the units; with them only for many micro-batches. */
double zp_bound_of_stage(const zp_searcher *s, const zp_point *point, const zp_variant *own, int stage, int64_t first,
                         int64_t end, bool waits);
/* Seconds of the longest update, at least. */
double zp_bound_update(const zp_searcher *s, const zp_point *point);
/* Seconds between the micro-batches and the end of the step, at least. */
double zp_bound_step_end(const zp_searcher *s, const zp_point *point);
/* The part of zp_bound_step_end that homes change, and what they do not but for reductions: at most the above. O(1). */
double zp_bound_end_of_homes(const zp_searcher *s, const zp_point *point);

/* ---- ranking.c: the best plans, one per triple of degrees, ascending; of estimates only step_s is known ---- */
typedef struct zp_ranking {
  zp_candidate *best;
  int len, cap;
  double range;  /* plans slower than the best one by this factor are not looked for */
  bool exact;    /* alternatives are the best of their degrees among the cuts of price.c, not only good ones */
  int behind;    /* points that were looked at and cannot be the best plan; few of them are, unless `exact` */
  double closer; /* 1 + gap: nor are plans that are not faster by this factor */
} zp_ranking;
/* Fixed order of points that are equally fast. */
int zp_choice_compare(const zp_choice *a, const zp_choice *b);
void zp_rank(zp_searcher *s, zp_ranking *r, const zp_candidate *candidate);
/* Plans of these degrees that are slower cannot enter the ranking. */
double zp_cutoff(const zp_ranking *r, const zp_choice *choice);

/* ---- frontier.c ---- */
typedef struct zp_wait { /* of degrees or a point, whose bound stays while it waits */
  double bound_s;
  int item; /* index */
} zp_wait;
typedef struct zp_heap {
  ZP_VEC(zp_wait) all;
  bool of_points; /* else of degrees */
} zp_heap;
/* What is still to be looked at: degrees, and the points of those that were looked into, in the order of their bounds.
 */
typedef struct zp_frontier {
  zp_searcher *s;
  zp_heap degrees, points;
  zp_ints families; /* of points: once the first plans are known */
  zp_ints later;    /* degrees that do not look as if they fit: once the first plans are known */
  zp_ints idle;     /* degrees that leave devices idle: once no other degrees are left */
  bool one_by_one;  /* all points of degrees go before the next are looked into */
  bool opens;       /* families do not wait any more */
  int known;        /* plans when degrees were looked into last */
} zp_frontier;
zp_frontier zp_frontier_new(zp_searcher *s);
/* Index of the next point to be priced; -1: none is left. */
int zp_frontier_next(zp_frontier *f, const zp_ranking *r);
/* A family is opened: its points take its place. */
void zp_frontier_open(zp_frontier *f, int family, const zp_ranking *r);
/* The point waits for its next turn, with the bound that it has now. */
void zp_frontier_return(zp_frontier *f, int point);

/* ---- price.c ---- */
/* All that its price needs; without order tables where that takes none. */
const zp_program *zp_search_program(zp_arena *arena, const zp_searcher *s, const zp_choice *choice);
/* Cuts and simulates the points in the order of their bounds while they can still enter the ranking. */
void zp_price_points(zp_searcher *s, zp_ranking *r);

#endif
