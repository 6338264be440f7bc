/* The optimizer on the host, over state that lives off the device (ZeRO-Offload, arXiv 2101.06840; on disks
 * ZeRO-Infinity, arXiv 2104.07857). Piece after piece: the next one's gradients come from the device, and its state
 * from the disk, while this one is updated; the one before goes back. Gradients that are on the host are read there.
 *
 * A piece's elements stand together in the state; in gradients and parameters stretches of them do (home.h). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "away.h"
#include "compress_shards.h"
#include "device.h"
#include "host_grads.h"
#include "state.h"
#include "param_home.h"
#include "state_home.h"
#include "tier.h"

enum { AT_ONCE = 65536 }; /* elements that a thread takes */

/* Elements [begin, end) of the state; from them to their gradients on the host. */
typedef struct block {
  int64_t begin, end, to_host;
  zpr_recipe recipe;
} block;

struct zpr_host_update {
  int64_t n_blocks;
  const zpr_stretches *stretches;
  block *blocks;  /* in the order of the state; each in one piece */
  int64_t *first; /* [pieces + 1]: the first block of a piece */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- what there is to do, once ---- */

static void add_block(zpr_host_update *u, block b) {
  if (u->blocks) u->blocks[u->n_blocks] = b;
  u->n_blocks++;
}

/* Cut at pieces. Counts them as long as there is no room. */
static void cut_blocks(zpr *c, zpr_host_update *u, const zpr_block *blocks, int64_t n) {
  int64_t here = zpr_state_here(c), piece = c->stage->window_elements;
  u->n_blocks = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t begin = most(blocks[i].begin, here), end = blocks[i].end,
            to_host = zpr_stretch_of(u->stretches, blocks[i].begin)->away[ZPR_CLASS_GRADS];
    while (begin < end) {
      int64_t cut = least(end, here + ((begin - here) / piece + 1) * piece);
      cut = least(cut, begin + AT_ONCE);
      add_block(u, (block){begin, cut, to_host, blocks[i].recipe});
      begin = cut;
    }
  }
}

static int by_place(const void *a, const void *b) {
  int64_t x = ((const block *)a)->begin, y = ((const block *)b)->begin;
  return (x > y) - (x < y);
}

zpr_host_update *zpr_host_update_open(zpr *c, const zpr_stretches *stretches, const zpr_block *blocks, int64_t n) {
  int64_t pieces = zpr_state_pieces(c);
  if (pieces == 0) return NULL;
  zpr_host_update *u = zpr_alloc(c, 1, sizeof *u);
  u->stretches = stretches;
  cut_blocks(c, u, blocks, n);
  u->blocks = zpr_alloc(c, (size_t)u->n_blocks + 1, sizeof *u->blocks);
  cut_blocks(c, u, blocks, n);
  qsort(u->blocks, (size_t)u->n_blocks, sizeof *u->blocks, by_place);
  u->first = zpr_alloc(c, (size_t)pieces + 1, sizeof *u->first);
  for (int64_t k = 0, i = 0; k <= pieces; k++) {
    int64_t begin = zpr_state_here(c) + k * c->stage->window_elements;
    while (i < u->n_blocks && u->blocks[i].begin < begin) i++;
    u->first[k] = k == pieces ? u->n_blocks : i;
  }
  return u;
}

void zpr_host_update_close(zpr_host_update *u) {
  if (!u) return;
  free(u->blocks);
  free(u->first);
  free(u);
}

/* ---- ways of a piece ---- */

typedef struct tickets {
  int64_t down, up, read, write;
  int64_t grads, last_grads; /* reads of gradients: the first, the last */
} tickets;

/* Two windows take turns. */
static char *turn(zpr *c, int64_t windows, int64_t k) {
  return (char *)zpr_host_at(c, windows) + k % 2 * c->stage->window_elements * zpk_bytes(c->program->dtype);
}

/* The gradients of a piece, or its weights, that are on the device. */
static int64_t fetch_piece(zpr *c, const zpr_host_update *u, zpr_class class, int64_t k) {
  zpr_piece_of_state p = zpr_state_piece(c, k);
  int64_t size = zpk_bytes(c->program->dtype), ticket = 0;
  int64_t end = least(p.first + p.count, zpr_own_here(c, class));
  char *from = zpr_at(c, class == ZPR_CLASS_GRADS ? c->stage->grads : c->stage->params);
  for (int64_t i = 0; i < u->stretches->n; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    int64_t a = most(s->begin, p.first), b = least(s->end, end);
    if (a >= b) continue;
    ticket = zpr_copy_down(c, turn(c, c->stage->grads_in, k) + (a - p.first) * size, from + (a + s->here[class]) * size,
                           (b - a) * size);
  }
  return ticket;
}

