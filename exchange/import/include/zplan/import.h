/* SPDX-License-Identifier: Apache-2.0 */
/* Models and clusters of other programs as .dz files. */
#ifndef ZPLAN_IMPORT_H
#define ZPLAN_IMPORT_H

#include <zplan/diag.h>
#include <zplan/vec.h>

/* All texts are of the arena. */
typedef struct zp_imported {
  const char *text;             /* a .dz file: blocks, model, and cluster, train and plan to fill in; or a cluster */
  zp_strings notes;             /* fields that were left out, and what was chosen for the file */
  const char *program;          /* of a launch: what --for it is planned */
  const struct hf_model *model; /* private; NULL: no model */
} zp_imported;

/* The config.json of a Hugging Face model of a type in families.def. `path` and `json` are borrowed and become a source
 * of diags. NULL after reporting what is malformed (Z0683), or what the language cannot say (Z0684). */
zp_imported *zp_import_hf(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len);

/* The model alone, with the `use` lines that it needs. name: of the model; NULL: its type. */
zp_imported *zp_import_hf_model(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                                const char *name);
const char *zp_hf_model_name(const zp_imported *imported);
bool zp_hf_takes_arrays(const zp_imported *imported); /* its data are named arrays, not a stream of tokens */
double zp_hf_dropout(const zp_imported *imported);    /* of train { dropout = ... } */

/* For weights that such a file lies alongside: what it says of a training, and a head that is not written, matter
 * not. */
zp_imported *zp_import_hf_weights(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len);

/* For weights, with another head of the family: number `head` below zp_hf_heads: BERT's for masked tokens, with the
 * next sentence, for spans; T5's tied and untied; ViT on pixels and on patches; Qwen's layers with and without a
 * window, and all alike for samples that are no longer than the window. */
zp_imported *zp_import_hf_head(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len,
                               int head);
int zp_hf_heads(const zp_imported *imported); /* of the family; 1: there is no other */
int zp_hf_head(const zp_imported *imported);
int64_t zp_hf_longest(const zp_imported *imported); /* samples for which the text is the model; 0: any */
/* config.json where it says another head than the imported model has: changed. NULL: it says that one. Arena. */
const char *zp_hf_config_of_head(zp_arena *arena, const zp_imported *imported, const char *json, size_t len);

/* ---- checkpoints of an imported model (hf_names.c) ---- */

/* A parameter of the text: its name with the number of the iteration, "h.3.mlp.c_fc.weight", and its shape. */
typedef struct zp_hf_param {
  const char *name;
  int rank; /* up to 3 */
  int64_t shape[3];
} zp_hf_param;

enum { ZP_HF_DIMS = 4 };

/* A tensor of a checkpoint, and which elements of the parameter it holds: from element `begin` on, row by row in
 * `extents`, element (i, j, ...) is element i * strides[0] + j * strides[1] + ... of the tensor. */
typedef struct zp_hf_part {
  const char *name; /* with the family's prefix; arena */
  int rank;
  int64_t shape[ZP_HF_DIMS];
  int64_t begin;
  int n;
  int64_t extents[ZP_HF_DIMS], strides[ZP_HF_DIMS];
} zp_hf_part;
typedef ZP_VEC(zp_hf_part) zp_hf_parts;

/* The tensors that hold a parameter, in the order of its elements. */
zp_hf_parts zp_hf_parts_of(zp_arena *arena, const zp_imported *imported, const zp_hf_param *param);
/* A matrix of one expert, "model.layers.3.block_sparse_moe.experts.5.w3.weight". Since its version 5 transformers has
 * those of all experts in one parameter of a module, and gate and up in one with the gate's rows first. */
typedef struct zp_hf_expert {
  const char *module; /* "model.layers.3.mlp.experts"; arena */
  const char *param;  /* "gate_up_proj" */
  int place;          /* among the module's parameters */
  int64_t expert;
  int part, parts; /* of so many equal blocks of rows */
} zp_hf_expert;
/* False: the tensor is of no expert. */
bool zp_hf_expert_of(zp_arena *arena, const zp_imported *imported, const char *tensor, zp_hf_expert *to);
/* What transformers calls a module or its tensor since its version 5, whose checkpoints have the names from before:
 * "model.layers.3.mlp.gate" for "model.layers.3.block_sparse_moe.gate". Arena. */
