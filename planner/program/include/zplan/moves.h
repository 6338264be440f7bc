/* SPDX-License-Identifier: Apache-2.0 */
/* What a step moves, as a list: one record for everything that leaves or enters a rank's memory, or crosses it
 * alongside the units' own steps. A strategy (ZeRO's gather, saved values offloaded, ...) is one file of
 * planner/program/moves, which says when it applies, makes its records and explains itself; whatever counts, prices,
 * sizes, prints or proves moves asks the list.
 *
 * A record is about one unit, or about a stage, of one rank. `elements` are exact, padded as they lie in the flat
 * buffers. Without a stage that is laid out (zp_move_scope.run) the place of a unit's bytes among the stage's is not
 * known: then every unit has the same share off the device, and nothing else differs. */
#ifndef ZPLAN_MOVES_H
#define ZPLAN_MOVES_H

#include <zplan/program.h>

#define ZP_MOVE_WHATS(X)                                                                                               \
  X(PARAMETERS, "parameters")                                                                                          \
  X(GRADIENTS, "gradients")                                                                                            \
  X(OPTIMIZER, "optimizer state")                                                                                      \
  X(SAVED, "saved values")                                                                                             \
  X(MESSAGE, "message")                                                                                                \
  X(PARTIAL, "partial sums")                                                                                           \
  X(SLOTS, "slots of experts")                                                                                         \
  X(HEADS, "heads of attention")                                                                                       \
  X(SIGNS, "signs of momentum")                                                                                        \
  X(STREAM, "streams")
typedef enum zp_move_what {
#define ZP_MOVE_ROW(name, text) ZP_MOVE_##name,
  ZP_MOVE_WHATS(ZP_MOVE_ROW)
#undef ZP_MOVE_ROW
      ZP_MOVE_WHAT_COUNT
} zp_move_what;

/* An end of a move: a tier of the rank itself, or the ranks that take part. Where state is divided in shard groups,
 * data ranks and replicas of experts are those of one group. */
#define ZP_MOVE_ENDS(X)                                                                                                \
  X(DEVICE, "device")                                                                                                  \
  X(HOST, "host")                                                                                                      \
  X(DISK, "disk")                                                                                                      \
  X(DATA_RANKS, "data ranks")                                                                                          \
  X(REPLICAS, "replicas of experts")                                                                                   \
  X(TENSOR_RANKS, "tensor ranks")                                                                                      \
  X(EXPERT_RANKS, "expert group")                                                                                      \
  X(CONTEXT_RANKS, "context group")                                                                                    \
  X(COPIES, "copies of the shard")                                                                                     \
  X(HPZ, "hpZ group")                                                                                                  \
  X(NEIGHBOUR, "neighbour")                                                                                            \
  X(TIED_STAGES, "tied stages")
typedef enum zp_move_end {
#define ZP_MOVE_ROW(name, text) ZP_END_##name,
  ZP_MOVE_ENDS(ZP_MOVE_ROW)
#undef ZP_MOVE_ROW
      ZP_END_COUNT
} zp_move_end;

/* How. Elements of an all-reduce, a reduce-scatter and an all-gather are those of the whole array; of an exchange what
 * a rank has for all of the group, itself included. */
#define ZP_MOVE_WAYS(X)                                                                                                \
  X(COPY, "copy")                                                                                                      \
  X(SEND, "send")                                                                                                      \
  X(ALL_REDUCE, "all-reduce")                                                                                          \
  X(REDUCE_SCATTER, "reduce-scatter")                                                                                  \
  X(ALL_GATHER, "all-gather")                                                                                          \
  X(EXCHANGE, "exchange")                                                                                              \
  X(PASS, "messages")
typedef enum zp_move_way {
#define ZP_MOVE_ROW(name, text) ZP_WAY_##name,
  ZP_MOVE_WAYS(ZP_MOVE_ROW)
#undef ZP_MOVE_ROW
      ZP_WAY_COUNT
} zp_move_way;

/* How a step's comm_elements travel; COPY: it is no collective. */
zp_move_way zp_step_way(const zp_step *step);

