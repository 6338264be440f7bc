/* SPDX-License-Identifier: Apache-2.0 */
/* Sequence-sharded gathers and scatters alongside products.
 *
 * Piece by piece (Megatron-Core, torchtitan): a gather brings the product's operand, a scatter takes its result away;
 * all pieces but one, of as many as there are ranks, move while the product works on another.
 *
 * As one NCCL collective each (nanotron src/nanotron/parallel/tensor_parallel/functional.py): what is merged into one
 * product starts with the rank's own rows while the others are gathered. Backward gathers a column product's operand
 * again alongside the whole product that makes the gradient of it, and scatters that gradient alongside the product
 * that makes the weight's. */
#include <math.h>
#include <zplan/cost.h>
#include "software_cost.h"

/* A product alongside a gather is three: of the rank's own rows, of those before and of those after. */
enum { SPLIT_PRODUCTS = 3 };

typedef struct overlap {
  const zp_graph *graph;
  const zp_lowered *lowered;
  const zp_machine *machine;
  double tensor;  /* ranks */
  double kernels; /* more than before */
} overlap;

static bool is_product(const zp_step *step) {
  return step->kind == ZP_STEP_NODE && zp_op_get_class(step->op) == ZP_CLASS_MATMUL;
}

static bool is_op(const zp_step *step, zp_op op) { return step->kind == ZP_STEP_NODE && step->op == op; }

static bool is_gather(const zp_step *step) { return is_op(step, ZP_OP_ALL_GATHER_SEQ); }

static bool is_scatter(const zp_step *step) { return is_op(step, ZP_OP_REDUCE_SCATTER_SEQ); }

static bool reads(const zp_step *step, int buffer) {
  for (int i = 0; i < step->in.len; i++)
    if (step->in.data[i] == buffer) return true;
  return false;
}

/* ---- pieces ---- */

static double hidden_pieces_s(const zp_procedure *procedure, int i, double tensor) {
  const zp_step *steps = procedure->steps.data;
  int step = is_gather(&steps[i]) ? 1 : -1, at = i + step;
  while (at >= 0 && at < procedure->steps.len && !is_product(&steps[at])) at += step;
  if (at < 0 || at >= procedure->steps.len) return 0;
  return fmin(steps[i].cost_s * (1 - 1 / tensor), steps[at].cost_s);
}

/* ---- whole collectives ---- */

/* Products that need nothing of the gather and come before the first that does; without any, the own rows of all that
 * are like that first one, which then run in pieces. */
typedef struct overlapped {
  double apart_s, own_s;
  zp_step *first; /* that needs what is gathered */
  double columns; /* of all that are like it, which the software merged */
} overlapped;

static double columns_of(const overlap *o, const zp_step *step) {
  const zp_tensor *tensors = o->graph->tensors.data;
  double inner = (double)zp_shape_cols(&tensors[step->node->in.data[0]].shape);
  return (double)zp_shape_elements(&tensors[step->node->in.data[1]].shape, 1) / inner;
}

static overlapped overlapped_gather(const overlap *o, zp_procedure *procedure, int i) {
  zp_step *steps = procedure->steps.data;
  int gathered = steps[i].out.data[0];
  overlapped b = {0};
  for (int at = i + 1; at < procedure->steps.len && !is_gather(&steps[at]) && !is_scatter(&steps[at]); at++) {
    if (!is_product(&steps[at])) continue;
    bool needs = reads(&steps[at], gathered);
    if (needs && !b.first) b.first = &steps[at];
    bool alike = b.first && steps[at].op == b.first->op;
    if (needs && alike) {
      b.own_s += steps[at].cost_s / o->tensor;
      b.columns += columns_of(o, &steps[at]);
    }
    if (!needs && !alike) b.apart_s += steps[at].cost_s;
  }
  return b;
}

/* How much longer the pieces of a product take than the product: its rank's own rows, those before, those after. Of
 * the rank that waits longest. */
static double pieces_s(const overlap *o, const overlapped *b) {
  const zp_shape *shape = &o->graph->tensors.data[b->first->node->in.data[0]].shape;
  double rows = (double)zp_shape_rows(shape, o->lowered->microbatch), inner = (double)zp_shape_cols(shape), longest = 0;
  int bytes = o->lowered->compute_bytes;
  for (double before = 0; before < o->tensor; before++) {
    double own = rows / o->tensor, after = o->tensor - 1 - before;
    longest = fmax(longest, zp_cost_matmul(o->machine, own, b->columns, inner, bytes) +
                                zp_cost_matmul(o->machine, own * before, b->columns, inner, bytes) +
                                zp_cost_matmul(o->machine, own * after, b->columns, inner, bytes));
  }
  return fmax(0, longest - zp_cost_matmul(o->machine, rows, b->columns, inner, bytes));
}

/* What runs alongside a gather, after it was taken apart where it needs that. */
static double hidden_gather_s(overlap *o, zp_procedure *procedure, int i) {
  overlapped b = overlapped_gather(o, procedure, i);
  if (b.apart_s > 0 || !b.first) return b.apart_s;
  b.first->cost_s += pieces_s(o, &b);
  o->kernels += SPLIT_PRODUCTS - 1;
  return b.own_s;
}

/* Weight gradients since the last gather: of the products whose operand's gradient is scattered. */
static double hidden_scatter_s(const zp_procedure *procedure, int i) {
  const zp_step *steps = procedure->steps.data;
  double seconds = 0;
  for (int at = i - 1; at >= 0 && !is_gather(&steps[at]); at--)
    if (is_op(&steps[at], ZP_OP_MATMUL_WGRAD)) seconds += steps[at].cost_s;
  return seconds;
}

double zp_software_overlap_tensor(zp_procedure *procedure, const zp_graph *graph, const zp_lowered *lowered,
                                  const zp_machine *machine, const zp_software *software, double taken, bool forward) {
  overlap o = {.graph = graph, .lowered = lowered, .machine = machine, .tensor = lowered->sharding->tensor};
  for (int i = 0; i < procedure->steps.len; i++) {
    zp_step *step = &procedure->steps.data[i];
    if (!is_gather(step) && !is_scatter(step)) continue;
    if (is_scatter(step) && forward && software->scatters_wait) continue;
    double hidden = !software->whole_pieces ? hidden_pieces_s(procedure, i, o.tensor)
                    : is_gather(step)       ? hidden_gather_s(&o, procedure, i)
                                            : hidden_scatter_s(procedure, i);
    step->cost_s -= fmin(hidden, step->cost_s) * (1 - taken);
  }
  return o.kernels;
}