const char *zp_hf_name_now(zp_arena *arena, const zp_imported *imported, const char *name);
/* "transformer.": in front of all tensors but the head's, where a checkpoint was saved with its head. */
const char *zp_hf_prefix(const zp_imported *imported);
/* Is it a tensor that checkpoints may hold once more under another name, such as a head that is the embedding? */
bool zp_hf_is_tied_copy(const zp_imported *imported, const char *name);
const char *zp_hf_tied_to(const zp_imported *imported, const char *name); /* which tensor that is; NULL: it is none */
bool zp_hf_is_tied_table(const zp_imported *imported, const char *name);  /* the table that is the head as well */
/* What the first checkpoints of the family called the tensor: "gamma" for the weight of a norm of BERT. NULL: the same.
 * Arena. */
const char *zp_hf_old_name(zp_arena *arena, const zp_imported *imported, const char *name);
/* Is it what some versions of the library saved with the weights and compute anew: masks, frequencies? */
bool zp_hf_is_buffer(const char *name);
/* Is it a table of positions, of which shorter samples use the first rows? */
bool zp_hf_is_position_table(const char *name);
const char *zp_hf_type(const zp_imported *imported); /* "llama" */

/* What Slurm says about a job (its environment, `scontrol show job`) or about nodes (`scontrol show node`): a cluster
 * block. As above; what is malformed is Z0685 with its place, GPUs that have no type or that the library has not are
 * Z0686. */
zp_imported *zp_import_slurm(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len);

/* NCCL's topology file (NCCL_TOPO_DUMP_FILE): a cluster block of one node. `gpu` is a device of the library, needed
 * where the file does not tell which GPUs it means; NULL: not said. As above; what is malformed is Z0687 with its
 * place, GPUs that are not known or of which `gpu` says something else are Z0686. */
zp_imported *zp_import_nccl(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                            const char *gpu);
/* The library's device of this number of NVIDIA, "h200"; NULL: it has none. */
const char *zp_gpu_of_pci_device(int64_t device);

/* ---- launches of other programs ---- */

/* What a pipeline of a model is cut between: an iteration of a repeat, which is a layer, or what stands between. */
typedef struct zp_launch_unit {
  bool layer;
  int64_t parameters; /* that it reads: a table that the head shares counts in both */
} zp_launch_unit;

/* What the command line says besides the file. */
typedef struct zp_launch_words {
  zp_strings args;                /* after `--`: words of the other program */
  int64_t gpus;                   /* 0: the launch says how many */
  const char *node;               /* the line of a cluster block that names the node, "node = std.hw.dgx_h100\n" */
  int64_t gpus_per_node;          /* of that node, 1 or more */
  const char *node_from;          /* "--machine dgx-h100"; NULL: nobody named it */
  const char *model, *model_name; /* a .dz text, and its model; NULL: the launch says it */
  double dropout;                 /* of that model */
  ZP_VEC(zp_launch_unit) units;   /* of that model, in order */
  bool tied;                      /* its last unit reads a parameter of its first */
} zp_launch_words;

/* A launch of Megatron-LM: a script, or (path and text NULL) the words after `--` alone. A .dz file with a plan block
 * `launched` that pins what the launch decides, and one, `free`, that leaves all to the search. NULL after reporting
 * what cannot be read (Z0688) or is another model or training (Z0689). */
zp_imported *zp_import_megatron(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                                const zp_launch_words *words);

/* A configuration file of DeepSpeed; words->args are KEY=VALUE that take the place of keys. Requires: words->model. As
 * above. */
zp_imported *zp_import_deepspeed(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                                 const zp_launch_words *words);

/* A launch of torchtitan: a TOML file, or (path and text NULL) --section.key alone; words->args take the place of its
 * keys. words->model NULL: by model.name and model.flavor. As above. */
zp_imported *zp_import_torchtitan(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                                  const zp_launch_words *words);

/* The version of Expat; NULL: built without it, and topologies are not read. */
const char *zp_xml_library(void);

#endif
