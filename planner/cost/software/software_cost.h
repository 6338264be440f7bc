/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the cost model: what the differences of other training programs cost. */
#ifndef ZPLAN_SOFTWARE_COST_H
#define ZPLAN_SOFTWARE_COST_H

#include <zplan/estimate.h>
#include <zplan/profile.h>

/* Share of a state class that lives off the device. */
static inline double zp_software_offloaded(const zp_choice *choice, zp_state state) {
  return choice->home[state].eighths / 8.0;
}

/* ---- row_kernels.c ---- */
/* What separate kernels move besides the fused one of a step: passes of half-precision rows, bytes of masks an
 * element. */
typedef struct zp_row_kernels {
  double passes, mask_bytes, kernels;
} zp_row_kernels;
zp_row_kernels zp_software_rows(const zp_software *software, const zp_step *step);

/* ---- tensor_overlap.c ---- */
/* Takes from the prices of sequence-sharded gathers and scatters what products hide. taken: share of the
 * multiprocessors that they keep from a product alongside them. Returns how many more kernels that makes. */
double zp_software_overlap_tensor(zp_procedure *procedure, const zp_graph *graph, const zp_lowered *lowered,
                                  const zp_machine *machine, const zp_software *software, double taken, bool forward);

/* ---- experts.c ---- */
/* An exchange of what experts take or give, over the data ranks `link` and `tensor` ranks, which divide the experts. */
typedef struct zp_exchange {
  const zp_lowered *lowered;
  const zp_machine *machine;
  const zp_graph *graph;
  const zp_step *step;
  const zp_group_link *link;
  double tensor;
} zp_exchange;
/* The gate of the graph's experts; NULL: it has none. */
const zp_node *zp_software_gate(const zp_graph *graph);
/* Seconds of it, and what of them adds to a step. */
double zp_software_exchange_s(const zp_exchange *x, const zp_software *software);
double zp_software_exchange_shown_s(const zp_exchange *x, const zp_software *software);
/* What is not hidden of exchanges of the first micro-batches and the last. */
double zp_software_alone_s(const zp_program *program, const zp_machine *machine, const zp_software *software);
/* Seconds of step i of the procedure, a product of experts, with its casts. */
double zp_software_grouped_s(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                             const zp_software *software, const zp_procedure *procedure, int i, bool forward);

/* What a layer of experts takes besides its steps: of the device, kernels that the host issues, and seconds of it. */
typedef struct zp_layer_cost {
  double device_s, kernels, host_s;
} zp_layer_cost;
zp_layer_cost zp_software_layer_of_experts(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                           const zp_software *software, bool forward);
/* Latent attention of a graph: columns of a head, of those that turn, of a value. */
typedef struct zp_latent {
  bool is;
  double heads, head, rotary, value;
} zp_latent;
zp_latent zp_software_latent_of(const zp_graph *graph);
/* Prices a step of latent attention by kernels made for it, where it is one. Attention itself has its price. */
void zp_software_latent(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                        const zp_latent *latent, zp_step *step);

/* ---- core_layers.c ---- */
/* What a step takes besides its price, and what backward computes again of a segment's forward part, which is priced.
 * experts: the segment has some, or latent attention. */
zp_layer_cost zp_software_core_step(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                    const zp_software *software, const zp_step *step, bool experts);
zp_layer_cost zp_software_again(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                const zp_software *software, const zp_latent *latent, const zp_procedure *forward);

/* ---- reprice.c ---- */
/* Prices the steps again whose kernels differ from the generated trainer's. tensor: the link of its ranks; expert: of
 * those that share experts. */
void zp_software_price(zp_lowered *lowered, const zp_machine *machine, const zp_software *software,
                       const zp_group_link *tensor, const zp_group_link *expert);

/* ---- step.c ---- */
/* Adds to the estimate of the generated trainer's order what the software does otherwise around its kernels. */
void zp_software_step(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                      const zp_software *software, zp_estimate *estimate);

/* ---- data_parallel.c ---- */
/* How much longer, or shorter, data-parallel communication delays the step; e: with the stages' times. */
double zp_software_data_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                          const zp_software *software);
/* How much longer the gathers and scatters of ZeRO 2 and 3 make the step. */
double zp_software_gathers_s(const zp_program *program, const zp_machine *machine, const zp_software *software);
/* How much longer the update of the fullest stage takes. */
double zp_software_update_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                            const zp_software *software);

/* ---- offload.c ---- */
/* How much longer the step takes with an optimizer on the host. */
double zp_software_offload_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                             const zp_software *software);

/* ---- messages.c ---- */
/* How much longer the step takes than with the generated trainer's messages. */
double zp_software_message_s(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                             const zp_software *software);

#endif
