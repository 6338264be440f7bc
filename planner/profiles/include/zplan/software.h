/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that plans are made for. zplan's own trainer is what the planner lowers and the generator prints; another
 * program is a profile of how it differs in kernels, messages and memory (planner/profiles/). A cluster says which of
 * them runs on its devices (zp_cluster.trainer, zp_cluster.software). */
#ifndef ZPLAN_SOFTWARE_H
#define ZPLAN_SOFTWARE_H

#include <zplan/choice.h>

/* How a program differs from the generated trainer. */
typedef struct zp_software zp_software;

const char *zp_trainer_word(zp_trainer trainer);  /* "megatron" */
const char *zp_trainer_title(zp_trainer trainer); /* "Megatron-LM" */
/* "megatron-lm-v3" */
const char *zp_software_name(const zp_software *software);
/* A word names a trainer, with the newest profile of it, or one profile. false: neither; *trainer is NONE then. zplan
 * has no profile: *software is NULL. */
bool zp_software_find(const char *word, zp_trainer *trainer, const zp_software **software);
/* Whether experts of the program take the tokens that come, where the model drops none. software may be NULL. */
bool zp_software_dropless(const zp_software *software);
/* Whether CUDA graphs launch whole iterations of the program. software may be NULL. */
bool zp_software_launches_whole(const zp_software *software);
/* Whether all devices of the cluster can send a token once to each node of its experts: sm_90 and later (DeepEP,
 * README: Hopper; opened). */
bool zp_software_has_nodes(const zp_cluster *cluster);
/* Whether experts of the program that drop no token are sent to so. software may be NULL. */
bool zp_software_sends_once(const zp_software *software, const zp_cluster *cluster);
/* A copy of the program (arena) with products of layers by a recipe (zp_precision_recipe; other words of validate's
 * tables change nothing), which every device of the cluster must have. Why it cannot be, in words of the arena; NULL:
 * it can. *software may be NULL: zplan's own trainer, whose GPU kernels have none. */
const char *zp_software_with_recipe(zp_arena *arena, const char *recipe, const zp_cluster *cluster,
                                    const zp_software **software);
/* 32nds of a byte that it keeps of each weight of such products, besides the weight: the most that a device of the
 * cluster wants. software may be NULL: 0. */
int zp_software_weight_32nds(const zp_software *software);
/* Are trained weights of such products kept as these casts alone, by the plan? software may be NULL: no. */
bool zp_software_casts_alone(const zp_software *software, const zp_train *train, const zp_choice *choice);
/* Bits of such a weight that data ranks gather: 16, 8 or 4; of others 16. */
int zp_software_gathered_bits(const zp_software *software, const zp_train *train, const zp_choice *choice);
/* Bytes of a weight on the device, at least, whatever the plan. software may be NULL. */
int zp_software_least_weight_bytes(const zp_software *software, const zp_train *train, int compute_bytes);
/* Bytes of an activation [rows][cols] as such products read it for a weight's gradient, whose scales are along the
 * rows, scales included. */
int64_t zp_recipe_operand_bytes(const char *recipe, int64_t rows, int64_t cols);
/* Every word, for messages and completion. Arena. */
zp_strings zp_software_words(zp_arena *arena);
/* Bytes of a gradient element. In the generated trainer, where software is NULL, 16-bit trainings have it in f32:
 * gradients of micro-batches, replicas and ties are added. */
int zp_software_grad_bytes(const zp_software *software, zp_precision precision, int compute_bytes);
/* The year of the program that the newest profile describes, where that is not today's; 0: today's. software may be
 * NULL. */
int zp_software_of_year(const zp_software *software);
/* "for zplan's own trainer", "for Megatron-LM (profile megatron-core)". Arena. */
const char *zp_trainer_phrase(zp_arena *arena, const zp_cluster *cluster);

/* Seconds between which a step that is predicted to take step_s is likely to be measured. Not known: of these devices
 * or this program nothing was measured; `source` says so. */
typedef struct zp_step_range {
  bool known;
  double low_s, high_s;
  const char *source; /* in words, arena or constant */
  const char *brief;  /* "8 measured runs", or what was not measured */
  const char *family; /* of docs/evidence/accuracy.md; NULL: not known */
  int runs;           /* that it is from */
} zp_step_range;
zp_step_range zp_software_range(zp_arena *arena, const zp_cluster *cluster, bool several_nodes, double step_s);

#endif
