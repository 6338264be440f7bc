/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam with ZeRO 1, once the variance is frozen (formulas in kernels/optimizer/one_bit.c): a rank has moments
 * and exact weights of what it owns alone. Every rank adds its gradients to its error and sends the owners signs
 * and scales; an owner updates, and sends all of them signs and scales of what their weights shall change by. So a rank
 * keeps one error of every element, and with weights that are no copy of its own another one of what it owns.
 *
 * The record of an owner has its own elements in their order. The gradients are not needed any more once the error has
 * them, so the records lie in their place. Weights that are padding would take part where their neighbours do: they
 * become zero again. */
#include "one_bit_shards.h"
#include <assert.h>
#include <stdlib.h>
#include "one_bit.h"
#include "home.h"
#include "optimizer.h"
#include "state.h"

struct zpr_one_bit_shards {
  int64_t n, n_padding;
  zpr_owned_block *blocks;
  zpr_owned_block *padding;
  zpr_block *counted; /* the same blocks, for the norm */
  zpr_block_list list;
  double *squares;
};

/* ---- errors ---- */

/* Elements [begin, end) of instance i of a run, by their owners. */
static int64_t cut(zpr *c, const zpr_run *run, int64_t i, zpr_block b, zpr_owned_block *out) {
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_PARAMS, run, i);
  int64_t n = 0, first = run->base + i * run->stride;
  for (int64_t at = b.begin; at < b.end; n++) {
    int owner = (int)((at - first) / home.size);
    int64_t shard = first + owner * home.size, end = shard + home.size;
    int64_t piece = (at / zpr_block_elements + 1) * zpr_block_elements;
    if (piece < end) end = piece;
    if (b.end < end) end = b.end;
    if (out) {
      out[n] = (zpr_owned_block){b, owner};
      out[n].block.begin = at;
      out[n].block.end = end;
      out[n].block.to_state = home.own - shard;
    }
    at = end;
  }
  return n;
}

static int64_t find_blocks(zpr *c, zpr_owned_block *out) {
  int64_t n = 0;
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int64_t i = 0; i < run->count; i++)
      for (int k = 0; k < run->n_params; k++) {
        const zpr_param *param = &run->params[k];
        int64_t begin = run->base + i * run->stride + param->offset;
        zpr_block b = {.begin = begin, .end = begin + param->elements, .counted = zpr_counts(c, run, param, begin)};
        n += cut(c, run, i, b, out ? out + n : NULL);
      }
  }
  return n;
}

/* ---- padding: what of a parameter is no element of the tensor ---- */

typedef struct gaps {
  zpr *c;
  const zpr_run *run;
  int64_t i, at, n;
  zpr_owned_block *out; /* NULL: they are counted */
} gaps;

static void add_gap(gaps *g, int64_t end) {
  zpr_block b = {.begin = g->at, .end = end};
  g->n += cut(g->c, g->run, g->i, b, g->out ? g->out + g->n : NULL);
}

static void pass_piece(void *arg, int64_t local, int64_t global, int64_t count) {
  (void)global;
  gaps *g = arg;
  add_gap(g, local);
  g->at = local + count;
}

static int64_t find_padding(zpr *c, zpr_owned_block *out) {
  gaps g = {.c = c, .out = out};
  for (int r = 0; r < c->stage->n_runs; r++) {
    g.run = &c->stage->runs[r];
    for (g.i = 0; g.i < g.run->count; g.i++)
      for (int k = 0; k < g.run->n_params; k++) {
        g.at = g.run->base + g.i * g.run->stride + g.run->params[k].offset;
        int64_t end = g.at + g.run->params[k].elements;
        zpr_param_pieces(c, g.run, g.i, k, pass_piece, &g);
        add_gap(&g, end);
      }
  }
  return g.n;
}

void *zpr_one_bit_shards_open(zpr *c) {
  zpr_one_bit_shards *o = zpr_alloc(c, 1, sizeof *o);
  assert(c->program->zero == 1 && c->stage->flat[ZPR_KIND_SPREAD] == 0);
  o->n = find_blocks(c, NULL);
  o->blocks = zpr_alloc(c, (size_t)o->n, sizeof *o->blocks);
  find_blocks(c, o->blocks);
  o->n_padding = find_padding(c, NULL);
  o->padding = zpr_alloc(c, (size_t)o->n_padding + 1, sizeof *o->padding);
  find_padding(c, o->padding);
  o->counted = zpr_alloc(c, (size_t)o->n, sizeof *o->counted);
  for (int64_t i = 0; i < o->n; i++) o->counted[i] = o->blocks[i].block;
  o->list = (zpr_block_list){.block = o->counted, .n = o->n};
  o->squares = zpr_alloc(c, (size_t)o->n, sizeof *o->squares);
  return o;
}