/* What is busy meanwhile: moves on one queue follow each other, queues work alongside each other. */
#define ZP_MOVE_QUEUES(X)                                                                                              \
  X(COMPUTE, "the unit's steps")                                                                                       \
  X(DATA, "data ranks")                                                                                                \
  X(TENSOR, "tensor ranks")                                                                                            \
  X(MESSAGES, "messages")                                                                                              \
  X(TIES, "tied stages")                                                                                               \
  X(DOWN, "PCIe down")                                                                                                 \
  X(UP, "PCIe up")                                                                                                     \
  X(READ, "disk read")                                                                                                 \
  X(WRITE, "disk write")                                                                                               \
  X(HOST_MEMORY, "host memory")                                                                                        \
  X(DEVICE_MEMORY, "device memory")
typedef enum zp_move_queue {
#define ZP_MOVE_ROW(name, text) ZP_QUEUE_##name,
  ZP_MOVE_QUEUES(ZP_MOVE_ROW)
#undef ZP_MOVE_ROW
      ZP_QUEUE_COUNT
} zp_move_queue;

/* When, in the order of a step. A unit's: before, in or after one of its actions. A stage's: with every message; once a
 * step, from what backward hides to the updated weights. */
#define ZP_MOVE_TIMES(X)                                                                                               \
  X(BEFORE_UNIT, "before")                                                                                             \
  X(IN_UNIT, "in")                                                                                                     \
  X(AFTER_UNIT, "after")                                                                                               \
  X(AFTER_ACTION, "after the action")                                                                                  \
  X(OVERLAPPED_BACKWARD, "alongside the last backward")                                                                \
  X(AFTER_BACKWARD, "after the last backward")                                                                         \
  X(AT_NORM, "for the norm")                                                                                           \
  X(AT_HOST_LENGTHS, "lengths of tensors on the host")                                                                 \
  X(AT_HOST_UPDATE, "update on the host")                                                                              \
  X(AT_DEVICE_UPDATE, "update on the device")                                                                          \
  X(AFTER_UPDATE, "after the update")                                                                                  \
  X(OVERLAPPED_NEXT, "alongside the next step")
typedef enum zp_move_when {
#define ZP_MOVE_ROW(name, text) ZP_WHEN_##name,
  ZP_MOVE_TIMES(ZP_MOVE_ROW)
#undef ZP_MOVE_ROW
      ZP_WHEN_COUNT
} zp_move_when;

/* Where it is waited for. */
#define ZP_MOVE_WAITS(X)                                                                                               \
  X(AT_ONCE, "at once")                                                                                                \
  X(BY_UNIT, "by the unit; starts a unit ahead")                                                                       \
  X(BY_BUFFER, "by the next unit with its buffer")                                                                     \
  X(BY_RECEIVER, "by the action that receives it")                                                                     \
  X(BY_NORM, "by the norm")                                                                                            \
  X(BY_STEP, "by the end of the step")                                                                                 \
  X(BY_NEXT, "by the end of the next step")
typedef enum zp_move_wait {
#define ZP_MOVE_ROW(name, text) ZP_WAIT_##name,
  ZP_MOVE_WAITS(ZP_MOVE_ROW)
#undef ZP_MOVE_ROW
      ZP_WAIT_COUNT
} zp_move_wait;

typedef struct zp_move_strategy zp_move_strategy;

typedef struct zp_move {
  const zp_move_strategy *strategy;
  zp_move_what what;
  zp_move_end from, to;
  zp_move_way way;
  zp_move_queue queue;
  zp_move_when when;
  zp_move_wait wait;
  zp_act act;           /* BEFORE_UNIT .. AFTER_ACTION: of which action */
  int run;              /* of the stage; -1: of no unit, or no stage was given */
  int64_t first, count; /* iterations of the run, which are alike */
  int bucket;           /* its place among zp_unit_buckets; -1: of none */
  int64_t elements;     /* of one occurrence: a rank's copy or message, a collective's array. Of saved values bytes */
  int element_bytes;
  int64_t all_elements; /* the same of all ranks (groups) of the stage together */
  int64_t times;        /* occurrences in a step, of one unit */
  int ranks;            /* that take part; 1 of a copy */
  int other;            /* of a message: the stage that it goes to; of ties: which of the program's */
  bool mirrored;        /* its bytes are counted with another stage's record (ties) */
  bool warmup, frozen;  /* only before the variance freezes (1-bit Adam), and only after that; of 0/1 Adam in steps that
                         * sum gradients, and in others */
  double share;         /* of the steps that a price is of: those that have it */
  bool routed;          /* as much as routing sends: `elements` are those of an even load */
  int64_t
      spared_bytes; /* in the list of a stage: fewer that its ranks send, because sums are rounded to leave a node */
} zp_move;
/* The other ranks that take part, or the tier at the other end of a copy: ends that are no tier of the rank come
 * last. */
