/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of tables of measured runs, and the tables that are known by them. */
#ifndef ZPLAN_VALIDATE_COLUMNS_H
#define ZPLAN_VALIDATE_COLUMNS_H

#include "validate_internal.h"

/* UNUSED: known, and said by other columns too. */
typedef enum cell_kind { CELL_TEXT, CELL_INT, CELL_COUNT, CELL_REAL, CELL_BOOL, CELL_UNUSED } cell_kind;

typedef struct column {
  const char *title;
  cell_kind kind; /* INT: int, COUNT: int64_t, both at least 1 unless zero_ok */
  size_t offset;  /* in zp_measured */
  double scale;   /* REAL: to the field's unit */
  double most;    /* numbers, in the column's unit: beyond it nobody trains, and products of them leave 64 bits */
  bool zero_ok, required;
  bool fraction_ok;  /* a fraction leaves the field empty: sequences a GPU where tensor ranks share them */
  const char *holds; /* for the reference; of our own columns */
} column;

/* Where a run of the table comes from and what its columns do not say. `name`: the file's. */
typedef void fill_run(zp_arena *arena, zp_measured *run, const char *name);

typedef struct table_kind {
  const column *columns;
  int n_columns;
  bool loose;     /* numbers as pages print them: "8,320", "64 (0)", "4096?"; "n/a" and "-" are empty */
  fill_run *fill; /* NULL: our own columns */
} table_kind;

/* A table is of the first kind whose required columns it has; our own is the last. */
extern const table_kind zp_table_kinds[];
enum { ZP_TABLE_KINDS = 5, ZP_OWN_TABLE = ZP_TABLE_KINDS - 1 };

/* ---- sources.c ---- */
fill_run zp_fill_vtrain, zp_fill_bridge, zp_fill_automodel, zp_fill_simumax;

#endif
