/* Private to the step's end: Muon (muon.c). */
#ifndef ZPLAN_RT_MUON_H
#define ZPLAN_RT_MUON_H

#include "state.h"

/* A matrix of this stage, whole: its elements stand together in the flat buffers and in the state. */
typedef struct zpr_matrix {
  int64_t begin, rows, cols; /* with what pads a side: zeros, which stay zeros */
  int64_t longer;            /* side, without */
  zpr_recipe recipe;
} zpr_matrix;

enum { ZPR_MUON_PIECE = 65536 }; /* elements of a matrix that a thread of a CPU rank takes, but products */

typedef struct zpr_muon zpr_muon;
/* For the parameters of the stage that Muon updates. */
zpr_muon *zpr_muon_open(zpr *c);
void zpr_muon_close(zpr_muon *muon);
/* The whole update of these. */
void zpr_muon_update(zpr *c, const zpr_muon *muon, const zpk_update *rule);
/* Every product of the update once, of whatever lies there (cuda/rehearsal.c). */
void zpr_muon_rehearse(zpr *c);

/* ---- by the back ends: cpu/muon.c, cuda/muon.c; numbers are of the type of the master weights ---- */
/* New momentum; the update by it, scaled to length 1, at `y`. The place of the second moment changes. sums: room for
 * one of every piece. `free`: 256 bytes or more that nothing needs, up to its end. */
typedef struct zpr_muon_room {
  double *sums; /* on the host */
  void *free;
  int64_t free_bytes;
} zpr_muon_room;
void zpr_muon_first(zpr *c, const zpr_matrix *matrix, const zpk_update *rule, void *y, const zpr_muon_room *room);
/* y = factor x, plus `diagonal` on the diagonal; n x n. x may be y. */
void zpr_muon_mix(zpr *c, double factor, double diagonal, const void *x, void *y, int64_t n);
/* zpr_gemm of such numbers; nothing is added. */
void zpr_gemm_real(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                   const void *b, int64_t ldb, void *y, int64_t ldy);
/* The parameters, by `scale` times x, with what is rounded from them and their average. */
void zpr_muon_apply(zpr *c, const zpr_matrix *matrix, const zpk_update *rule, const void *x, double scale);

#endif
