/* Private to the step's end: Muon (muon.c). */
#ifndef ZPLAN_RT_MUON_H
#define ZPLAN_RT_MUON_H

#include "state.h"

/* A matrix of this stage, whole: its elements stand together in the flat buffers and in the state. */
typedef struct zpr_matrix {
  int64_t begin, rows, cols;
  zpr_recipe recipe;
} zpr_matrix;

enum { ZPR_MUON_PIECE = 65536 }; /* elements of a matrix that a thread takes, but products */

typedef struct zpr_muon zpr_muon;
/* For the parameters of the stage that Muon updates. */
zpr_muon *zpr_muon_open(zpr *c);
void zpr_muon_close(zpr_muon *muon);
/* The whole update of these. */
void zpr_muon_update(zpr *c, const zpr_muon *muon, const zpk_update *rule);

/* ---- by the back ends: cpu/muon.c; plans for GPUs have no Muon ---- */
/* Works in the place of the second moment and in the scratch region: a copy of the matrix, two squares of the shorter
 * side, each at a multiple of 256 bytes. rule: with the recipe of the matrix. sums: room for one of every piece. */
void zpr_muon_matrix(zpr *c, const zpr_matrix *matrix, const zpk_update *rule, double *sums);

#endif
