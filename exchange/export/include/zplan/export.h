/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in the words of other training programs: command-line arguments, configuration files, batch scripts.
 *
 * What a program cannot express is rejected with a message. Where the training stays the same and only its speed or
 * memory differ, that is a note. Nothing is left out silently. */
#ifndef ZPLAN_EXPORT_H
#define ZPLAN_EXPORT_H

#include <zplan/plan.h>

/* One list for enum, the word on the command line, the program's name, the ending of its file, the word of --for that a
 * .dz file is planned with (NULL: zplan's own trainer), and what it makes. */
/* clang-format off */
#define ZP_EXPORTS(X)                                                                                      \
  X(DEEPSPEED,  "deepspeed",       "DeepSpeed",       "json",   "deepspeed",       "its configuration file")     \
  X(MEGATRON,   "megatron",        "Megatron-LM",     "sh",     "megatron",        "its arguments")              \
  X(BRIDGE,     "megatron-bridge", "Megatron-Bridge", "py",     "megatron-bridge", "a recipe in Python")         \
  X(TORCHTITAN, "torchtitan",      "torchtitan",      "sh",     "fsdp",            "its arguments")              \
  X(FSDP2,      "fsdp2",           "FSDP2",           "py",     "fsdp",            "a Python script")            \
  X(SLURM,      "slurm",           "Slurm",           "sbatch", NULL,              "a batch script for sbatch")
/* clang-format on */
typedef enum zp_export_format {
#define ZP_EXPORT_ROW(name, word, program, ending, planned_for, makes) ZP_EXPORT_##name,
  ZP_EXPORTS(ZP_EXPORT_ROW)
#undef ZP_EXPORT_ROW
      ZP_EXPORT_COUNT
} zp_export_format;
const char *zp_export_ending(zp_export_format format);      /* "json" */
const char *zp_export_planned_for(zp_export_format format); /* NULL: the plan is for zplan's own trainer */
const char *zp_export_word(zp_export_format format);

/* Something that cannot be expressed. */
typedef struct zp_export_refusal {
  bool of_model; /* the model has no such form there; else a decision of the plan or a setting of the training */
  zp_span span;  /* ZP_NO_SPAN: no place */
  const char *reason, *help; /* help may be NULL */
} zp_export_refusal;

/* All texts are of the arena. */
typedef struct zp_export {
  const char *text; /* the file; NULL when something was refused */
  zp_strings notes; /* what differs from the plan; also comments of the text where its format has comments */
  ZP_VEC(zp_export_refusal) refusals;
} zp_export;

/* Requires: a feasible plan. name: of the file that is written, without folder and ending, for comments. */
zp_export *zp_export_plan(zp_arena *arena, const zp_plan *plan, zp_export_format format, const char *name);

/* A config.json of Hugging Face for a model: of the family whose layers it has. `dtype`: "float32". Arena; NULL with
 * *reason and *span where no family has them. */
const char *zp_export_hf_config(zp_arena *arena, const zp_model *model, const char *dtype, const char **reason,
                                zp_span *span);

#endif