void zpr_one_bit_shards_close(zpr *c, void *shards) {
  zpr_one_bit_shards *o = shards;
  zpr_block_list_close(c, &o->list);
  free(o->blocks);
  free(o->padding);
  free(o->counted);
  free(o->squares);
  free(o);
}

double zpr_one_bit_shards_squares(zpr *c, void *shards) {
  zpr_one_bit_shards *o = shards;
  double sum = 0;
  zpr_square_blocks(c, &o->list, o->squares);
  for (int64_t i = 0; i < o->n; i++) sum += o->squares[i];
  return sum;
}

/* Weights, what this rank, as an owner, has more than they have, and its error: no checkpoint
 * has that. */
static void clear_padding(zpr *c, const zpr_one_bit_shards *o) {
  int64_t size = zpk_bytes(c->program->dtype);
  char *weights = zpr_at(c, c->stage->params);
  float *server_error = c->stage->server_error >= 0 ? zpr_at(c, c->stage->server_error) : NULL;
  for (int64_t i = 0; i < o->n_padding; i++) {
    const zpr_block *b = &o->padding[i].block;
    zpr_zero(c, weights + b->begin * size, (b->end - b->begin) * size);
    zpr_zero(c, (float *)zpr_at(c, c->stage->error) + b->begin, (b->end - b->begin) * 4);
    if (o->padding[i].owner != c->d) continue;
    int64_t begin = b->begin + b->to_state, end = b->end + b->to_state, here = zpr_state_here(c);
    int64_t cut = here < begin ? begin : here < end ? here : end;
    if (server_error && begin < cut) zpr_zero(c, server_error + begin, (cut - begin) * 4);
    zpr_owner_clear_offloaded(c, cut, end);
  }
}

/* Where the records are: what is sent, what arrives, the changes of all owners. */
typedef struct places {
  int64_t record;
  char *sent, *theirs, *changes;
} places;

static places places_of(zpr *c) {
  int n = c->program->data;
  int64_t record = zpr_shard_elements(c->stage) / ZPK_SIGNS * ZPK_SIGNS_BYTES;
  char *sent = zpr_at(c, c->stage->grads);
  assert(3 * n * record <= zpr_flat_elements(c->stage) * zpr_gradient_bytes(c));
  return (places){record, sent, sent + n * record, sent + 2 * n * record};
}

const void *zpr_one_bit_shards_send(zpr *c, zpr_one_bit_shards *o, const zpk_update *rule) {
  zpr_group g = zpr_axis_group(c, ZPR_DATA);
  places at = places_of(c);
  zpr_add_to_errors(c, o->blocks, o->n, rule->grad_scale * (1 - rule->beta1));
  zpr_pack_errors(c, o->blocks, o->n, at.sent);
  zpr_group_exchange(c, &g, ZPR_DATA, at.sent, at.record, at.record, at.theirs);
  return at.theirs;
}

void *zpr_one_bit_shards_record(zpr *c) { return places_of(c).sent; }

void zpr_one_bit_shards_share(zpr *c, zpr_one_bit_shards *o) {
  zpr_group g = zpr_axis_group(c, ZPR_DATA);
  places at = places_of(c);
  zpr_group_exchange(c, &g, ZPR_DATA, at.sent, 0, at.record, at.changes);
  zpr_apply_signs(c, o->blocks, o->n, at.changes);
  clear_padding(c, o);
}

typedef struct owner {
  const zpr_block *mine;
  int64_t n;
  const zpk_update *rule;
  const void *theirs;
} owner;

static void update_here(zpr *c, void *arg) {
  const owner *a = arg;
  zpr_owner_update(c, a->mine, a->n, a->rule, NULL, a->theirs, zpr_one_bit_shards_record(c));
}

static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule) {
  owner here = {set->here->block, set->here->n, rule, zpr_one_bit_shards_send(c, own, rule)};
  if (set->offloaded)
    zpr_owner_offloaded(c, set->offloaded, rule, here.theirs, zpr_one_bit_shards_record(c), update_here, &here);
  else
    update_here(c, &here);
  zpr_one_bit_shards_share(c, own);
}

const zpr_one_bit_row zpr_one_bit_adam_shards = {.name = "Adam",
                                                 .applies = zpr_shards_state,
                                                 .open = zpr_one_bit_shards_open,
                                                 .close = zpr_one_bit_shards_close,
                                                 .squares = zpr_one_bit_shards_squares,
                                                 .update = update};