static inline zp_move_end zp_move_peers(const zp_move *move) { return move->from > move->to ? move->from : move->to; }

/* What a strategy is asked about. */
typedef enum zp_move_moment {
  ZP_MOMENT_ACTION,  /* alongside the steps of a unit in an action, before or after them: segment, act */
  ZP_MOMENT_INSIDE,  /* collectives that are steps of a unit in an action: segment, act */
  ZP_MOMENT_BUCKETS, /* what the buckets of a unit do once a step: segment */
  ZP_MOMENT_CHUNK,   /* what an action of a chunk begins or ends with: chunk, act. Wants program and stage */
  ZP_MOMENT_STEP,    /* what a stage does once a step: elements */
} zp_move_moment;

/* A unit's own parameters; those declared outside repeats, with the first unit of the stage that uses them. */
typedef enum zp_bucket_choice { ZP_BUCKETS_ALL, ZP_BUCKETS_OWN, ZP_BUCKETS_SHARED } zp_bucket_choice;

typedef struct zp_move_scope {
  const zp_lowered *lowered;
  const zp_choice *choice;
  bool cpu; /* ranks compute on CPUs */
  int64_t microbatches;
  zp_move_moment moment;
  zp_act act;
  int segment, chunk;
  const zp_program *program; /* NULL: ties, partial sums and messages are left out */
  const zp_stage *stage;     /* NULL: not laid out */
  int run;                   /* of the stage, -1: places are not known */
  int64_t iteration;         /* of the run: 0 .. count - 1 */
  zp_bucket_choice buckets;  /* MOMENT_BUCKETS: which */
  /* A relaxation, for bounds and for sums of which only elements are known: */
  const zp_flat *together; /* instead of a unit's buckets one with so many elements, as if nothing were padded */
  const zp_flat *casts;    /* of `together`, weights that are kept as casts alone; NULL: not known */
  int64_t saved_bytes;     /* instead of the segment's, where `together` is not NULL */
  int64_t units;           /* that these are of: rounding keeps something of each on the device */
} zp_move_scope;

/* The one form in which a plan is refused that is priced, but not generated. */
#define ZP_NOT_GENERATED(what) what ": planned, not generated yet"

typedef void zp_on_move(void *user, const zp_move *move);

/* Private to the layout: a stage whose sizes are known, and whose regions are asked for. */
typedef struct zp_placing zp_placing;

/* What a choice may need that one strategy alone provides. Without it in the list such choices are refused. */
typedef enum zp_move_need {
  ZP_MOVE_NEED_PARAMS_OFFLOADED,
  ZP_MOVE_NEED_GRADIENTS_OFFLOADED,
  ZP_MOVE_NEED_OPTIMIZER_OFFLOADED,
  ZP_MOVE_NEED_SAVED_OFFLOADED,
  ZP_MOVE_NEED_GATHER,   /* ZeRO 3 */
  ZP_MOVE_NEED_SCATTER,  /* ZeRO 2 and 3 */
  ZP_MOVE_NEED_SUMS,     /* ZeRO 0 and 1, several data ranks */
  ZP_MOVE_NEED_BACK,     /* ZeRO 1 and 2 */
  ZP_MOVE_NEED_COPIES,   /* several shard groups */
  ZP_MOVE_NEED_HPZ,      /* a second copy of the parameters */
  ZP_MOVE_NEED_SIGNS,    /* 1-bit Adam */
  ZP_MOVE_NEED_MESSAGES, /* several stages */
  ZP_MOVE_NEED_EXCHANGE, /* experts over data ranks */
  ZP_MOVE_NEED_HEADS,    /* positions over data ranks */
  ZP_MOVE_NEED_COUNT
} zp_move_need;

/* What goes with a strategy of a key of the plan block: a search is limited to that (zp_trainer_narrow). */
typedef struct zp_move_limit {
  const char *key; /* "offload[optimizer]" */
  size_t offset;   /* of its zp_limit in zp_constraints */
  int highest;     /* value of the key */
  unsigned keep;   /* bit v: value v goes with it */
  bool unwritten;  /* where the plan block does not say anything, too; else other plans are refused one by one */
  bool no_effect;  /* other values are of no use on this cluster: warned of where one that goes is there, too */
  const char *why, *help;
} zp_move_limit;
typedef struct zp_move_limits {
  const zp_move_limit *rows;
  int n;
} zp_move_limits;

