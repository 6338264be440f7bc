/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of other programs: folders of safetensors files, and which of their elements are which of a model's.
 *
 * A folder of Hugging Face has a config.json. The model that it means is elaborated as `zplan import hf` would write
 * it and laid alongside the user's model, operation by operation: so it is known which parameter is which whatever
 * their names are, and that both compute the same. A folder of zplan (a checkpoint) has the model's own names. */
#ifndef ZPLAN_WEIGHTS_H
#define ZPLAN_WEIGHTS_H

#include <zplan/import.h>
#include <zplan/sema.h>

enum { ZP_WEIGHT_DIMS = 6, ZP_TENSOR_RANK = 8 };

/* ---- folders (folder.c, safetensors.c) ---- */
typedef struct zp_weight_file {
  const char *path;
  int64_t bytes;
} zp_weight_file;

typedef struct zp_weight_tensor {
  const char *name, *dtype; /* "F32" */
  int rank;
  int64_t shape[ZP_TENSOR_RANK];
  int file;       /* index of the folder's files */
  int64_t offset; /* bytes of the file before its data */
  int64_t elements;
} zp_weight_tensor;

typedef struct zp_weight_folder {
  const char *path; /* of the files */
  ZP_VEC(zp_weight_file) files;
  ZP_VEC(zp_weight_tensor) tensors; /* by name */
  bool of_zplan;                    /* a checkpoint: names are the model's */
  bool averages;                    /* what is taken are the averages of its weights (zp_weights_take_averages) */
  const char *config_path;          /* config.json; NULL: there is none */
} zp_weight_folder;

/* Reads the headers of a folder's files. `path` may be a folder of zplan's checkpoints: then the newest of them. NULL
 * after reporting what is missing or damaged (Z0691), or in a format that is not read (Z0692). */
zp_weight_folder *zp_weights_open(zp_arena *arena, zp_diags *diags, const char *path);
const zp_weight_tensor *zp_weights_find(const zp_weight_folder *folder, const char *name); /* NULL: none */
/* From now on the averages of the weights that a checkpoint holds (`ema`) stand for its weights. False after reporting
 * that it holds none (Z0691). */
bool zp_weights_take_averages(zp_arena *arena, zp_diags *diags, zp_weight_folder *folder);
/* The tensor that is read for a parameter of the model: of a checkpoint of zplan its average where that is asked for
 * and it has one, else its f32 master copy where there is one and `exact` asks for it. NULL: none. */
const zp_weight_tensor *zp_weights_source(zp_arena *arena, const zp_weight_folder *folder, const char *name,
                                          bool exact);
/* Bytes of an element; 0: a dtype that is not read. */
int zp_weight_dtype_bytes(const char *dtype);
/* "[2, 3]". Arena. */
const char *zp_weight_shape(zp_arena *arena, int rank, const int64_t *shape);

/* ---- which parameter is which (match.c) ---- */
/* Rows of a parameter of one model and of the other. A matrix's rows are its outputs, also where it is written [in,
 * out] in one of them. */
typedef struct zp_param_match {
  int ours, theirs; /* indices of parameters */
  int64_t our_row, their_row, rows;
  bool turned; /* one of them is [in, out] */
} zp_param_match;
typedef ZP_VEC(zp_param_match) zp_param_matches;

typedef struct zp_model_difference {
  const char *text; /* NULL: none */
  zp_span span;     /* of ours */
} zp_model_difference;

/* Do both models compute the same from their parameters? Dropout and initial values do not count, sizes neither.
 * `their_name`: of the other, for messages. */
zp_param_matches zp_match_models(zp_arena *arena, const zp_model *ours, const zp_model *theirs, const char *their_name,
                                 zp_model_difference *difference);

/* ---- the map (map.c) ---- */
/* Elements of a tensor of a checkpoint, and of a parameter's instance. As zp_hf_part; `from`: the first one of the
 * tensor. */
typedef struct zp_weight_part {
  const char *ours, *param; /* the instance, "h.3.mlp.weight", and its parameter, "h.{}.mlp.weight" */
  int64_t begin, from;
  int n;
  int64_t extents[ZP_WEIGHT_DIMS], strides[ZP_WEIGHT_DIMS];
} zp_weight_part;