/* The gradients of a piece that are on disks. */
static void read_gradients(zpr *c, const zpr_host_update *u, int64_t k, tickets *t) {
  const zpr_away *away = &c->stage->grads_away;
  zpr_piece_of_state p = zpr_state_piece(c, k);
  int64_t size = zpk_bytes(c->program->dtype), here = zpr_own_here(c, ZPR_CLASS_GRADS);
  for (int64_t i = 0; i < u->stretches->n && away->on_disk; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    int64_t a = most(most(s->begin, p.first), here), b = least(s->end, p.first + p.count);
    if (a >= b) continue;
    t->last_grads = zpr_file_read(c, turn(c, c->stage->grads_in, k) + (a - p.first) * size,
                                  away->file + (a + s->away[ZPR_CLASS_GRADS]) * size, (b - a) * size);
    if (t->grads == 0) t->grads = t->last_grads;
  }
}

static void await_gradients(zpr *c, const tickets *t) {
  zpr_copy_wait(c, t->down);
  for (int64_t ticket = t->grads; ticket > 0 && ticket <= t->last_grads; ticket++) zpr_file_wait(c, ticket);
}

/* What of own elements [begin, end) stays off the device, `from` holding the first of them. */
static void keep_weights(zpr *c, const zpr_stretch *s, int64_t begin, int64_t end, const char *from) {
  int64_t away = begin + s->away[ZPR_CLASS_PARAMS], count = end - begin, bytes = count * zpk_bytes(c->program->dtype);
  if (count <= 0) return;
  zpr_view to = zpr_away_room(c, ZPR_CLASS_PARAMS, away, count);
  memcpy(to.at, from, (size_t)bytes);
  zpr_away_put(c, ZPR_CLASS_PARAMS, to, away, count, 0);
}

/* Weights as they are computed with: rounded, or those of the state themselves. */
static const char *weights_out(zpr *c, const zpr_piece_of_state *p, int64_t k) {
  return zpk_is_narrow(c->program->dtype) ? turn(c, c->stage->weights_out, k) : p->array[ZPR_WEIGHTS];
}

static int64_t send_weights(zpr *c, const zpr_host_update *u, int64_t k) {
  zpr_piece_of_state p = zpr_state_piece(c, k);
  int64_t size = zpk_bytes(c->program->dtype), ticket = 0;
  const char *from = weights_out(c, &p, k);
  for (int64_t i = 0; i < u->stretches->n; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    int64_t a = most(s->begin, p.first), b = least(s->end, p.first + p.count);
    if (a >= b) continue;
    int64_t here = most(a, least(b, zpr_own_here(c, ZPR_CLASS_PARAMS))); /* from there on they are off the device */
    keep_weights(c, s, here, b, from + (here - p.first) * size);
    if (a < here)
      ticket = zpr_copy_up(c, (char *)zpr_at(c, c->stage->params) + (a + s->here[ZPR_CLASS_PARAMS]) * size,
                           from + (a - p.first) * size, (here - a) * size, 0);
  }
  return ticket;
}

/* ---- the optimizer ---- */

typedef struct work {
  zpr *c;
  zpr_host_pass pass;
  const block *blocks;
  const zpk_update *rule;
  zpr_piece_of_state piece;
  char *landed, *rounded; /* element piece.first of what came: gradients, or weights; of weights that go */
  char *at_home;          /* gradients on the host */
} work;

static void *counted_from(char *array, int64_t first, int64_t size) { return array ? array - first * size : NULL; }

static void update_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  const zpr_piece_of_state *p = &w->piece;
  int64_t real = zpk_real_bytes(w->rule->dtype), size = zpk_bytes(w->rule->dtype);
  int64_t landed = w->at_home ? zpr_own_here(w->c, ZPR_CLASS_GRADS) : INT64_MAX;
  char *weights = counted_from(p->array[ZPR_WEIGHTS], p->first, real);
  void *m = counted_from(p->array[ZPR_MOMENT1], p->first, real),
       *v = counted_from(p->array[ZPR_MOMENT2], p->first, real),
       *average = counted_from(p->array[ZPR_AVERAGE], p->first, real);
  for (int64_t i = begin; i < end; i++) {
    const block *b = &w->blocks[i];
    int64_t cut = most(b->begin, least(b->end, landed));
    const zpk_update rule = zpr_rule_with(w->rule, b->recipe);
    if (w->pass == ZPR_PASS_OWNER) zpr_owner_update_away(w->c, &rule, p, w->landed, b->begin, b->end);
    if (w->pass == ZPR_PASS_MOMENTUM)
      zpk_momentum(&rule, weights, counted_from(w->landed, p->first, size), m, b->begin, b->end);
    if (w->pass == ZPR_PASS_FROZEN) zpk_frozen_update(&rule, weights, m, v, b->begin, b->end);
    if (w->pass != ZPR_PASS_UPDATE) continue;
    zpk_optimizer_and_average(&rule, weights, counted_from(w->landed, p->first, size), m, v, average, b->begin, cut);
    zpk_optimizer_and_average(&rule, weights, counted_from(w->at_home, -b->to_host, size), m, v, average, cut, b->end);
  }
}

