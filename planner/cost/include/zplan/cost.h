/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside the planner: time of units, stages and the pipeline, and of the end of a step. */
#ifndef ZPLAN_COST_H
#define ZPLAN_COST_H

#include <zplan/estimate.h>
#include <zplan/own_gpu.h>
#include <zplan/rates.h>

/* ---- step_end.c: what follows the micro-batches of a step on one stage ---- */
typedef struct zp_step_end {
  double reduce_s;     /* gradients over the data ranks, tied gradients over their stages; nothing overlaps with it */
  double taken;        /* what that reduction keeps from kernels alongside it: zp_cost_taken */
  double optimizer_s;  /* update of this rank's share on the device */
  double update_bytes; /* of device memory that it moves, the norm included */
  double offload_s;    /* how much longer the share that is updated on the host takes */
  double least_offload_s; /* the same without its first piece alone on each link: never less for more elements */
  double gather_s;        /* updated weights back to the data ranks (ZeRO 1, 2) */
  double delayed_s;       /* update on the host alongside the next step, in none of the others: zp_cost_delayed */
} zp_step_end;
/* A relaxation of the list, of which no more than elements is known: all of the stage's flat buffers, of which what is
 * trained counts. Buckets go all at once. With elements that are not padded it is never more than zp_cost_stage_end
 * (test_move_bounds.c), reduce_s once zp_cost_exposed_reduce has hidden what it can. Ties and partial sums are left
 * out. */
zp_step_end zp_cost_step_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             const zp_flat *all);
/* zp_cost_step_end of a stage that is laid out, whose casts are known. */
zp_step_end zp_cost_flat_end(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                             const zp_stage *stage);
/* The update alone, without sums and gathers, by such a relaxation, too: optimizer_s, offload_s, least_offload_s. */
zp_step_end zp_cost_step_update(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                                const zp_flat *all);
/* Collectives of the list that elements alone do not tell, each once a step: ties_s, gradients of tied parameters over
 * the stages that hold them; partial_s, what sequence sharding leaves partial, over the tensor ranks; update_s, what
 * data ranks exchange while they update. own: zp_machine_of_stage. For ties the index of the stage is enough. */
typedef struct zp_cross_sums {
  double ties_s, partial_s, update_s;
} zp_cross_sums;
zp_cross_sums zp_cost_cross_sums(const zp_program *program, const zp_machine *machine, const zp_machine *own,
                                 int stage);

/* ---- price.c ---- */
/* Links of the groups that exchange something inside units; of one rank where there are none. */
typedef struct zp_exchange_links {
  zp_group_link expert, context;
} zp_exchange_links;
zp_exchange_links zp_exchange_links_of(const zp_machine *machine, const zp_choice *choice);
/* Prices every step of lowered segments whose tensor groups and groups of exchanges have these links. */
void zp_price_links(zp_lowered *lowered, const zp_machine *machine, const zp_group_link *tensor,
                    const zp_exchange_links *exchange);
/* Leaves the collectives of a priced outline's steps (arena), and what the others take where it is asked for again:
 * pricing packed segments once more prices the exchanges alone, on the links of then. */
void zp_pack_outline(zp_arena *arena, zp_lowered *lowered);

/* ---- own_price.c ---- */
/* What a step does on the device of zplan's own GPU trainer; launches 0: nothing, or another program runs it. */
zp_kernel_work zp_cost_step_work(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                 const zp_step *step);

/* ---- duration.c ---- */
/* Seconds of one micro-batch on a chunk of a stage, or on a whole stage. */
typedef struct zp_stage_time {
  double forward_s, backward_s; /* all of it */
  double weights_s;             /* part of backward that BW takes when it is split */
  double comm_s;                /* part of both: tensor-parallel communication */
  double expert_s, context_s;   /* parts of both: exchanges in expert groups, in context groups */
  double data_s, offload_s;     /* parts of both: exposed transfers over the data ranks; to host and disks */
} zp_stage_time;
zp_stage_time zp_cost_chunk(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                            const zp_stage *stage, int chunk);
void zp_cost_add_time(zp_stage_time *sum, const zp_stage_time *time);

/* Computing time of one unit (a segment's iteration), communication over tensor ranks and exchanges included. */
typedef struct zp_unit_time {
  double forward_s, backward_s, weights_s, comm_s, expert_s, context_s;
} zp_unit_time;
zp_unit_time zp_cost_unit(const zp_segment_program *segment);
double zp_cost_act(const zp_unit_time *time, zp_act act);

/* ---- replicas.c: sums over the data ranks, bucket by bucket ---- */
/* How much longer the step takes for a reduction alongside the backward of the stage's last micro-batch. CPU ranks: all
 * of it, their trainer reduces after the last micro-batch. GPU ranks: at least its last piece, last_s and no less than
 * the share of one of `units`, and what the rest takes from backward, a share `taken` of the device. */
