/* Programs that plans are made for. zplan's own trainer is what the planner lowers and the generator prints; another
 * program is a profile of how it differs in kernels, messages and memory (planner/software/). A cluster says which of
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
/* Where its differences are documented. */
const char *zp_software_facts(const zp_software *software);
/* A word names a trainer, with the newest profile of it, or one profile. false: neither; *trainer is NONE then. zplan
 * has no profile: *software is NULL. */
bool zp_software_find(const char *word, zp_trainer *trainer, const zp_software **software);
/* Every word, for messages and completion. Arena. */
zp_strings zp_software_words(zp_arena *arena);
/* Bytes of a gradient element, which has compute_bytes in the generated trainer. software may be NULL. */
int zp_software_grad_bytes(const zp_software *software, int compute_bytes);
/* "for zplan's own trainer", "for Megatron-LM (profile megatron-core)". Arena. */
const char *zp_trainer_phrase(zp_arena *arena, const zp_cluster *cluster);

/* Seconds between which a step that is predicted to take step_s is likely to be measured. Not known: of these devices
 * or this program nothing was measured; `source` says so. */
typedef struct zp_step_range {
  bool known;
  double low_s, high_s;
  const char *source; /* in words, arena or constant */
  const char *family; /* of docs/accuracy.md; NULL: not known */
  int runs;           /* that it is from */
} zp_step_range;
zp_step_range zp_software_range(zp_arena *arena, const zp_cluster *cluster, bool several_nodes, double step_s);

/* ---- what a program can do: narrow.c, trainers.c ---- */
/* A key of the plan block whose limit leaves only values that the program lacks. */
typedef struct zp_lacking {
  const char *key, *why; /* "offload[gradients]", "gradients on disks are not generated yet" */
  zp_span span;          /* of the limit */
  zp_trainer other;      /* the first program that has one of the values; NONE: none has */
} zp_lacking;
typedef struct zp_narrowing {
  zp_strings keys;            /* whose limits were narrowed */
  ZP_VEC(zp_lacking) lacking; /* these limits are left alone */
  ZP_VEC(zp_lacking) useless; /* that allow what the cluster has no place for, among other values */
} zp_narrowing;
/* Limits the chosen plan block to what the cluster's program has. */
zp_narrowing zp_trainer_narrow(zp_arena *arena, zp_spec *spec);
/* Decisions that do not go together in the program: the first reason (constant), NULL when it can do them. What one key
 * decides is zp_trainer_narrow's; NONE can do everything. */
const char *zp_trainer_refusal(zp_trainer trainer, const zp_train *train, const zp_choice *choice);

#endif
