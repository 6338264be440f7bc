/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizer has for a parameter alone, by the training settings and the parameter's name and shape. */
#ifndef ZPLAN_RECIPE_H
#define ZPLAN_RECIPE_H

#include <zplan/model.h>
#include <zplan/spec.h>

typedef struct zp_recipe {
  double lr_factor, weight_decay;
  bool orthogonal;  /* Muon's: its update is orthogonalised */
  double sign_rate; /* zp_param's: above 0, the optimizer leaves it alone */
} zp_recipe;
zp_recipe zp_recipe_of(const zp_train *train, const zp_param *param);
/* Can Muon take it? It is a matrix, and a layer's own. */
static inline bool zp_can_be_orthogonal(const zp_param *param) {
  return param->segment >= 0 && param->shape.rank == 2 && !param->frozen;
}
/* FLOP of the Newton-Schulz products of a matrix, and bytes that they work in alongside its state
 * (runtime/optimizer/muon.h): of steps on the shorter side n, the longer one m, 2 n n m + 2 n n n + 2 n n m each; a
 * copy of the matrix, and two of n x n. whole: padding included where nobody shares it. parts: elements of all tensor
 * ranks' parts of a matrix that they share, which stand in the copy's place, with the matrix after them; else 0. */
double zp_orthogonal_flop(const zp_param *param);
int64_t zp_orthogonal_bytes(const zp_shape *whole, int64_t parts, int64_t element_bytes);
/* Numbers that Adafactor keeps of its second moment: a row's and a column's mean each; of a vector all. 0: another
 * optimizer, or it is not trained. */
int64_t zp_statistics(const zp_train *train, const zp_param *param);
/* The group that the parameter is in; -1: in none. */
int zp_group_of(const zp_train *train, const zp_param *param);

#endif