/* What the train block asks of a strategy and cannot be had on the cluster, or in the program that is planned for. */
typedef struct zp_move_objection {
  zp_span span;
  const char *why, *help; /* why NULL: nothing */
} zp_move_objection;

struct zp_move_strategy {
  const char *name;
  /* Does a plan of such a choice have it? */
  bool (*applies)(const zp_move_scope *scope);
  /* Calls emit for every record of the scope's moment. Requires: applies. */
  void (*make)(const zp_move_scope *scope, zp_on_move *emit, void *user);
  /* One line: what, when and why. Requires: applies. Arena. */
  const char *(*explain)(zp_arena *arena, const zp_move_scope *scope);
  /* ---- room ---- */
  /* Units work in a ring of so many buffers for a class of state, where it applies; 0: they need none for it. On CPU
   * ranks, which move nothing ahead, as many as there. */
  struct {
    zp_state state;
    int buffers, on_cpus;
  } ring;
  /* Data ranks exchange all elements of their own gradients: flat buffers have equal parts of all of them, and sums
   * over other ranks are of whole gradients before. */
  bool takes_all;
  /* Bytes of the transient region that the update of `count` units of a segment works in, whatever applies. May be
   * NULL. */
  int64_t (*transient)(const zp_lowered *lowered, const zp_choice *choice, int segment, int64_t count);
  /* Raises other regions (regions.def) to the bytes that it needs. Requires: applies. May be NULL. */
  void (*regions)(const zp_move_scope *scope, zp_placing *placing);
  /* ---- what the step computes for it besides its records; each may be NULL ---- */
  /* Fills in what it looks up of all steps of a training, once. */
  void (*lower)(zp_arena *scratch, zp_lowered *lowered);
  /* Fills in what it looks up of a segment, once: elements and bytes when the places of its parameters are known,
   * then seconds of a unit on these nodes. */
  void (*lower_segment)(const zp_lowered *lowered, zp_segment_program *segment);
  void (*price_segment)(const zp_lowered *lowered, const zp_machine *machine, zp_segment_program *segment);
  /* Adds seconds that the update of the scope's stage computes for it. Requires: the stage is laid out. */
  void (*price)(const zp_move_scope *scope, double *update_s);
  /* ---- what it does not go with; each may be NULL ---- */
  /* Why decisions about it do not go together, whatever the model and the program; NULL: they do. */
  const char *(*refuses)(const zp_choice *choice, const zp_spec *spec);
  /* Why a complete choice cannot be had where parts of it may go together; NULL: it can. */
  const char *(*refuses_complete)(const zp_choice *choice, const zp_spec *spec);
  /* What the train block asks of it in vain. Arena. */
  zp_move_objection (*objects)(zp_arena *arena, const zp_spec *spec);
  /* What goes with it on this cluster, and with what the train block asks of it. */
  zp_move_limits (*limits)(const zp_spec *spec);
  /* ZP_NOT_GENERATED(what), of what zplan's own trainer has not got yet; NULL: nothing. A value that it has in no plan
   * is a limit. */
  const char *(*lacks)(const zp_choice *choice);
  unsigned provides; /* bits 1 << zp_move_need */
};

/* All strategies; the last entry is NULL. */
extern const zp_move_strategy *const zp_move_strategies[];

/* The scope of a choice, as far as the choice says it, with run -1; moment, segment and the like are left to be filled
 * in. */
zp_move_scope zp_move_scope_of(const zp_lowered *lowered, const zp_choice *choice);
/* The scope of a stage of a program, which is laid out. */
zp_move_scope zp_move_scope_of_stage(const zp_program *program, int stage);
/* Does anything go alongside the steps of units? */
bool zp_moves_overlap_units(const zp_move_scope *scope);
/* Gathers and scatters of ZeRO 2 and 3 run alongside the units, instead of in them: on GPUs, while nothing that they
 * work with leaves the device. CPU ranks would make the copies of their messages themselves; what has left comes and
 * goes through the same buffers. */
