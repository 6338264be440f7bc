/* SPDX-License-Identifier: Apache-2.0 */
/* What the optimizer has for a parameter alone: of the first group whose pattern its name matches, or of all others. */
#include <assert.h>
#include <zplan/recipe.h>

int zp_group_of(const zp_train *train, const zp_param *param) {
  for (int i = 0; i < train->groups.len; i++)
    if (zp_matches_pattern(train->groups.data[i].pattern, param->name)) return i;
  return -1;
}

zp_recipe zp_recipe_of(const zp_train *train, const zp_param *param) {
  bool decays = train->decay_all || param->shape.rank >= 2;
  zp_recipe recipe = {.lr_factor = 1, .weight_decay = decays ? train->weight_decay : 0};
  if (param->sign_rate > 0) return (zp_recipe){.lr_factor = 1, .sign_rate = param->sign_rate};
  int i = zp_group_of(train, param);
  recipe.orthogonal = zp_optimizer_facts(train)->needs == ZP_NEEDS_MATRICES && zp_can_be_orthogonal(param);
  if (i < 0) return recipe;
  const zp_param_group *group = &train->groups.data[i];
  recipe.lr_factor = group->lr_factor;
  if (group->decays) recipe.weight_decay = group->weight_decay;
  if (group->muon == ZP_MUON_NO) recipe.orthogonal = false;
  return recipe;
}

/* ---- Muon ---- */

enum { NEWTON_SCHULZ = 5 /* steps */ };

static int64_t shorter(const zp_param *param) {
  assert(zp_can_be_orthogonal(param));
  return param->shape.dim[0] < param->shape.dim[1] ? param->shape.dim[0] : param->shape.dim[1];
}

double zp_orthogonal_flop(const zp_param *param) {
  double n = (double)shorter(param), m = (double)param->shape.dim[0] * (double)param->shape.dim[1] / n;
  return NEWTON_SCHULZ * (4 * n * n * m + 2 * n * n * n);
}

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

int64_t zp_orthogonal_bytes(const zp_shape *whole, int64_t parts, int64_t element_bytes) {
  assert(whole->rank == 2);
  int64_t rows = whole->dim[0], cols = whole->dim[1], n = rows < cols ? rows : cols, elements = rows * cols;
  int64_t copies = aligned((parts > 0 ? parts : elements) * element_bytes);
  if (parts > 0) copies += aligned(elements * element_bytes);
  return copies + aligned(n * n * element_bytes) + n * n * element_bytes;
}

/* ---- Adafactor ---- */

int64_t zp_statistics(const zp_train *train, const zp_param *param) {
  int rank = param->shape.rank;
  int64_t elements = 1;
  if (zp_optimizer_facts(train)->needs != ZP_NEEDS_STATISTICS || param->frozen) return 0;
  for (int i = 0; i < rank; i++) elements *= param->shape.dim[i];
  if (rank < 2) return elements;
  return elements / param->shape.dim[rank - 1] + elements / param->shape.dim[rank - 2];
}
