/* SPDX-License-Identifier: Apache-2.0 */
/* The legal tensor-parallel patterns of every op: one table, and the conditions under which a row applies. Elementwise
 * operations have rows together, of one operand and of two, and so have the other ROW operations without rows of their
 * own; their flags say which of them hold.
 *
 * Legend: R replicated, S split on the last dimension in the natural units that zp_graph_infer_parts found, P partial
 * sum. Gradients mirror values: that of R is R, of S is S, of P is R, and of an operand that is entered (ENTER) is P.
 * So a replicated parameter may only meet replicated operands: its gradient then comes out complete on every rank.
 *
 * Q split along the sequence: the rank's positions of every sample, with a gradient split alike; a tensor gathered from
 * it for a divided matmul (G) has a partial gradient. A parameter alongside Q rows is either one row for all of them
 * (H: replicated, its gradient a part) or has a row per position and falls apart with them (ROWS). There is no row for
 * embedding -> Q: it would want the whole table on every rank, and a table can always be divided. None for attention
 * and cross-entropy: their rows read the whole sequence, or all ranks' columns. None for rope: attention, for which its
 * angles are made, has none; what turns before it is repeated for the heads is gathered.
 *
 * A mean over the positions, or some of them, of Q is a partial sum, whose gradient every rank has for its own
 * positions. What is joined may become Q, also of what is gathered from it, because positions move from rank to rank:
 * each rank writes its own positions of the result and has a part of the operands' gradients, zeros for the others'.
 *
 * One column of Q is [B, S] divided by its columns, which are the positions: what a cross-entropy over the positions
 * takes as it is.
 *
 * The largest, or the log-sum-exp, of all positions of Q is made of all of them on every rank (G), each of which takes
 * its part of the gradient: as with a squared error, a ranks-th of it. Of the columns of Q it is split by the
 * positions.
 *
 * What every head has is repeated for a rank's heads, so a part of the gradient comes from each. Columns that the heads
 * share turn before that: gathered from Q they have a partial gradient (ENTERED), as do angles of no heads.
 *
 * Windows reach over the shares of other ranks, so positions are gathered for them; a rank then has all windows or its
 * own. What is unfolded has every position in several windows: its operand is entered before (ENTERED), where it is
 * smaller.
 *
 * A norm of heads stands between products that are divided by heads: a rank has some of them, so a part of the gradient
 * of the weight that they share (H).
 *
 * X split along the experts. Every rank has all tokens of a sample, so it fills its own experts' slots without a
 * message, and what it combines is a partial sum. The gate reads all scores of a sample: gathered from Q they have a
 * partial gradient, and so have the weights made of them (ENTERED). The same form lets a token's columns be entered
 * before dispatch, [B, S, d], rather than after, where every token stands in the slots of several experts. */
#include "shard_internal.h"

#define N_ ZP_NEED_ANY
#define R_ ZP_NEED_R
#define E_ ZP_NEED_ENTER
#define S_ ZP_NEED_S
#define P_ ZP_NEED_P
#define Q_ ZP_NEED_SEQ
#define G_ ZP_NEED_GATHER
#define H_ ZP_NEED_SHARED
#define X_ ZP_NEED_EXPERTS
/* In the place of an operation: all elementwise ones with so many operands; those of whole rows, where operands after
 * the first are parameters. */