double zp_cost_exposed_reduce(const zp_machine *machine, double taken, double reduce_s, double last_s,
                              double backward_s, int64_t units);
/* Seconds of a micro-batch on a stage that yield gradients of weights. */
double zp_cost_overlapped(const zp_choice *choice, const zp_stage_time *time);
/* zp_cost_step_end of a stage of a program, with what strategies compute in the update (zp_moves_price). reduce_s is
 * what of it is left after the last backward: overlapped_s of the stage's micro-batch is zp_cost_overlapped. Never less
 * than zp_cost_step_end and zp_cost_exposed_reduce of the elements say. */
zp_step_end zp_cost_replicas_end(const zp_program *program, const zp_machine *machine, int stage, double overlapped_s);

/* ---- overlap.c: transfers alongside computing ---- */
typedef struct zp_exposed {
  double data_s, offload_s;
} zp_exposed;
zp_exposed zp_cost_exposed(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                           const zp_stage *stage, int chunk, zp_act act);
/* The link of data ranks, of the replicas of experts, or of those who have copies of the same shards. */
zp_group_link zp_cost_link_of(const zp_machine *machine, const zp_choice *choice, zp_move_end peers);
/* Time of a record that is a collective of them, and of a collective of so many bytes. */
double zp_cost_collective(const zp_group_link *link, const zp_move *move);
double zp_cost_way(const zp_group_link *link, zp_move_way way, double bytes);
/* Units as if they were one, without what padding adds, and with all that rounding may keep on the device. */
typedef struct zp_relaxed_unit {
  zp_flat elements;
  int64_t saved_bytes, units; /* of the units together; how many they are */
} zp_relaxed_unit;
enum { ZP_COLLECTIVE_WAYS = 4 };
/* Seconds of collectives among the data ranks and among the replicas of spread elements, by what they do: the price of
 * each is concave in bytes (the fastest of several rings) or convex (the slower one of two links). */
typedef struct zp_data_parts {
  double s[2][ZP_COLLECTIVE_WAYS];
} zp_data_parts;
/* What forward or backward of units takes at least with what it moves, whatever hides behind what: links_s; and data_s,
 * where it waits for the data ranks alongside computing. */
typedef struct zp_least_lanes {
  double data_s, links_s;
  bool waits;
  zp_data_parts parts; /* of data_s */
} zp_least_lanes;
typedef struct zp_least_moving {
  zp_least_lanes forward, backward;
} zp_least_moving;
/* Seconds of the action, with so much computing. */
double zp_cost_least_action(const zp_least_lanes *moving, double compute_s);
/* A relaxation of the list: zp_cost_least_action of both is never more than zp_cost_chunk of all chunks says
 * (test_move_bounds.c). replicas: NULL where nothing is spread. */
zp_least_moving zp_cost_least_moving(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                                     const zp_relaxed_unit *units, const zp_group_link *data,
                                     const zp_group_link *replicas);
/* Seconds of a micro-batch on a chunk, alongside the computing of its units, at least: where every unit that may be the
 * first or the last one of a chunk has no fewer elements and saved bytes than `unit`. Never more than zp_cost_chunk has
 * beyond that computing (test_move_bounds.c). */
double zp_cost_least_alone(const zp_lowered *lowered, const zp_machine *machine, const zp_choice *choice,
                           const zp_relaxed_unit *unit, const zp_group_link *data, const zp_group_link *replicas);
/* What one rank has of its node's rates. */
typedef struct zp_host_rates {
  double pcie_bytes_per_s, host_bytes_per_s, read_bytes_per_s, write_bytes_per_s;
} zp_host_rates;
zp_host_rates zp_cost_host_rates(const zp_machine *machine);
/* Infinite over an absent link; 0 for no bytes. */
double zp_cost_moving(double bytes, double bytes_per_s);

/* ---- pipeline.c: event simulation of the micro-batches ---- */
typedef struct zp_event {
  int stage;
  zp_action action;
  double begin_s, end_s;
} zp_event;
typedef void zp_on_event(void *user, const zp_event *event);
typedef struct zp_pipeline_run {
  int stages, chunks;
  const zp_choice *choice; /* placement of the chunks */
  int64_t microbatches;
  int64_t buffers;           /* messages of a chunk that may be under way in one direction */
  zp_action **order;         /* [stages][actions]; NULL: zp_pipeline_simulate makes them for its own use */
  const int64_t *actions;    /* [stages] */
  const zp_stage_time *time; /* [stages * chunks], chunks of a stage side by side */
  const double *message_s;   /* [stages * chunks]: between chunk k and k + 1 of the model, either way */
  double *end_s;             /* out, [stages]: end of the last action */
  /* zp_pipeline_1f1b alone; 0: all stages. Otherwise only the first `known` are simulated, and nothing is considered of
   * the others: the last of them has the gradient back rest_s after its activation arrived after it. When no rest
   * answers sooner, the known stages end no sooner, either. */
  int known;
  double rest_s;
  double first_rest_s, last_rest_s; /* the same of the first and of the last micro-batch, where it is more */
} zp_pipeline_run;
/* on_event may be NULL. Scratch memory comes from the arena and is given back. */
void zp_pipeline_simulate(zp_arena *arena, const zp_pipeline_run *run, zp_on_event *on_event, void *user);

