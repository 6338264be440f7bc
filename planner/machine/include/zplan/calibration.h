/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements of one machine, its cores and its first GPU (`zplan calibrate`), and what the cost model takes from
 * them.
 *
 * A file is JSON: {"format": "zplan-calibration", "version": 2, "machine": TEXT, "date": TEXT,
 * "identity": TEXT, "rows": [{"name", "value", "unit", "how"}]}. Rows that nobody knows are kept and ignored. */
#ifndef ZPLAN_CALIBRATION_H
#define ZPLAN_CALIBRATION_H

#include <zplan/json.h>
#include <zplan/spec.h>

typedef struct zp_measurement {
  const char *name;
  double value;
  const char *unit, *how;
} zp_measurement;
typedef struct zp_calibration {
  const char *machine, *date;
  const char *identity; /* of the machine and of what measured it (driver/kept_calibration.c); "": not said */
  ZP_VEC(zp_measurement) rows;
} zp_calibration;
enum { ZP_MOST_CALIBRATION_ROWS = 4096 };

/* The rows are listed in runtime/calibrate/README.md. Those of another version of the format are refused. */
zp_calibration *zp_calibration_read(zp_arena *arena, const zp_json *json, const char **error);
zp_json *zp_calibration_json(const zp_calibration *calibration);
/* The name of a calibration: a hash of machine, date, and all names and values. 16 hex digits. */
const char *zp_calibration_hash(zp_arena *arena, const zp_calibration *calibration);
/* As plan files carry it, so that their times can be derived again on every machine: {"hash", "of", "date", "rows":
 * {NAME: value}}. docs/reference/plan_json.md */
zp_json *zp_calibration_in_plan(zp_arena *arena, const zp_calibration *calibration);
zp_calibration *zp_calibration_from_plan(zp_arena *arena, const zp_json *json, const char **error);
/* The value of that row; `missing` when there is none. */
double zp_calibration_value(const zp_calibration *calibration, const char *name, double missing);

/* Appends the rates of a GPU's products: of the model's best tile, fitted to gpu_gemm_PRECISION_MxNxK rows (half, f32).
 * gpu_calibration.c */
void zp_calibration_fit_gpu(zp_arena *arena, zp_calibration *calibration);

/* Replaces the rates of a cluster by the measured ones, for the spec's precision and number of ranks; a CPU cluster
 * with another number of cores gets its share by core. The cluster borrows the calibration. false with *error (arena)
 * for a cluster of GPUs that were not measured, or a file that lacks what is asked of it; the cluster is unchanged. */
bool zp_calibration_apply(zp_arena *arena, const zp_calibration *calibration, zp_spec *spec, const char **error);
/* "calibration 0123456789abcdef of MACHINE (DATE)", for reports. NULL: the cluster has library numbers. */
const char *zp_calibration_words(zp_arena *arena, const zp_cluster *cluster);
/* The part of it for the kernels of CPU ranks; requires a cluster of CPUs. cpu_kernels.c */
bool zp_calibration_apply_kernels(zp_arena *arena, const zp_calibration *calibration, zp_spec *spec,
                                  const char **error);
/* Fills in how ranks of a node with so many cores reach each other. cpu_links.c */
struct zp_cpu_kernels;
void zp_cpu_links_make(const zp_calibration *calibration, double cores, struct zp_cpu_kernels *out);
/* The part of it for a cluster of GPUs, which is required; links between them stay the library's. */
bool zp_calibration_apply_gpu(zp_arena *arena, const zp_calibration *calibration, zp_spec *spec, const char **error);

#endif