bool zp_buckets_overlap(const zp_move_scope *scope);
/* Every strategy's lower, lower_segment, price_segment and price. */
void zp_moves_lower(zp_arena *scratch, zp_lowered *lowered);
void zp_moves_lower_segment(const zp_lowered *lowered, zp_segment_program *segment);
void zp_moves_price_segment(const zp_lowered *lowered, const zp_machine *machine, zp_segment_program *segment);
void zp_moves_price(const zp_move_scope *scope, double *update_s);
/* Buffers of the rings that strategies need, by class of state. Looks at choice and cpu alone. */
typedef struct zp_move_rings {
  int of[ZP_STATE_COUNT];
} zp_move_rings;
zp_move_rings zp_moves_rings(const zp_move_scope *scope);
/* Does some strategy of the choice take all elements, in equal parts? */
bool zp_moves_take_all(const zp_choice *choice);
/* The most that an update works in (zp_move_strategy.transient). */
int64_t zp_moves_transient(const zp_lowered *lowered, const zp_choice *choice, int segment, int64_t count);
/* All strategies that apply raise the regions that they need. */
void zp_make_regions(const zp_move_scope *scope, zp_placing *placing);
/* All strategies that apply make their records. Requires what the scope says of its moment. */
void zp_make_moves(const zp_move_scope *scope, zp_on_move *emit, void *user);

/* Records of a stage in the order of a step, units that are alike in one record. */
typedef ZP_VEC(zp_move) zp_move_list;
zp_move_list zp_stage_moves(zp_arena *arena, const zp_program *program, int stage);
/* Bytes that all ranks of the stage send in a step for it; a copy sends nothing. */
int64_t zp_move_sent_bytes(const zp_move *move);
/* What of them leaves a node, or ZP_ACROSS_UNKNOWN: groups of unlike places, whose shares the record does not say. */
enum { ZP_ACROSS_UNKNOWN = -1 };
int64_t zp_move_across_bytes(zp_arena *scratch, const zp_program *program, int stage, const zp_move *move);
/* zp_move.spared_bytes of a record. Requires: sums are rounded to leave a node, in a plan that is not refused. */
int64_t zp_move_spared_bytes(zp_arena *scratch, const zp_program *program, int stage, const zp_move *move);
/* Bytes of all occurrences in all units of a record, of all ranks of the stage. */
int64_t zp_move_all_bytes(const zp_move *move);
/* Bytes that all ranks together send or copy for it in a step; of 1-bit Adam after its warm-up. */
int64_t zp_program_strategy_bytes(const zp_program *program, const zp_move_strategy *strategy);
/* A record of a stage in words: "forward, before h.3-h.5", "host to device", "20 x 4 bytes". Arena. */
typedef struct zp_move_words {
  const char *when, *what, *way, *ends, *size, *queue, *wait;
} zp_move_words;
zp_move_words zp_move_in_words(zp_arena *arena, const zp_program *program, int stage, const zp_move *move);
/* The list in words, stage by stage, a line a record; then a line for every strategy. */
const char *zp_moves_text(zp_arena *arena, const zp_program *program);

/* What of a step's bytes leaves a node, by axis; ZP_ACROSS_UNKNOWN. */
typedef struct zp_across {
  int64_t tensor, data, pipeline, tie, expert, context, warmup_data;
} zp_across;
/* Bytes that all ranks together send in one step, by axis. */
typedef struct zp_traffic {
  int64_t tensor, data, pipeline, tie, expert, context;
  int64_t routed;      /* of `expert`: what an even load sends, where routing decides */
  int64_t warmup_data; /* 1-bit Adam: over the data ranks in a step before the variance freezes; 0 for others */
  double average_data; /* of the steps that a price is of; the same as `data` but for 0/1 Adam */
} zp_traffic;
zp_traffic zp_program_traffic(const zp_program *program);
zp_across zp_program_across(const zp_program *program);
/* Bytes that a step sends fewer because sums are rounded to leave a node. */
int64_t zp_program_spared_bytes(const zp_program *program);
/* Bytes that all ranks together move in one step between device and host, and between host and disks. */
typedef struct zp_tier_bytes {
  int64_t down, up, read, written;
  int64_t signs_down, signs_up; /* 1-bit Adam: so many more once its variance is frozen; with ZeRO 1 fewer, below 0 */
} zp_tier_bytes;
zp_tier_bytes zp_program_tier_bytes(const zp_program *program);

#endif