/* ---- order_graph.c: order tables as one graph, to simulate them for many durations ---- */
typedef struct zp_order_graph zp_order_graph;
/* How often a chain of actions that wait for each other passes a place of the model. Of sums of chains: shares. */
typedef struct zp_place_weights {
  double forwards, backwards, weights; /* actions; backwards: whole ones, or gradients of inputs */
  double messages;                     /* to the next place, either way */
} zp_place_weights;
/* Arena. The run is borrowed, has its orders made; its times and messages may change between calls of the next one. */
zp_order_graph *zp_order_graph_new(zp_arena *arena, const zp_pipeline_run *run);
/* zp_pipeline_simulate of all stages, to the last bit. */
void zp_order_graph_run(zp_order_graph *graph);
/* Adds what the end of a stage waited for in the last run, from the beginning on. weights: [stages * chunks], by place
 * in the model. */
void zp_order_graph_chain(const zp_order_graph *graph, int stage, zp_place_weights *weights);
/* Adds another chain, which holds whatever the times: up to the first action of a stage, all of its actions, and from
 * there to the end of stage `end`, either the same one or that of the model's first chunk. */
void zp_order_graph_through(const zp_order_graph *graph, int end, int stage, zp_place_weights *weights);

/* ---- one_f_one_b.c ---- */
/* zp_pipeline_simulate for schedule 1F1B alone; looks at neither order nor actions. */
void zp_pipeline_1f1b(zp_arena *arena, const zp_pipeline_run *run);

/* ---- simulate.c ---- */
/* What follows the micro-batches on one stage of a program: reduce_s is what of all its reductions (data ranks,
 * ties, partial gradients) is left after the last backward. overlapped_s: as for zp_cost_replicas_end. Looks at no
 * other stage. */
zp_step_end zp_cost_stage_end(const zp_program *program, const zp_machine *machine, int stage, double overlapped_s);
/* delayed.c: seconds that the host of a rank works for records alongside the next step; 0: there are none. */
double zp_cost_delayed(const zp_program *program, const zp_machine *machine, int stage);
/* No step is shorter, whatever hides the update of a stage with this end; 0: it is not delayed. */
double zp_cost_delayed_step(const zp_step_end *end);
/* What a step has of the delayed update of the host that takes longest. */
typedef struct zp_delay {
  double host_s;  /* it works alongside the step */
  double shown_s; /* the step is longer for it: in offload_s of the estimate */
} zp_delay;
zp_delay zp_cost_delay(zp_arena *arena, const zp_program *program, const zp_machine *machine);
/* zp_cost_stage_end without what the program of the cluster may do in less: a bound of the stage's end. */
zp_step_end zp_cost_least_stage_end(const zp_program *program, const zp_machine *machine, int stage,
                                    double overlapped_s);
/* Time of one micro-batch on a stage, all of its chunks. */
zp_stage_time zp_cost_stage_time(const zp_pipeline_run *run, int stage);
/* Fills a pipeline run for a priced program, outputs included. Arena. */
zp_pipeline_run zp_cost_pipeline(zp_arena *arena, const zp_program *program, const zp_machine *machine);
/* Simulates the run with whichever of the two simulations is the faster one. */
void zp_cost_microbatches(zp_arena *arena, const zp_pipeline_run *run);
/* step_s of zp_simulate without its explanation, which takes a second run of the pipeline. Scratch memory is not given
 * back. Of 1F1B programs neither looks at the order tables. */
double zp_cost_step(zp_arena *arena, const zp_program *program, const zp_machine *machine);
/* No order of the stages' actions makes the step shorter: zp_cost_step without a simulation, from below, O(stages *
 * chunks). Looks at no order tables. */
double zp_cost_step_least(zp_arena *arena, const zp_program *program, const zp_machine *machine);
/* Bytes of a rank's message between model chunks k and k + 1, as the list has it; 0: they are on one stage. */
int64_t zp_cost_message_bytes(const zp_program *program, int64_t k);

/* ---- price.c ---- */
/* Is the step communication over the tensor ranks? */
bool zp_cost_is_comm(const zp_step *step);

#endif