static void round_weights(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  const float *from = (const float *)(const void *)w->piece.array[ZPR_WEIGHTS];
  zpk_round(w->c->program->dtype, from + begin, (uint16_t *)(void *)w->rounded + begin, end - begin);
}

static bool sends_weights(zpr_host_pass pass) { return pass == ZPR_PASS_UPDATE || pass == ZPR_PASS_FROZEN; }

static void update_piece(zpr *c, const zpr_host_update *u, zpr_host_pass pass, const zpk_update *rule, int64_t k) {
  const zpr_stage *s = c->stage;
  work w = {.c = c, .pass = pass, .rule = rule, .piece = zpr_state_piece(c, k), .blocks = u->blocks + u->first[k]};
  w.landed = turn(c, s->grads_in, k);
  if (s->grads_away.elements > 0 && !s->grads_away.on_disk) w.at_home = zpr_host_at(c, s->grads_away.host);
  zpr_parallel(c, u->first[k + 1] - u->first[k], 1, update_blocks, &w);
  if (!zpk_is_narrow(c->program->dtype) || !sends_weights(pass)) return;
  w.rounded = turn(c, s->weights_out, k);
  zpr_parallel(c, w.piece.count, AT_ONCE, round_weights, &w);
}

/* Room for the tickets of the few pieces that are on their way at once. */
enum { ON_THE_WAY = 8 };

static void begin_piece(zpr *c, const zpr_host_update *u, zpr_host_pass pass, int64_t k, tickets *t) {
  int64_t before = zpr_piece_before(c, k);
  if (before >= 0) { /* its window */
    zpr_copy_wait(c, t[before % ON_THE_WAY].up);
    zpr_file_wait(c, t[before % ON_THE_WAY].write);
  }
  t[k % ON_THE_WAY] = (tickets){.read = zpr_read_piece(c, k)};
  if (pass == ZPR_PASS_FROZEN || (pass == ZPR_PASS_OWNER && !zpk_is_narrow(c->program->dtype))) return;
  t[k % ON_THE_WAY].down = fetch_piece(c, u, pass == ZPR_PASS_OWNER ? ZPR_CLASS_PARAMS : ZPR_CLASS_GRADS, k);
  if (pass == ZPR_PASS_OWNER) return;
  read_gradients(c, u, k, &t[k % ON_THE_WAY]);
}

void zpr_host_update_run(zpr *c, const zpr_host_update *u, zpr_host_pass pass, const zpk_update *rule,
                         zpr_between *between, void *arg) {
  assert(pass == ZPR_PASS_UPDATE || c->stage->grads_away.elements == 0);
  zpr_away_settle(c, ZPR_CLASS_GRADS); /* they are read past the windows */
  tickets t[ON_THE_WAY] = {{0}};
  int64_t pieces = zpr_state_pieces(c), last = 0;
  begin_piece(c, u, pass, 0, t);
  between(c, arg);
  for (int64_t k = 0; k < pieces; k++) {
    tickets *now = &t[k % ON_THE_WAY];
    if (k + 1 < pieces) begin_piece(c, u, pass, k + 1, t);
    await_gradients(c, now);
    zpr_file_wait(c, now->read);
    if (k >= 2) zpr_copy_wait(c, t[(k - 2) % ON_THE_WAY].up); /* where weights leave from */
    update_piece(c, u, pass, rule, k);
    now->write = zpr_write_piece(c, k);
    if (sends_weights(pass)) last = now->up = send_weights(c, u, k);
  }
  for (int64_t k = most(0, pieces - ON_THE_WAY); k < pieces; k++) {
    zpr_copy_wait(c, t[k % ON_THE_WAY].up);
    zpr_file_wait(c, t[k % ON_THE_WAY].write);
  }
  zpr_away_settle(c, ZPR_CLASS_PARAMS);
  zpr_copy_before(c, last);
}

/* Piece by piece through the windows, as in a step. */
void zpr_host_update_begin(zpr *c, const zpr_host_update *u) {
  if (!u || zpk_is_narrow(c->program->dtype)) return;
  int64_t size = zpk_bytes(c->program->dtype);
  for (int64_t i = 0; i < u->stretches->n; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    for (int64_t at = most(s->begin, zpr_state_here(c)), n; at < s->end; at += n) {
      n = least(s->end - at, zpr_window_bytes(c) / size);
      char *to = zpr_state_open(c, ZPR_WEIGHTS, at, &n, false);
      memcpy(to, zpr_params_open(c, at + s->held, &n, true), (size_t)(n * size));
      zpr_params_close(c);
    }
  }
  zpr_state_flush(c);
  zpr_away_flush(c);
}
