/* Models and clusters of other programs as .dz files. */
#ifndef ZPLAN_IMPORT_H
#define ZPLAN_IMPORT_H

#include <zplan/diag.h>
#include <zplan/vec.h>

/* All texts are of the arena. */
typedef struct zp_imported {
  const char *text; /* a .dz file: blocks, model, and cluster, train and plan to fill in; or a cluster */
  zp_strings notes; /* fields that were left out, and what was chosen for the file */
} zp_imported;

/* The config.json of a Hugging Face model: gpt2, gpt_neox, llama, mistral, mixtral, qwen2. `path` and `json` are
 * borrowed and become a source of diags. NULL after reporting what is malformed (Z0683), or what the language cannot
 * say (Z0684). */
zp_imported *zp_import_hf(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len);

/* What Slurm says about a job (its environment, `scontrol show job`) or about nodes (`scontrol show node`): a cluster
 * block. As above; what is malformed is Z0685 with its place, GPUs that have no type or that the library has not are
 * Z0686. */
zp_imported *zp_import_slurm(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len);

/* NCCL's topology file (NCCL_TOPO_DUMP_FILE): a cluster block of one node. `gpu` is a device of the library, needed
 * where the file does not tell which GPUs it means; NULL: not said. As above; what is malformed is Z0687 with its
 * place, GPUs that are not known or of which `gpu` says something else are Z0686. */
zp_imported *zp_import_nccl(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                            const char *gpu);

#endif