typedef struct zp_mapped_tensor {
  const char *name; /* with the family's prefix */
  int rank;
  int64_t shape[ZP_HF_DIMS];
  ZP_VEC(zp_weight_part) parts;
  bool optional; /* of an adapter, which is drawn where a folder has none */
  /* It stands in the map's adapters. same_as: it has no parts, and the values of that tensor. */
  bool of_peft;
  const char *same_as;
} zp_mapped_tensor;

typedef struct zp_weight_map {
  const zp_imported *imported; /* the family's; NULL: of zplan */
  /* zp_weights_take_part: tensors that are drawn, and names of those of the folder that are not read. */
  zp_strings drawn;               /* instances of the model's parameters */
  zp_strings left;                /* tensors of which these would be */
  const zp_name_patterns *unread; /* NULL: none */
  const zp_weight_folder *peft;   /* zp_weights_add_adapters; NULL: none */
  zp_strings differences;         /* between adapter_config.json and the model's adapters */
  ZP_VEC(zp_mapped_tensor) tensors;
} zp_weight_map;

/* The tensors that a checkpoint of Hugging Face has of this model. `path`, `json`: its config.json. NULL after
 * reporting what it asks for that the language lacks (Z0683, Z0684), where it computes something else (Z0693), or has
 * other sizes (Z0694), but for parameters that are `drawn` (NULL: none). */
zp_weight_map *zp_weights_map_hf(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const char *library_dir,
                                 const char *path, const char *json, size_t len, const zp_name_patterns *drawn);
/* The tensors of a checkpoint of zplan. */
zp_weight_map *zp_weights_map_own(zp_arena *arena, const zp_spec *spec);

/* ---- the map as the trainer reads it (places.c) ---- */
/* NULL after reporting the tensors that are missing, too many or of another shape, all together (Z0694). Notes say
 * what is not read. */
const char *zp_weights_place(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                             const zp_weight_folder *folder, zp_strings *notes);
/* The map of a folder's kind. */
zp_weight_map *zp_weights_map(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const char *library_dir,
                              const zp_weight_folder *folder, const zp_name_patterns *drawn);

/* Adds the tensors of a folder of PEFT (adapter_config.json, adapter_model.safetensors) to the map of Hugging Face
 * that they are alongside. What its numbers and names have otherwise is reported with the tensors, by
 * zp_weights_place; false after reporting what is not read at all (Z0691, Z0692), or where the model has no such
 * adapters (Z0682, Z0694). */
bool zp_weights_add_adapters(zp_arena *arena, zp_diags *diags, const zp_spec *spec, zp_weight_map *map,
                             const char *folder, zp_strings *notes);

/* From a folder, one of adapters (NULL: these are drawn) and a model to the trainer's map; all of the above. */
const char *zp_weights_for(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const char *library_dir,
                           const char *folder, const char *adapters, zp_strings *notes);

/* ---- out of zplan (export.c) ---- */
typedef struct zp_weight_export {
  const zp_weight_folder *checkpoint; /* of zplan; compared with the model */
  const zp_weight_map *map;           /* of Hugging Face */
  const zp_model *model;              /* whose adapters are added to their weights */
  const zp_weight_folder *like;       /* the folder that the run began with: its names and files; NULL: none */
  const char *config;                 /* text of config.json */
  size_t config_len;
  zp_strings copies;   /* files that go alongside it */
  const char *dtype;   /* "F32" */
  int64_t shard_bytes; /* most of one file; 0: as `like`, or one file */
  const char *folder;  /* to be made */
} zp_weight_export;
/* False after reporting (Z0695; Z0691 what cannot be read): then there is no folder. */
bool zp_weights_export(zp_arena *arena, zp_diags *diags, const zp_weight_export *job);

/* ---- adapters into the format of PEFT (peft.c) ---- */
typedef struct zp_peft_export {
  const zp_weight_folder *checkpoint; /* of zplan; compared with the model */
  const zp_weight_map *map;           /* of Hugging Face: of the model without adapters */
  const zp_spec *spec;
  const char *base;   /* folder of the model that they are for; NULL: not known */
  const char *dtype;  /* "F32" */
  const char *folder; /* to be made: adapter_config.json, adapter_model.safetensors */
} zp_peft_export;
/* Tensors written; 0 after reporting (Z0682 what PEFT has no adapter for, Z0695, Z0691): then there is no folder. */
int zp_weights_export_peft(zp_arena *arena, zp_diags *diags, const zp_peft_export *job);

#endif
