/* SPDX-License-Identifier: Apache-2.0 */
/* zp_fuse: neighbouring ROW nodes become FUSED nodes, one kernel each.
 *
 * Greedy over the nodes in order: a row node joins the groups that make its operands (their results then need not
 * travel through memory twice) and the groups that read the same rows (one read instead of two). Two groups may join
 * when their rows agree in shape, in column split and in how ropes pair columns, and when no path leads from one to the
 * other through a third node: then the joined group would have to run both before and after that node.
 *
 * Group outputs are only the values that someone outside reads. Backward rebuilds all others from the group's inputs,
 * which are in memory anyway, so nothing is stored for its sake. */
#include <assert.h>
#include "graph_internal.h"

/* Beyond this a kernel's live row values no longer fit its registers and first-level cache. An estimate. */
enum { MAX_GROUP_OPS = 32 };

typedef struct fuse_pass {
  const zp_graph *graph;
  zp_arena *arena;
  int n;          /* nodes */
  int *group;     /* per node: the group's number = its lowest member */
  int *size;      /* per group: members */
  zp_ints *users; /* per tensor: nodes that read it */
  bool *seen;     /* per group, scratch of the path search */
} fuse_pass;

static const zp_tensor *result_of(const fuse_pass *pass, int node) {
  return &pass->graph->tensors.data[pass->graph->nodes.data[node].out.data[0]];
}

static bool rows_agree(const fuse_pass *pass, int a, int b) {
  const zp_tensor *ta = result_of(pass, a), *tb = result_of(pass, b);
  return zp_shape_equal(&ta->shape, &tb->shape) && ta->split_dim == tb->split_dim && ta->full_dim == tb->full_dim &&
         ta->partial == tb->partial;
}

/* The rope of a group, NULL when it has none. */
static const zp_op_attr *rope_of(const fuse_pass *pass, int group) {
  for (int m = group; m < pass->n; m++)
    if (pass->group[m] == group && pass->graph->nodes.data[m].op == ZP_OP_ROPE) return &pass->graph->nodes.data[m].attr;
  return NULL;
}

/* A kernel reads a row at the other column of each pair, so that a group has one way to pair columns. */
static bool pairs_agree(const fuse_pass *pass, int ga, int gb) {
  const zp_op_attr *a = rope_of(pass, ga), *b = rope_of(pass, gb);
  return !a || !b || (a->head_size == b->head_size && a->interleaved == b->interleaved);
}

/* Ranks over which the positions of a sample are spread that a group's rope turns or dropout numbers: such a node stays
 * alone, because it is called for one stretch of positions after the other. 1: it has none. */
static int64_t spread_of(const fuse_pass *pass, int group) {
  for (int m = group; m < pass->n; m++) {
    const zp_node *node = &pass->graph->nodes.data[m];
    bool knows = node->op == ZP_OP_ROPE || node->op == ZP_OP_DROPOUT;
    if (pass->group[m] == group && knows && node->attr.parts > 1) return node->attr.parts;
  }
  return 1;
}

/* All ranks' rows of a sample; those of a tensor rank may be a share of them. */
static int64_t rows_of_sample(const fuse_pass *pass, int group, const zp_tensor *rows, int64_t here) {
  int64_t spread = spread_of(pass, group);
  return spread > 1 && rows->split_dim == 1 ? rows->full_dim * spread : here * spread;
}

/* Norms of heads have other rows than all else, so they stay alone. */
static int64_t row_parts_of(const fuse_pass *pass, int node) { return zp_op_row_parts(&pass->graph->nodes.data[node]); }

/* ---- paths between groups ---- */

static bool reaches(fuse_pass *pass, int from, int to);

/* Does a successor of group `from`, other than those in `skip`, reach group `to`? */
static bool successors_reach(fuse_pass *pass, int from, int to, int skip) {
  for (int m = 0; m < pass->n; m++) {
    if (pass->group[m] != from) continue;
    const zp_ints *out = &pass->graph->nodes.data[m].out;
    for (int i = 0; i < out->len; i++) {
      const zp_ints *users = &pass->users[out->data[i]];
      for (int u = 0; u < users->len; u++) {
        int next = pass->group[users->data[u]];
        if (next != from && next != skip && reaches(pass, next, to)) return true;
      }
    }
  }
  return false;
}

static bool reaches(fuse_pass *pass, int from, int to) {
  if (from == to) return true;
  if (pass->seen[from]) return false;
  pass->seen[from] = true;
  return successors_reach(pass, from, to, -1);
}

/* A path with at least one group between. */
static bool detour(fuse_pass *pass, int from, int to) {
  memset(pass->seen, 0, sizeof(bool) * (size_t)pass->n);
  return successors_reach(pass, from, to, to);
}

