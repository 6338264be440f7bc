/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exchange/weights. */
#ifndef ZPLAN_WEIGHTS_INTERNAL_H
#define ZPLAN_WEIGHTS_INTERNAL_H

#include <zplan/buf.h>
#include <zplan/out_folder.h>
#include <zplan/weights.h>

/* Reads the header of a safetensors file and adds its tensors. False after reporting (Z0691). */
bool zp_safetensors_read(zp_arena *arena, zp_diags *diags, zp_weight_folder *folder, const char *path);

/* A tensor of a safetensors file that is written: bytes [begin, begin + bytes) after the header. */
typedef struct zp_out_tensor {
  const char *name;
  int rank;
  int64_t shape[ZP_HF_DIMS], begin, bytes;
} zp_out_tensor;
/* The header's length and text. */
zp_buf zp_safetensors_header(zp_arena *arena, const char *dtype, const zp_out_tensor *tensors, int n);
/* Reads `count` elements of a tensor, as they are in the file, from element `first` on. False after reporting
 * (Z0691). */
bool zp_weights_read(zp_diags *diags, const zp_weight_folder *folder, const zp_weight_tensor *tensor, int64_t first,
                     int64_t count, void *data);
/* Are both the same bytes of one type and shape? False where `of` has no tensor of that name. */
bool zp_weights_are_equal(const zp_weight_folder *folder, const zp_weight_tensor *tensor, const zp_weight_folder *of,
                          const char *name);
/* Reads a whole tensor as doubles. NULL after reporting (Z0691, Z0695). The caller's to free. */
double *zp_weights_read_all(zp_diags *diags, const zp_weight_folder *folder, const zp_weight_tensor *tensor);

/* ---- settings.c: two operations of one kind, ours and theirs, alongside each other ---- */
typedef struct zp_node_pair {
  zp_arena *arena;
  const zp_graph *graph[2];
  const zp_node *node[2];
  const char *their_name;
} zp_node_pair;
/* What their settings make different, in a sentence; NULL: nothing. Numbers are compared as files write them. Arena. */
const char *zp_settings_difference(const zp_node_pair *pair);

/* ---- merge.c: adapters as what they add to their weights ---- */
typedef struct zp_merge {
  const char *weight, *a, *b; /* names of instances */
  int64_t in, out, rank;
  bool trans;   /* stored [out, in]; a and b then are [rank, in] and [out, rank], else [in, rank] and [rank, out] */
  bool lookup;  /* of an embedding, whose inputs are tokens */
  bool experts; /* of as many as there are; in, out and rank are of one */
  double scale;
} zp_merge;
typedef ZP_VEC(zp_merge) zp_merges;
/* Adapters of all instances. Arena. */
const zp_merges *zp_merges_of(zp_arena *arena, const zp_model *model);
const zp_merge *zp_merge_of(const zp_merges *merges, const char *weight); /* NULL: the weight has none */
/* Adds scale a b to `count` elements of the weight from `first` on. False after reporting. */
bool zp_merge_add(zp_arena *arena, zp_diags *diags, const zp_weight_folder *checkpoint, const zp_merge *merge,
                  int64_t first, int64_t count, double *values);

/* ---- gather.c: values of a tensor of theirs ---- */
typedef struct zp_gather {
  zp_arena *arena;
  zp_diags *diags;
  const zp_weight_folder *checkpoint; /* of zplan; compared with the model */
  const zp_merges *merges;            /* adapters that weights take in */
  const char *dtype;                  /* of `data` */
} zp_gather;
/* False after reporting. */
bool zp_weights_gather(const zp_gather *gather, const zp_mapped_tensor *tensor, void *data);

/* ---- peft_modules.c: modules of theirs that have an adapter ---- */
typedef struct zp_peft_module {
  const char *name; /* "transformer.h.0.attn.c_attn" */
  const zp_merge *adapter;
  int64_t out;
  int64_t *row;   /* [out]: of our weight's outputs */
  bool fan_in;    /* a linear layer that is stored [in, out] */
  int64_t expert; /* of the adapter's */
} zp_peft_module;
typedef ZP_VEC(zp_peft_module) zp_peft_modules;
/* In the order of the map; of experts one an expert, as transformers had them before its version 5. False after
 * reporting what PEFT has no adapter for (Z0682). */
