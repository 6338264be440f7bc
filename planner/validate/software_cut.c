/* SPDX-License-Identifier: Apache-2.0 */
/* Where the measured software cuts the model into stages: by layers, by units, by parameters or by products. Units:
 * embedding, layers, head. */
#include "validate_internal.h"

/* Equal numbers of layers, embedding and head with the first and last, as Megatron cuts. Where layers do not divide,
 * stages are filled from the front, as DeepSpeed's partition_balanced does (deepspeed/runtime/utils.py). */
static void by_layers(int64_t layers, int stages, int64_t *cut) {
  int64_t most = (layers + stages - 1) / stages, placed = 0;
  for (int k = 1; k < stages; k++) {
    int64_t left = layers - placed - (stages - k);
    placed += left < most ? left : most;
    cut[k] = 1 + placed;
  }
}

/* Parameters that unit u brings; the table of tied embeddings counts at both ends. */
static int64_t weight_of(const zp_model *model, int64_t u) {
  const zp_segment *segment = model->segments.data;
  while (u >= segment->count) u -= (segment++)->count;
  int64_t elements = 0;
  for (int i = 0; i < segment->graph->params.len; i++)
    elements += zp_shape_elements(&model->params.data[segment->graph->params.data[i].param].shape, 1);
  return elements;
}

/* Fills stages up to `most` parameters, leaving a unit for every later stage. False when units are left over. */
static bool fill(const int64_t *weight, int64_t units, int stages, int64_t most, int64_t *cut) {
  int64_t u = 0;
  for (int k = 1; k <= stages; k++) {
    int64_t sum = 0;
    while (u < units - (stages - k) && (sum == 0 || sum + weight[u] <= most)) sum += weight[u++];
    if (sum > most) return false;
    if (k < stages) cut[k] = u;
  }
  return u == units;
}

/* The smallest bound that suffices, by bisection: PipelineModule's default, partition_method "parameters". */
static void by_parameters(zp_arena *arena, const zp_model *model, int64_t units, int stages, int64_t *cut) {
  int64_t *weight = ZP_NEW_ARRAY(arena, int64_t, units), low = 0, high = 0;
  for (int64_t u = 0; u < units; u++) high += weight[u] = weight_of(model, u);
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (fill(weight, units, stages, middle, cut))
      high = middle;
    else
      low = middle;
  }
  fill(weight, units, stages, high, cut);
}

/* Unit after unit to a stage until the products so far exceed its share of all, as nanotron assigns blocks
 * (src/nanotron/models/base.py: thresholds); the embedding has no products. Every stage keeps a unit. */
static void by_products(const zp_model *model, int64_t units, int stages, int64_t *cut) {
  double all = 0, sum = 0;
  for (int64_t u = 1; u < units; u++) all += (double)weight_of(model, u);
  int k = 1;
  for (int64_t u = 0; u < units && k < stages; u++) {
    sum += u > 0 ? (double)weight_of(model, u) : 0;
    bool must = units - (u + 1) == stages - k; /* as many units left as stages */
    if (sum > all * k / stages || must) cut[k++] = u + 1;
  }
}

int64_t *zp_software_cut(zp_arena *arena, const zp_model *model, const zp_software *software, int stages) {
  int64_t *cut = ZP_NEW_ARRAY(arena, int64_t, stages + 1), units = 0;
  for (int s = 0; s < model->segments.len; s++) units += model->segments.data[s].count;
  if (software->cuts_units)
    for (int k = 0; k < stages; k++) cut[k] = (units * k + stages - 1) / stages;
  else if (software->cuts_by_parameters)
    by_parameters(arena, model, units, stages, cut);
  else if (software->cuts_by_products)
    by_products(model, units, stages, cut);
  else
    by_layers(units - 2, stages, cut);
  cut[stages] = units;
  return cut;
}