enum { ONE_OPERAND = ZP_OP_COUNT, TWO_OPERANDS, WHOLE_ROWS };
typedef struct row {
  int op;
  zp_pattern pattern;
} row;
static const row table[] = {
    {ZP_OP_EMBEDDING, {{N_, ZP_NEED_ROWS}, ZP_FORM_P}}, /* rows of other ranks give zeros */
    {ZP_OP_EMBEDDING, {{N_, S_}, ZP_FORM_S}},
    {ZP_OP_EMBEDDING, {{N_, R_}, ZP_FORM_R}},
    {ZP_OP_MATMUL, {{E_, ZP_NEED_W_OUT}, ZP_FORM_S}},
    {ZP_OP_MATMUL, {{G_, ZP_NEED_W_OUT}, ZP_FORM_S}},
    {ZP_OP_MATMUL, {{S_, ZP_NEED_W_IN}, ZP_FORM_P}},
    {ZP_OP_MATMUL, {{Q_, H_}, ZP_FORM_SEQ}},
    {ZP_OP_MATMUL, {{R_, R_}, ZP_FORM_R}},
    {ONE_OPERAND, {{S_}, ZP_FORM_S}},
    {ONE_OPERAND, {{X_}, ZP_FORM_EXPERTS}}, /* without a pole: slots may be empty */
    {ONE_OPERAND, {{P_}, ZP_FORM_P}},       /* linear */
    {ONE_OPERAND, {{Q_}, ZP_FORM_SEQ}},
    {ONE_OPERAND, {{R_}, ZP_FORM_R}},
    {TWO_OPERANDS, {{S_, S_}, ZP_FORM_S}},
    {TWO_OPERANDS, {{X_, X_}, ZP_FORM_EXPERTS}},
    {TWO_OPERANDS, {{P_, P_}, ZP_FORM_P}},
    {TWO_OPERANDS, {{Q_, Q_}, ZP_FORM_SEQ}},
    {TWO_OPERANDS, {{Q_, H_}, ZP_FORM_SEQ}},
    {TWO_OPERANDS, {{Q_, ZP_NEED_ROWS}, ZP_FORM_SEQ}},
    {TWO_OPERANDS, {{R_, R_}, ZP_FORM_R}},
    {WHOLE_ROWS, {{Q_, H_, H_}, ZP_FORM_SEQ}},
    {WHOLE_ROWS, {{S_, H_, H_}, ZP_FORM_S}}, /* of heads */
    {WHOLE_ROWS, {{R_, R_, R_}, ZP_FORM_R}},
    {ZP_OP_ROPE, {{S_}, ZP_FORM_S}},
    {ZP_OP_ROPE, {{G_}, ZP_FORM_ENTERED}},
    {ZP_OP_ROPE, {{R_}, ZP_FORM_R}},
    {ZP_OP_SPLIT, {{S_}, ZP_FORM_S}},
    {ZP_OP_SPLIT, {{X_}, ZP_FORM_EXPERTS}},
    {ZP_OP_SPLIT, {{Q_}, ZP_FORM_SEQ}},
    {ZP_OP_SPLIT, {{R_}, ZP_FORM_R}},
    {ZP_OP_MEAN, {{S_}, ZP_FORM_S}},
    {ZP_OP_MEAN, {{P_}, ZP_FORM_P}},
    {ZP_OP_MEAN, {{Q_}, ZP_FORM_P}},
    {ZP_OP_MEAN, {{R_}, ZP_FORM_R}},
    {ZP_OP_SLICE, {{S_}, ZP_FORM_S}},
    {ZP_OP_SLICE, {{P_}, ZP_FORM_P}},
    {ZP_OP_SLICE, {{Q_}, ZP_FORM_P}}, /* positions of other ranks give zeros */
    {ZP_OP_SLICE, {{R_}, ZP_FORM_R}},
    {ZP_OP_COLUMN, {{P_}, ZP_FORM_P}},
    {ZP_OP_COLUMN, {{Q_}, ZP_FORM_S}},
    {ZP_OP_COLUMN, {{R_}, ZP_FORM_R}},
    {ZP_OP_CONCAT, {{S_, S_}, ZP_FORM_S}},
    {ZP_OP_CONCAT, {{E_, E_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{H_, E_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{E_, H_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{G_, G_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{H_, G_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{G_, H_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{E_, G_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{G_, E_}, ZP_FORM_SEQ}},
    {ZP_OP_CONCAT, {{R_, R_}, ZP_FORM_R}},
    {ZP_OP_REDUCE, {{S_}, ZP_FORM_S}},
    {ZP_OP_REDUCE, {{G_}, ZP_FORM_R}},
    {ZP_OP_REDUCE, {{R_}, ZP_FORM_R}},
    {ZP_OP_REDUCE_COLUMNS, {{S_}, ZP_FORM_P}}, /* a sum, */
    {ZP_OP_REDUCE_COLUMNS, {{P_}, ZP_FORM_P}}, /* likewise */
    {ZP_OP_REDUCE_COLUMNS, {{Q_}, ZP_FORM_S}},
    {ZP_OP_REDUCE_COLUMNS, {{R_}, ZP_FORM_R}},
    {ZP_OP_GATHER, {{S_, N_}, ZP_FORM_S}},
    {ZP_OP_GATHER, {{P_, N_}, ZP_FORM_P}},
    {ZP_OP_GATHER, {{Q_, N_}, ZP_FORM_P}}, /* positions of other ranks give zeros */
    {ZP_OP_GATHER, {{R_, N_}, ZP_FORM_R}},
    {ZP_OP_RESHAPE, {{P_}, ZP_FORM_P}},
    {ZP_OP_RESHAPE, {{Q_}, ZP_FORM_SEQ}},
    {ZP_OP_RESHAPE, {{R_}, ZP_FORM_R}},
    {ZP_OP_UNFOLD, {{S_}, ZP_FORM_S}},
    {ZP_OP_UNFOLD, {{P_}, ZP_FORM_P}},
    {ZP_OP_UNFOLD, {{E_}, ZP_FORM_SEQ}}, /* each rank its own windows */
    {ZP_OP_UNFOLD, {{G_}, ZP_FORM_SEQ}},
    {ZP_OP_UNFOLD, {{E_}, ZP_FORM_ENTERED}},
    {ZP_OP_UNFOLD, {{G_}, ZP_FORM_ENTERED}},
    {ZP_OP_UNFOLD, {{R_}, ZP_FORM_R}},
    {ZP_OP_TRANSPOSE, {{P_}, ZP_FORM_P}},
    {ZP_OP_TRANSPOSE, {{Q_}, ZP_FORM_S}},   /* positions become columns, */
    {ZP_OP_TRANSPOSE, {{S_}, ZP_FORM_SEQ}}, /* and columns positions */
    {ZP_OP_TRANSPOSE, {{R_}, ZP_FORM_R}},
    {ZP_OP_COLUMNS, {{S_}, ZP_FORM_S}},
    {ZP_OP_COLUMNS, {{P_}, ZP_FORM_P}},
    {ZP_OP_COLUMNS, {{Q_}, ZP_FORM_SEQ}},
    {ZP_OP_COLUMNS, {{R_}, ZP_FORM_R}},
    {ZP_OP_JOIN_COLUMNS, {{S_, S_}, ZP_FORM_S}},
    {ZP_OP_JOIN_COLUMNS, {{P_, P_}, ZP_FORM_P}},
    {ZP_OP_JOIN_COLUMNS, {{Q_, Q_}, ZP_FORM_SEQ}},
    {ZP_OP_JOIN_COLUMNS, {{R_, R_}, ZP_FORM_R}},
    {ZP_OP_REPEAT_COLUMNS, {{E_}, ZP_FORM_S}},
    {ZP_OP_REPEAT_COLUMNS, {{G_}, ZP_FORM_S}},
    {ZP_OP_REPEAT_COLUMNS, {{P_}, ZP_FORM_P}},
    {ZP_OP_REPEAT_COLUMNS, {{Q_}, ZP_FORM_SEQ}},
    {ZP_OP_REPEAT_COLUMNS, {{R_}, ZP_FORM_R}},
    {ZP_OP_TOP_K_GATE, {{G_, R_}, ZP_FORM_ENTERED}}, /* every rank counts all choices for the bias */
    {ZP_OP_TOP_K_GATE, {{R_, R_}, ZP_FORM_R}},
    {ZP_OP_EXPERT_ROWS, {{N_}, ZP_FORM_R}},
    {ZP_OP_DISPATCH, {{E_, N_}, ZP_FORM_EXPERTS}}, /* of slots; where rows are sorted, all ranks have all experts */
    {ZP_OP_DISPATCH, {{G_, N_}, ZP_FORM_EXPERTS}},
    {ZP_OP_DISPATCH, {{E_, N_}, ZP_FORM_ENTERED}},
    {ZP_OP_DISPATCH, {{G_, N_}, ZP_FORM_ENTERED}},
    {ZP_OP_DISPATCH, {{R_, N_}, ZP_FORM_R}},
    {ZP_OP_BATCHED_MATMUL, {{X_, ZP_NEED_W_EXPERTS}, ZP_FORM_EXPERTS}},
    {ZP_OP_BATCHED_MATMUL, {{E_, ZP_NEED_W_OUT}, ZP_FORM_S}},
    {ZP_OP_BATCHED_MATMUL, {{S_, ZP_NEED_W_IN}, ZP_FORM_P}},
    {ZP_OP_BATCHED_MATMUL, {{R_, R_}, ZP_FORM_R}},
    {ZP_OP_COMBINE, {{X_, E_, N_}, ZP_FORM_P}},
    {ZP_OP_COMBINE, {{P_, E_, N_}, ZP_FORM_P}},
    {ZP_OP_COMBINE, {{R_, R_, N_}, ZP_FORM_R}},
    {ZP_OP_ATTENTION, {{S_, S_, S_}, ZP_FORM_S}},
    {ZP_OP_ATTENTION, {{S_, S_, S_, S_}, ZP_FORM_S}},     /* with a relative bias, */
    {ZP_OP_ATTENTION, {{S_, S_, S_, N_, S_}, ZP_FORM_S}}, /* and lengths */
    {ZP_OP_ATTENTION, {{R_, R_, R_}, ZP_FORM_R}},
    {ZP_OP_ATTENTION, {{R_, R_, R_, R_}, ZP_FORM_R}},
    {ZP_OP_ATTENTION, {{R_, R_, R_, N_, R_}, ZP_FORM_R}},
    {ZP_OP_CROSS_ENTROPY, {{S_, N_}, ZP_FORM_NONE}},
    {ZP_OP_CROSS_ENTROPY, {{R_, N_}, ZP_FORM_NONE}},
    {ZP_OP_SQUARED_ERROR, {{G_, N_}, ZP_FORM_NONE}},
    {ZP_OP_SQUARED_ERROR, {{R_, N_}, ZP_FORM_NONE}},
};
enum { N_ROWS = sizeof table / sizeof *table };

static const zp_tensor *tensor_of(const zp_graph *graph, int id) { return &graph->tensors.data[id]; }
static int last_dim(const zp_tensor *t) { return t->shape.rank - 1; }

int zp_need_dim(const zp_graph *graph, const zp_node *node, int operand, zp_need need) {
  int last = last_dim(tensor_of(graph, node->in.data[operand])); /* matrices of experts have one dimension in front */
  switch (need) {
  case ZP_NEED_S: return last;
  case ZP_NEED_W_OUT: return node->attr.trans ? last - 1 : last;
  case ZP_NEED_W_IN: return node->attr.trans ? last : last - 1;
  case ZP_NEED_ROWS:
  case ZP_NEED_W_EXPERTS: return 0;
  case ZP_NEED_SEQ:
  case ZP_NEED_EXPERTS: return 1;
  default: return -1;
  }
}

int zp_form_dim(const zp_tensor *t, zp_form form) {
  if (form == ZP_FORM_S) return last_dim(t);
  return form == ZP_FORM_SEQ || form == ZP_FORM_EXPERTS ? 1 : -1;
}

int64_t zp_local_size(int64_t size, zp_parts parts, int tensor) {
  int64_t unit = size / (parts.outer * parts.units);
  return parts.outer * ((parts.units + tensor - 1) / tensor) * unit;
}

/* Ranks past the end hold zeros. They must stay zeros (f(0) = 0) and give finite gradients: otherwise the padding of
 * a following matrix would be trained, or a NaN would spread from it. */
static bool keeps_zero(const zp_node *node) {
  if (node->op == ZP_OP_ADD_CONST) return node->attr.value == 0;
  if (node->op == ZP_OP_REDUCE) return node->attr.reduction != ZP_REDUCE_LOG_SUM_EXP;
  return zp_op_has(node->op, ZP_FLAG_KEEPS_ZERO);
}

/* May this dimension be divided at all? */
static bool divisible(zp_parts parts) { return parts.units >= 2; }

static bool same(zp_parts a, zp_parts b) { return a.outer == b.outer && a.units == b.units; }

/* Dropout's random numbers count logical columns. */
static bool op_allows(const zp_node *node, zp_parts split, int tensor) {
  int64_t heads = node->op == ZP_OP_ATTENTION ? node->attr.kv_heads : node->attr.heads;
  if (zp_op_has(node->op, ZP_FLAG_COLUMN_RANGE) && split.outer != 1) return false;
  if (zp_op_has(node->op, ZP_FLAG_HEADS) && (heads == 0 || heads % split.units != 0)) return false;
  return keeps_zero(node) || split.units % tensor == 0;
}

/* Do the divided dimensions of all operands and of the result fall apart in the same places? */
static bool agrees(const zp_graph *graph, const zp_node *node, const zp_pattern *pattern, int tensor) {
  const zp_tensor *out = node->out.len ? tensor_of(graph, node->out.data[0]) : NULL;
  zp_parts common = {0};
  if (pattern->out == ZP_FORM_SEQ) return true; /* equal shares of the positions, see falls_along_sequence */
  if (pattern->out == ZP_FORM_S || pattern->out == ZP_FORM_EXPERTS) {
    if (pattern->out == ZP_FORM_EXPERTS && (out->shape.rank != 4 || out->sorted)) return false;
    common = out->parts[zp_form_dim(out, pattern->out)];
    if (node->op == ZP_OP_SPLIT && pattern->out == ZP_FORM_S) common.outer *= node->attr.parts;
  }
  for (int i = 0; i < node->in.len; i++) {
    int dim = zp_need_dim(graph, node, i, pattern->in[i]);
    if (dim < 0) continue;
    zp_parts parts = tensor_of(graph, node->in.data[i])->parts[dim];
    if (!divisible(parts) || (pattern->in[i] == ZP_NEED_ROWS && parts.outer != 1)) return false;
    if (common.units == 0) common = parts;
    if (!same(common, parts)) return false;
  }
  return common.units == 0 || (divisible(common) && op_allows(node, common, tensor));
}

bool zp_divides_sequence(const zp_tensor *t, int tensor) {
  return t->shape.rank == 3 && t->element == ZP_ELEM_FLOAT && t->shape.dim[1] % tensor == 0;
}

/* Everything that the pattern splits along the sequence falls apart in equal shares of the same positions. */
static bool falls_along_sequence(const zp_graph *graph, const zp_node *node, const zp_pattern *pattern, int tensor) {
  if (node->op == ZP_OP_TRANSPOSE && pattern->out == ZP_FORM_SEQ) {
    zp_parts columns = tensor_of(graph, node->in.data[0])->parts[2];
    if (columns.outer != 1 || columns.units < 2 || columns.units % tensor) return false;
  }
  if (pattern->out == ZP_FORM_SEQ && !zp_divides_sequence(tensor_of(graph, node->out.data[0]), tensor)) return false;
  for (int i = 0; i < node->in.len; i++) {
    const zp_tensor *t = tensor_of(graph, node->in.data[i]);
    zp_need need = pattern->in[i];
    if ((need == ZP_NEED_SEQ || need == ZP_NEED_GATHER) && !zp_divides_sequence(t, tensor)) return false;
    if (pattern->out != ZP_FORM_SEQ) continue;
    bool elementwise = zp_op_has(node->op, ZP_FLAG_ELEMENTWISE); /* where a parameter of rank 2 has a row a position */
    if (need == ZP_NEED_SHARED && elementwise && t->shape.rank != 1) return false;
    if (need == ZP_NEED_ROWS && (t->shape.rank != 2 || t->parts[0].outer != 1 || t->parts[0].units % tensor))
      return false;
  }
  return true;
}

static bool is_activation_need(zp_need need) {
  return need == ZP_NEED_P || need == ZP_NEED_ENTER || need == ZP_NEED_SEQ || need == ZP_NEED_GATHER ||
         need == ZP_NEED_EXPERTS;
}

/* A parameter is split or replicated, never a partial sum. */
static bool params_allow(const zp_graph *graph, const zp_node *node, const zp_pattern *pattern) {
  for (int i = 0; i < node->in.len; i++)
    if (tensor_of(graph, node->in.data[i])->role == ZP_ROLE_PARAM && is_activation_need(pattern->in[i])) return false;
  return true;
}

/* What is to be spread over data ranks, too, are whole experts. */
static bool cuts_experts(const zp_shard_problem *problem, const zp_pattern *pattern, zp_op op) {
  return zp_op_get_class(op) == ZP_CLASS_GROUPED && problem->expert > 1 && problem->tensor > 1 &&
         pattern->out != ZP_FORM_EXPERTS;
}

/* Only a sum of columns is one of partial sums. */
static bool is_linear(const zp_node *node) {
  if (node->op == ZP_OP_REDUCE_COLUMNS) return node->attr.reduction == ZP_REDUCE_SUM;
  return zp_op_get_class(node->op) != ZP_CLASS_ROW || zp_op_has(node->op, ZP_FLAG_LINEAR);
}

/* Attention has a row for every list of operands. */
static bool has_operands(const zp_graph *graph, const zp_node *node, const zp_pattern *pattern) {
  for (int i = 3; node->op == ZP_OP_ATTENTION && i < ZP_SHARD_OPERANDS; i++) {
    bool bias = i < node->in.len && tensor_of(graph, node->in.data[i])->role == ZP_ROLE_PARAM;
    if ((pattern->in[i] != ZP_NEED_ANY) != bias) return false;
  }
  return true;
}

static int rows_of(const zp_node *node) {
  if (zp_op_has(node->op, ZP_FLAG_ELEMENTWISE)) return node->in.len == 1 ? ONE_OPERAND : TWO_OPERANDS;
  for (size_t i = 0; i < N_ROWS; i++)
    if (table[i].op == (int)node->op) return table[i].op;
  return zp_op_get_class(node->op) == ZP_CLASS_ROW ? WHOLE_ROWS : (int)node->op;
}

int zp_shard_patterns(const zp_shard_problem *problem, const zp_node *node, zp_pattern out[ZP_SHARD_PATTERNS]) {
  int n = 0, rows = rows_of(node);
  for (size_t i = 0; i < N_ROWS; i++) {
    const zp_pattern *pattern = &table[i].pattern;
    if (table[i].op != rows || !has_operands(problem->graph, node, pattern)) continue;
    if (rows == WHOLE_ROWS && pattern->out == ZP_FORM_S && !zp_op_has(node->op, ZP_FLAG_HEADS)) continue;
    if (pattern->out == ZP_FORM_P && !is_linear(node)) continue;
    if (pattern->out == ZP_FORM_EXPERTS && zp_op_has(node->op, ZP_FLAG_POLE)) continue;
    bool divided = pattern->out == ZP_FORM_S || pattern->out == ZP_FORM_P || pattern->in[0] == ZP_NEED_S ||
                   pattern->out == ZP_FORM_EXPERTS || pattern->out == ZP_FORM_ENTERED;
    bool sequence = pattern->out == ZP_FORM_SEQ || pattern->in[0] == ZP_NEED_GATHER || pattern->in[0] == ZP_NEED_SEQ;
    if ((divided && problem->tensor == 1) || (sequence && !problem->sequence)) continue;
    if (cuts_experts(problem, pattern, node->op)) continue;
    if (params_allow(problem->graph, node, pattern) && agrees(problem->graph, node, pattern, problem->tensor) &&
        falls_along_sequence(problem->graph, node, pattern, problem->tensor))
      out[n++] = *pattern;
  }
  return n;
}