/* ---- grouping ---- */

static void try_join(fuse_pass *pass, int a, int b) {
  int ga = pass->group[a], gb = pass->group[b];
  if (ga == gb || !rows_agree(pass, a, b) || pass->size[ga] + pass->size[gb] > MAX_GROUP_OPS) return;
  if (spread_of(pass, ga) > 1 || spread_of(pass, gb) > 1) return;
  if (!pairs_agree(pass, ga, gb) || row_parts_of(pass, a) > 1 || row_parts_of(pass, b) > 1) return;
  if (detour(pass, ga, gb) || detour(pass, gb, ga)) return;
  int keep = ga < gb ? ga : gb, drop = ga < gb ? gb : ga;
  for (int m = 0; m < pass->n; m++)
    if (pass->group[m] == drop) pass->group[m] = keep;
  pass->size[keep] += pass->size[drop];
}

static bool is_row_node(const fuse_pass *pass, int node) { return zp_op_is_row(pass->graph->nodes.data[node].op); }

static void join_producers(fuse_pass *pass, int node) {
  const zp_ints *in = &pass->graph->nodes.data[node].in;
  for (int i = 0; i < in->len; i++) {
    int producer = pass->graph->tensors.data[in->data[i]].producer;
    if (producer >= 0 && is_row_node(pass, producer)) try_join(pass, producer, node);
  }
}

/* Only whole rows count: a shared bias or norm weight is no traffic worth a larger kernel. */
static void join_siblings(fuse_pass *pass, int node) {
  const zp_ints *in = &pass->graph->nodes.data[node].in;
  for (int i = 0; i < in->len; i++) {
    if (!zp_shape_equal(&pass->graph->tensors.data[in->data[i]].shape, &result_of(pass, node)->shape)) continue;
    const zp_ints *users = &pass->users[in->data[i]];
    for (int u = 0; u < users->len; u++)
      if (users->data[u] < node && is_row_node(pass, users->data[u])) try_join(pass, users->data[u], node);
  }
}

static void make_groups(fuse_pass *pass) {
  for (int i = 0; i < pass->n; i++) {
    pass->group[i] = i;
    pass->size[i] = 1;
  }
  for (int i = 0; i < pass->n; i++) {
    if (!is_row_node(pass, i)) continue;
    join_producers(pass, i);
    join_siblings(pass, i);
  }
}

/* ---- the FUSED node of a group ---- */

static bool needed_outside(const fuse_pass *pass, int tensor, int group) {
  const zp_ints *users = &pass->users[tensor];
  for (int u = 0; u < users->len; u++)
    if (pass->group[users->data[u]] != group) return true;
  return zp_ints_has(&pass->graph->carry_out, tensor) || zp_ints_has(&pass->graph->losses, tensor);
}

static bool made_inside(const fuse_pass *pass, int tensor, int group) {
  int producer = pass->graph->tensors.data[tensor].producer;
  return producer >= 0 && pass->group[producer] == group;
}

/* Adds the operands that come from outside as inputs; value[] maps tensors to value numbers. */
static void collect_inputs(const fuse_pass *pass, int group, zp_node *fused_node, int *value) {
  zp_fused *fused = fused_node->fused;
  zp_ints kinds = {0};
  for (int m = group; m < pass->n; m++) {
    if (pass->group[m] != group) continue;
    const zp_ints *in = &pass->graph->nodes.data[m].in;
    for (int i = 0; i < in->len; i++) {
      if (made_inside(pass, in->data[i], group) || zp_ints_has(&fused_node->in, in->data[i])) continue;
      zp_operand kind = ZP_OPERAND_ROWS;
      bool fits = zp_part_operand_kind(&result_of(pass, m)->shape, &pass->graph->tensors.data[in->data[i]].shape,
                                       fused->row_parts, &kind);
      assert(fits);
      (void)fits;
      value[in->data[i]] = fused_node->in.len;
      zp_push(pass->arena, &fused_node->in, in->data[i]);
      zp_push(pass->arena, &kinds, (int)kind);
    }
  }
  fused->n_in = fused_node->in.len;
  fused->operand = ZP_NEW_ARRAY(pass->arena, zp_operand, fused->n_in);
  fused->in_cols = ZP_NEW_ARRAY(pass->arena, int64_t, fused->n_in);
  for (int i = 0; i < fused->n_in; i++) {
    fused->operand[i] = (zp_operand)kinds.data[i];
    fused->in_cols[i] =
        zp_part_cols(&pass->graph->tensors.data[fused_node->in.data[i]].shape, fused->operand[i], fused->row_parts);
  }
}