bool zp_peft_modules_of(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                        zp_peft_modules *to);
/* "base_model.model.NAME.lora_A.weight", of an embedding "base_model.model.NAME.lora_embedding_A"; which: 'A' [rank,
 * in] or 'B' [out, rank]. Arena. */
const char *zp_peft_tensor_name(zp_arena *arena, const zp_peft_module *module, char which);
/* Tensors of modules that are trained whole alongside the adapters; all of a module or none, and no tied ones: else
 * false after reporting (Z0682). */
typedef ZP_VEC(const zp_mapped_tensor *) zp_peft_saved;
bool zp_peft_saved_of(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                      zp_peft_saved *to);
/* "transformer.ln_f" of "transformer.ln_f.bias". Arena. */
const char *zp_peft_module_of(zp_arena *arena, const char *tensor);
/* "transformer.h.0.attn.c_attn" -> "attn.c_attn": PEFT takes whatever ends so. */
const char *zp_peft_target_of(const char *name);
/* Does "attn.c_attn" of target_modules mean the module? */
bool zp_peft_targets(const char *target, const char *module);

/* ---- peft_experts.c: adapters of the matrices of all experts ---- */
/* A parameter [experts, out, in] of transformers since its version 5: of one weight here or of several, which stand one
 * above the other (gate and up). PEFT has one adapter for it: lora_A [experts x rank, in], all ranks of an expert
 * before the next one's; lora_B [out, rank x experts], all experts of a rank before the next one's. */
enum { ZP_PEFT_PARTS = 2 };
typedef struct zp_peft_part {
  const zp_merge *adapter; /* NULL: none here */
  int64_t rank_at;         /* the first of its ranks */
} zp_peft_part;
typedef struct zp_peft_param {
  const char *name;   /* "model.layers.0.mlp.experts.gate_up_proj" */
  const char *module; /* that the adapter's tensors are of: "model.layers.0.mlp.experts.base_layer" */
  int64_t experts, in, rank;
  int64_t out; /* of a part */
  int parts;
  zp_peft_part part[ZP_PEFT_PARTS];
  zp_hf_expert first;
} zp_peft_param;
typedef ZP_VEC(zp_peft_param) zp_peft_params;
/* Takes the modules of experts out of the list and puts them together. Adapters of parts stand side by side: b then is
 * diagonal in blocks. */
zp_peft_params zp_peft_params_of(zp_arena *arena, const zp_weight_map *map, zp_peft_modules *modules);
/* Parts with adapters of their own are given one that they share. False: there are no such parts. */
bool zp_peft_share(zp_peft_param *param);
/* lora_alpha with which an adapter of that rank has the scale of this training. */
double zp_peft_alpha(const zp_adapt *adapt, int64_t rank);
/* "base_model.model.MODULE.lora_A.weight". Arena. */
const char *zp_peft_param_tensor(zp_arena *arena, const zp_peft_param *param, char which);

/* Reads the header of a folder of PEFT. NULL after reporting (Z0691, Z0692). */
zp_weight_folder *zp_weights_open_peft(zp_arena *arena, zp_diags *diags, const char *path);

/* The prefix of the family where the folder's tensors have none; "" where they have it. */
const char *zp_weights_prefix_left_out(const zp_weight_map *map, const zp_weight_folder *folder);

/* partial.c: leaves out of the map what the train block says is drawn or not read. False after reporting a name that
 * nothing has (Z0304), or of which one half would be drawn (Z0694). `init` outlives the map. */
bool zp_weights_take_part(zp_arena *arena, zp_diags *diags, const zp_initial *init, zp_weight_map *map,
                          const zp_weight_folder *folder);

#endif
