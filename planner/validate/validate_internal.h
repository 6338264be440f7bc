/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside this folder: CSV records, the model of a row, which software profile stands for it. */
#ifndef ZPLAN_VALIDATE_INTERNAL_H
#define ZPLAN_VALIDATE_INTERNAL_H

#include <string.h>
#include <zplan/validate.h>
#include <zplan/profile.h>

/* Does a column have that word? NULL: it is empty. */
static inline bool zp_run_says(const char *column, const char *word) { return column && strcmp(column, word) == 0; }

/* ---- csv.c ---- */
typedef struct zp_csv {
  const char *text;
  size_t len, at;
  int line;          /* of the next record */
  const char *wrong; /* about the record last read; NULL: it is sound */
} zp_csv;
/* Reads the next record's fields (arena) into *fields and its first line into *line; false at the end of the text. A
 * record that is not sound is read on to its end. */
bool zp_csv_next(zp_arena *arena, zp_csv *csv, zp_strings *fields, int *line);

/* ---- gpus.c ---- */
/* hw.dz name of a GPU as tables print it; memory_gb: what another column says, 0 for nothing. NULL when unknown, or
 * made with several memories and neither says which. */
const char *zp_gpu_device(const char *printed, double memory_gb);

/* The number before "GB", "GiB" or "G" in a name; 0: none. */
double zp_gpu_printed_gb(const char *printed);

/* Bytes of device memory that the driver of such devices reports; 0 when unknown. */
int64_t zp_gpu_board_bytes(const char *device);

/* A framework's context and kernels on such a device, without NCCL, as nvidia-smi shows them. */
int64_t zp_gpu_context_bytes(const char *device);

/* Host memory, PCIe and disks of a node with such devices. */
void zp_gpu_host(const char *device, zp_node_type *node);

/* ---- open.c ---- */
/* Fills in what a predicted row leaves open; `full`: the row with all that was taken. */
void zp_open_columns(zp_arena *arena, const zp_measured *run, const zp_measured *full, zp_prediction *to);
/* GPUs of a node and bytes a second of a GPU's share of the network, where a row has neither. */
enum { ZP_USUAL_NODE = 8 };
#define ZP_USUAL_NETWORK 25e9

/* ---- model.c ---- */
/* Fills in what the row leaves open (heads, ffn, vocabulary) and says so in *assumed. */
zp_measured zp_run_complete(zp_arena *arena, const zp_measured_table *table, const zp_measured *run,
                            const char **assumed);
/* Where the shape contradicts itself, or makes another number of parameters than the row says; NULL: nowhere, or it
 * leaves too much open. */
const char *zp_shape_contradiction(zp_arena *arena, const zp_measured *run);
zp_model *zp_run_model(zp_arena *arena, const zp_measured *run, const zp_run_library *library);
/* FLOPs of one step as the row's source counts them: full attention, recomputation when `hardware`. */
double zp_run_flop(const zp_measured *run, bool hardware);

/* ---- model_text.c ---- */
/* Is the model written with the library's blocks? */
bool zp_run_is_written(const zp_measured *run);
/* A file with it, which trains it; arena. */
const char *zp_run_text(zp_arena *arena, const zp_measured *run);

/* ---- contradictions.c ---- */
/* Where columns of the row contradict each other; NULL: nowhere, or it leaves too much open. */
const char *zp_run_contradiction(zp_arena *arena, const zp_measured *run);

/* ---- sources.c ---- */
/* Precision of a source's runs where its tables have none: NULL where its programs say nothing either. */
const char *zp_open_precision(const char *source);

/* ---- software_cut.c ---- */
/* First units of the stages, stages + 1 numbers. Arena. */
int64_t *zp_software_cut(zp_arena *arena, const zp_model *model, const zp_software *software, int stages);

/* ---- software.c ---- */
/* *is_named: by the row's source, or by what its notes say; else by its year. */
const zp_software *zp_software_of(const zp_measured *run, bool *is_named);
/* A copy (arena) with the row's experts; the software itself where it has none. */
const zp_software *zp_software_with_experts(zp_arena *arena, const zp_measured *run, const zp_software *software);

#endif