static void collect_ops(const fuse_pass *pass, int group, zp_node *fused_node, int *value) {
  zp_fused *fused = fused_node->fused;
  for (int m = group; m < pass->n; m++) {
    if (pass->group[m] != group) continue;
    const zp_node *node = &pass->graph->nodes.data[m];
    zp_fused_op op = {.op = node->op,
                      .n_arg = node->in.len,
                      .attr = node->attr,
                      .span = node->span,
                      .name = node->name,
                      .cols = zp_shape_cols(&result_of(pass, m)->shape) / fused->row_parts};
    for (int k = 0; k < node->in.len; k++) op.arg[k] = value[node->in.data[k]];
    int result = node->out.data[0];
    value[result] = fused->n_in + fused->ops.len;
    zp_push(pass->arena, &fused->ops, op);
    if (needed_outside(pass, result, group)) {
      zp_push(pass->arena, &fused_node->out, result);
      zp_push(pass->arena, &fused->out_value, value[result]);
    }
    fused_node->name = node->name; /* a group is called after its last op */
    fused_node->span = node->span;
  }
}

static zp_node fused_node(const fuse_pass *pass, int group) {
  const zp_tensor *rows = result_of(pass, group);
  zp_node node = {.op = ZP_OP_FUSED, .fused = ZP_NEW(pass->arena, zp_fused)};
  zp_fused_set_rows(node.fused, rows, row_parts_of(pass, group));
  node.fused->rows_per_sample = rows_of_sample(pass, group, rows, node.fused->rows_per_sample);
  int *value = ZP_NEW_ARRAY(pass->arena, int, pass->graph->tensors.len);
  collect_inputs(pass, group, &node, value);
  collect_ops(pass, group, &node, value);
  return node;
}

/* ---- order ---- */

static bool group_ready(const fuse_pass *pass, int group, const bool *done) {
  for (int m = group; m < pass->n; m++) {
    if (pass->group[m] != group) continue;
    const zp_ints *in = &pass->graph->nodes.data[m].in;
    for (int i = 0; i < in->len; i++) {
      int producer = pass->graph->tensors.data[in->data[i]].producer;
      if (producer >= 0 && pass->group[producer] != group && !done[pass->group[producer]]) return false;
    }
  }
  return true;
}

/* The ready group whose last member comes first in the old order. */
static int next_group(const fuse_pass *pass, const bool *done, const int *last) {
  int best = -1;
  for (int g = 0; g < pass->n; g++) {
    if (pass->group[g] != g || done[g] || (best >= 0 && last[g] >= last[best])) continue;
    if (group_ready(pass, g, done)) best = g;
  }
  assert(best >= 0); /* joins keep the groups free of cycles */
  return best;
}

static bool is_dead(const fuse_pass *pass, int group) {
  for (int m = group; m < pass->n; m++)
    if (pass->group[m] == group)
      for (int i = 0; i < pass->graph->nodes.data[m].out.len; i++)
        if (needed_outside(pass, pass->graph->nodes.data[m].out.data[i], group)) return false;
  return true;
}

static void emit_groups(fuse_pass *pass, zp_graph *result) {
  bool *done = ZP_NEW_ARRAY(pass->arena, bool, pass->n);
  int *last = ZP_NEW_ARRAY(pass->arena, int, pass->n);
  int left = 0;
  for (int m = 0; m < pass->n; m++) {
    last[pass->group[m]] = m;
    left += pass->group[m] == m;
  }
  for (; left > 0; left--) {
    int g = next_group(pass, done, last);
    done[g] = true;
    if (!is_row_node(pass, g))
      zp_graph_add_node(result, pass->graph->nodes.data[g]);
    else if (!is_dead(pass, g))
      zp_graph_add_node(result, fused_node(pass, g));
  }
}

zp_graph *zp_fuse(const zp_graph *graph) {
  assert(zp_graph_is_forward(graph));
  zp_arena *arena = graph->arena;
  fuse_pass pass = {.graph = graph, .arena = arena, .n = graph->nodes.len};
  pass.group = ZP_NEW_ARRAY(arena, int, pass.n);
  pass.size = ZP_NEW_ARRAY(arena, int, pass.n);
  pass.seen = ZP_NEW_ARRAY(arena, bool, pass.n);
  pass.users = ZP_NEW_ARRAY(arena, zp_ints, graph->tensors.len);
  for (int i = 0; i < pass.n; i++)
    for (int k = 0; k < graph->nodes.data[i].in.len; k++)
      zp_push(arena, &pass.users[graph->nodes.data[i].in.data[k]], i);
  make_groups(&pass);
  zp_graph *result = zp_graph_copy_tensors(graph);
  emit_groups(&pass, result);
  result->n_forward = result->nodes.len;
  assert(!zp_graph_check(arena, result));
  return result;
}
