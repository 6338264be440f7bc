/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer on the host, over state that lives off the device (ZeRO-Offload, arXiv 2101.06840; on disks
 * ZeRO-Infinity, arXiv 2104.07857). Piece after piece: the next one's gradients come from the device, and its state
 * from the disk, while this one is updated; the one before goes back. Gradients that are on the host are read there.
 *
 * A piece's elements stand together in the state; in gradients and parameters stretches of them do (home.h). */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "offloaded.h"
#include "one_bit_shards.h"
#include "device.h"
#include "host_grads.h"
#include "host_walk.h"
#include "loads.h"
#include "signals.h"
#include "state.h"
#include "param_home.h"
#include "state_home.h"
#include "tier.h"

enum { AT_ONCE = 65536 }; /* elements that a thread takes */

/* Elements [begin, end) of the state; from them to their gradients on the host. */
typedef struct block {
  int64_t begin, end, to_host;
  zpr_recipe recipe;
  int64_t tensor;
  bool counted;
} block;

/* The update of a step that goes on alongside the next one. */
typedef struct late_update {
  bool runs;
  pthread_t thread;
  zpr_pool *pool; /* its own: the other one has the step's work */
  zpk_update rule;
} late_update;

struct zpr_host_update {
  zpr *c;
  int64_t n_blocks;
  const zpr_stretches *stretches;
  block *blocks;  /* in the order of the state; each in one piece */
  int64_t *first; /* [pieces + 1]: the first block of a piece */
  late_update late;
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
            to_host = zpr_stretch_of(u->stretches, blocks[i].begin)->offloaded[ZPR_CLASS_GRADS];
    while (begin < end) {
      int64_t cut = least(end, here + ((begin - here) / piece + 1) * piece);
      cut = least(cut, begin + AT_ONCE);
      add_block(u, (block){begin, cut, to_host, blocks[i].recipe, blocks[i].tensor, blocks[i].counted});
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
  u->c = c;
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
  if (c->program->delayed) u->late.pool = zpr_pool_open(c, zpr_threads(c), false);
  return u;
}

void zpr_host_update_close(zpr_host_update *u) {
  if (!u) return;
  zpr_host_update_join(u);
  zpr_pool_close(u->late.pool);
  free(u->blocks);
  free(u->first);
  free(u);
}

int64_t zpr_host_blocks(const zpr_host_update *u) { return u ? u->n_blocks : 0; }

void zpr_host_add_squares(const zpr_host_update *u, const double *sums, double *squares) {
  for (int64_t i = 0; i < u->n_blocks; i++) {
    if (!u->blocks[i].counted) continue;
    squares[2 * u->blocks[i].tensor] += sums[2 * i];
    squares[2 * u->blocks[i].tensor + 1] += sums[2 * i + 1];
  }
}

/* ---- ways of a piece ---- */

typedef struct tickets {
  int64_t down, up;
  zpr_requests read, write;
  int64_t grads, last_grads; /* reads of gradients: the first, the last */
} tickets;

static int64_t class_bytes(const zpr *c, zpr_class class) {
  return class == ZPR_CLASS_GRADS ? zpr_gradient_bytes(c) : zpk_bytes(c->program->dtype);
}

/* Two windows take turns, of elements of a class. Where the update may be delayed every piece has its own, for
 * gradients and then for weights, which are no larger. */
static char *turn(zpr *c, zpr_class class, int64_t windows, int64_t k) {
  int64_t most = c->stage->window_elements;
  if (c->program->delayed) return (char *)zpr_host_at(c, c->stage->delayed) + k * most * zpr_gradient_bytes(c);
  return (char *)zpr_host_at(c, windows) + k % 2 * most * class_bytes(c, class);
}

/* Gradients come in through windows of their own; weights that the owner computes by come through the same ones. */
static char *turn_in(zpr *c, int64_t k) { return turn(c, ZPR_CLASS_GRADS, c->stage->grads_in, k); }

static char *turn_out(zpr *c, int64_t k) { return turn(c, ZPR_CLASS_PARAMS, c->stage->weights_out, k); }

/* The gradients of a piece, or its weights, that are on the device. */
static int64_t fetch_piece(zpr *c, const zpr_host_update *u, zpr_class class, int64_t k) {
  zpr_piece_of_state p = zpr_state_piece(c, k);
  int64_t size = class_bytes(c, class), ticket = 0;
  int64_t end = least(p.first + p.count, zpr_own_here(c, class));
  char *from = zpr_at(c, class == ZPR_CLASS_GRADS ? c->stage->grads : c->stage->params);
  for (int64_t i = 0; i < u->stretches->n; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    int64_t a = most(s->begin, p.first), b = least(s->end, end);
    if (a >= b) continue;
    ticket = zpr_copy_down(c, turn_in(c, k) + (a - p.first) * size, from + (a + s->here[class]) * size, (b - a) * size);
  }
  return ticket;
}

/* The gradients of a piece that are on disks. */
static void read_gradients(zpr *c, const zpr_host_update *u, int64_t k, tickets *t) {
  const zpr_offloaded *offloaded = &c->stage->grads_offloaded;
  zpr_piece_of_state p = zpr_state_piece(c, k);
  int64_t size = zpr_gradient_bytes(c), here = zpr_own_here(c, ZPR_CLASS_GRADS);
  for (int64_t i = 0; i < u->stretches->n && offloaded->on_disk; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    int64_t a = most(most(s->begin, p.first), here), b = least(s->end, p.first + p.count);
    if (a >= b) continue;
    t->last_grads = zpr_file_read(c, turn_in(c, k) + (a - p.first) * size,
                                  offloaded->file + (a + s->offloaded[ZPR_CLASS_GRADS]) * size, (b - a) * size);
    if (t->grads == 0) t->grads = t->last_grads;
  }
}

static void await_gradients(zpr *c, const tickets *t) {
  zpr_copy_wait(c, t->down);
  for (int64_t ticket = t->grads; ticket > 0 && ticket <= t->last_grads; ticket++) zpr_file_wait(c, ticket);
}

/* What of own elements [begin, end) stays off the device, `from` holding the first of them. */
static void keep_weights(zpr *c, const zpr_stretch *s, int64_t begin, int64_t end, const char *from) {
  int64_t offloaded = begin + s->offloaded[ZPR_CLASS_PARAMS], count = end - begin,
          bytes = count * zpk_bytes(c->program->dtype);
  if (count <= 0) return;
  zpr_view to = zpr_offloaded_room(c, ZPR_CLASS_PARAMS, offloaded, count);
  memcpy(to.at, from, (size_t)bytes);
  zpr_offloaded_put(c, ZPR_CLASS_PARAMS, to, offloaded, count, 0);
}

/* Weights as they are computed with: rounded, or those of the state themselves. */
static const char *weights_out(zpr *c, const zpr_piece_of_state *p, int64_t k) {
  return zpk_is_narrow(c->program->dtype) ? turn_out(c, k) : p->array[ZPR_WEIGHTS];
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

/* ---- a pass ---- */

typedef struct work {
  zpr *c;
  const zpr_host_walk *walk;
  const block *blocks;
  int64_t first; /* the number of the first of them */
  zpr_piece_of_state piece;
  char *landed, *rounded; /* element piece.first of what came: gradients, or weights; of weights that go */
  char *at_home;          /* gradients on the host */
} work;

static void *counted_from(char *array, int64_t first, int64_t size) { return array ? array - first * size : NULL; }

/* Gradients of a block that are on the device end where those off it begin. */
static void work_on_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  const zpr_piece_of_state *p = &w->piece;
  const zpk_dtype dtype = w->c->program->dtype;
  int64_t real = zpk_real_bytes(dtype), size = zpr_gradient_bytes(w->c), here = zpr_own_here(w->c, ZPR_CLASS_GRADS);
  char *landed = counted_from(w->landed, p->first, size);
  zpr_host_part part = {.weights = counted_from(p->array[ZPR_WEIGHTS], p->first, real),
                        .average = counted_from(p->array[ZPR_AVERAGE], p->first, real)};
  for (int n = 0; n < ZPK_MOMENTS; n++) part.moment[n] = counted_from(p->array[ZPR_MOMENTS_FROM + n], p->first, real);
  part.piece = p;
  part.landed = w->landed;
  for (int64_t i = begin; i < end; i++) {
    const block *b = &w->blocks[i];
    int64_t cut = most(b->begin, least(b->end, here));
    part.block = w->first + i;
    part.recipe = b->recipe;
    part.tensor = b->tensor;
    part.begin = b->begin;
    part.end = cut;
    part.grads = w->walk->gradients & ZPR_GRADIENTS_HERE ? landed : NULL;
    if (part.begin < part.end) w->walk->on_part(w->walk->arg, &part);
    part.begin = cut;
    part.end = b->end;
    part.grads = w->walk->gradients & ZPR_GRADIENTS_OFFLOADED ? landed : NULL;
    if (part.grads && w->at_home) part.grads = counted_from(w->at_home, -b->to_host, size);
    if (part.grads && !w->at_home && b->recipe.sign_rate > 0 && cut < b->end)
      zpr_loads_read(w->c, cut, b->end, landed + cut * size);
    if (part.begin < part.end) w->walk->on_part(w->walk->arg, &part);
  }
}

static void round_weights(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  const float *from = (const float *)(const void *)w->piece.array[ZPR_WEIGHTS];
  zpk_round(w->c->program->dtype, from + begin, (uint16_t *)(void *)w->rounded + begin, end - begin);
}

static void round_piece(zpr_pool *pool, work *w, int64_t k) {
  if (!zpk_is_narrow(w->c->program->dtype)) return;
  w->rounded = turn_out(w->c, k);
  zpr_pool_run(pool, w->piece.count, AT_ONCE, round_weights, w);
}

/* at_home: gradients on the host, NULL: they have all landed. */
static void work_on_piece(zpr_pool *pool, const zpr_host_update *u, const zpr_host_walk *walk, char *at_home,
                          int64_t k) {
  zpr *c = u->c;
  work w = {.c = c, .walk = walk, .piece = zpr_state_piece(c, k), .first = u->first[k], .at_home = at_home};
  w.blocks = u->blocks + w.first;
  w.landed = turn_in(c, k);
  zpr_pool_run(pool, u->first[k + 1] - w.first, 1, work_on_blocks, &w);
  if (walk->weights) round_piece(pool, &w, k);
}

static char *gradients_at_home(zpr *c) {
  const zpr_offloaded *offloaded = &c->stage->grads_offloaded;
  return offloaded->elements > 0 && !offloaded->on_disk ? zpr_host_at(c, offloaded->host) : NULL;
}

/* Room for the tickets of the few pieces that are on their way at once. */
enum { ON_THE_WAY = 8 };

static void begin_piece(zpr *c, const zpr_host_update *u, const zpr_host_walk *walk, int64_t k, tickets *t) {
  int64_t before = zpr_piece_before(c, k);
  if (before >= 0) { /* its window */
    zpr_copy_wait(c, t[before % ON_THE_WAY].up);
    zpr_requests_wait(c, t[before % ON_THE_WAY].write);
  }
  t[k % ON_THE_WAY] = (tickets){.read = zpr_read_arrays(c, k, walk->reads)};
  if (walk->gradients & ZPR_GRADIENTS_HERE) t[k % ON_THE_WAY].down = fetch_piece(c, u, ZPR_CLASS_GRADS, k);
  if (walk->weights_in) t[k % ON_THE_WAY].down = fetch_piece(c, u, ZPR_CLASS_PARAMS, k);
  if (walk->gradients & ZPR_GRADIENTS_OFFLOADED) read_gradients(c, u, k, &t[k % ON_THE_WAY]);
}

void zpr_host_walk_run(zpr *c, const zpr_host_update *u, const zpr_host_walk *walk, zpr_between *between, void *arg) {
  zpr_offloaded_settle(c, ZPR_CLASS_GRADS); /* they are read past the windows */
  tickets t[ON_THE_WAY] = {{0}};
  int64_t pieces = zpr_state_pieces(c), last = 0;
  begin_piece(c, u, walk, 0, t);
  between(c, arg);
  for (int64_t k = 0; k < pieces; k++) {
    tickets *now = &t[k % ON_THE_WAY];
    if (k + 1 < pieces) begin_piece(c, u, walk, k + 1, t);
    await_gradients(c, now);
    zpr_requests_wait(c, now->read);
    if (k >= 2) zpr_copy_wait(c, t[(k - 2) % ON_THE_WAY].up); /* where weights leave from */
    work_on_piece(c->state->pool, u, walk, gradients_at_home(c), k);
    now->write = zpr_write_arrays(c, k, walk->writes);
    if (walk->weights) last = now->up = send_weights(c, u, k);
  }
  for (int64_t k = most(0, pieces - ON_THE_WAY); k < pieces; k++) {
    zpr_copy_wait(c, t[k % ON_THE_WAY].up);
    zpr_requests_wait(c, t[k % ON_THE_WAY].write);
  }
  zpr_offloaded_settle(c, ZPR_CLASS_PARAMS);
  zpr_copy_before(c, last);
}

/* ---- optimizers that need one ---- */

typedef struct alone {
  zpr *c;
  zpr_host_pass pass;
  const zpk_update *rule;
} alone;

static void update_part(void *arg, const zpr_host_part *p) {
  const alone *a = arg;
  const zpk_update rule = zpr_rule_with(a->rule, p->recipe);
  switch (a->pass) {
  case ZPR_PASS_UPDATE:
    zpk_optimizer_and_average(&rule, p->weights, p->grads, p->moment, p->average, p->begin, p->end);
    break;
  case ZPR_PASS_MOMENTUM: zpk_momentum(&rule, p->weights, p->grads, p->moment[ZPK_MOMENT1], p->begin, p->end); break;
  case ZPR_PASS_FROZEN:
    zpk_frozen_update(&rule, p->weights, p->moment[ZPK_MOMENT1], p->moment[ZPK_MOMENT2], p->begin, p->end);
    break;
  case ZPR_PASS_OWNER: zpr_owner_update_offloaded(a->c, &rule, p->piece, p->landed, p->begin, p->end); break;
  }
}

static zpr_host_walk walk_of(alone *a) {
  bool reads_gradients = a->pass == ZPR_PASS_UPDATE || a->pass == ZPR_PASS_MOMENTUM;
  return (zpr_host_walk){.reads = ZPR_ALL_ARRAYS,
                         .writes = ZPR_ALL_ARRAYS,
                         .gradients = reads_gradients ? ZPR_GRADIENTS_HERE | ZPR_GRADIENTS_OFFLOADED : 0,
                         .weights_in = a->pass == ZPR_PASS_OWNER && zpk_is_narrow(a->c->program->dtype),
                         .weights = a->pass == ZPR_PASS_UPDATE || a->pass == ZPR_PASS_FROZEN,
                         .on_part = update_part,
                         .arg = a};
}

void zpr_host_update_run(zpr *c, const zpr_host_update *u, zpr_host_pass pass, const zpk_update *rule,
                         zpr_between *between, void *arg) {
  alone a = {c, pass, rule};
  const zpr_host_walk walk = walk_of(&a);
  assert(pass == ZPR_PASS_UPDATE || c->stage->grads_offloaded.elements == 0);
  zpr_host_walk_run(c, u, &walk, between, arg);
}

/* ---- alongside the next step (section 5.2 there) ---- */

static void *update_late(void *arg) {
  const zpr_host_update *u = arg;
  alone a = {u->c, ZPR_PASS_UPDATE, &u->late.rule};
  const zpr_host_walk walk = walk_of(&a);
  for (int64_t k = 0; k < zpr_state_pieces(u->c); k++) work_on_piece(u->late.pool, u, &walk, NULL, k);
  return NULL;
}

void zpr_host_update_join(zpr_host_update *u) {
  if (!u || !u->late.runs) return;
  pthread_join(u->late.thread, NULL);
  u->late.runs = false;
}

typedef struct keeping {
  char *to;
  const char *from;
} keeping;

ZPR_TASK(keep_range, keeping, memcpy(a->to + begin, a->from + begin, (size_t)(end - begin)))

/* The gradients of a piece that are on the host, where the next step's are summed. */
static void keep_gradients(zpr *c, const zpr_host_update *u, int64_t k) {
  char *at_home = gradients_at_home(c);
  zpr_piece_of_state p = zpr_state_piece(c, k);
  int64_t size = zpr_gradient_bytes(c), here = zpr_own_here(c, ZPR_CLASS_GRADS);
  for (int64_t i = 0; i < u->stretches->n && at_home; i++) {
    const zpr_stretch *s = &u->stretches->item[i];
    int64_t a = most(most(s->begin, p.first), here), b = least(s->end, p.first + p.count);
    if (a >= b) continue;
    keeping keep = {turn_in(c, k) + (a - p.first) * size, at_home + (a + s->offloaded[ZPR_CLASS_GRADS]) * size};
    zpr_parallel(c, (b - a) * size, AT_ONCE, keep_range, &keep);
  }
}

static void send_all_weights(zpr *c, const zpr_host_update *u) {
  int64_t last = 0, pieces = zpr_state_pieces(c);
  for (int64_t k = 0; k < pieces; k++) {
    int64_t ticket = send_weights(c, u, k);
    if (ticket) last = ticket;
  }
  zpr_copy_before(c, last);
  zpr_copy_wait(c, last);
}

/* A piece's gradients come to where its weights have left from, while the next one's leave. */
static void exchange_pieces(zpr *c, const zpr_host_update *u) {
  int64_t pieces = zpr_state_pieces(c), up = send_weights(c, u, 0), last_up = up, last_down = 0;
  for (int64_t k = 0; k < pieces; k++) {
    int64_t next = k + 1 < pieces ? send_weights(c, u, k + 1) : 0;
    zpr_copy_wait(c, up);
    int64_t down = fetch_piece(c, u, ZPR_CLASS_GRADS, k);
    keep_gradients(c, u, k);
    if (down) last_down = down;
    if (next) last_up = next;
    up = next;
  }
  zpr_copy_before(c, last_up);
  zpr_copy_wait(c, last_down);
}

void zpr_host_update_exchange(zpr *c, zpr_host_update *u, const zpk_update *rule) {
  assert(c->program->delayed && !c->stage->state_offloaded.on_disk);
  zpr_host_update_join(u);
  if (!rule) {
    send_all_weights(c, u);
    return;
  }
  exchange_pieces(c, u);
  u->late.rule = *rule;
  int error = zpr_thread_start(&u->late.thread, update_late, u);
  if (error) zpr_fail(c, "Z0822", "cannot start the thread of the delayed update: %s", strerror(error));
  u->late.runs = true;
}

const void *zpr_next_weights(zpr *c, int64_t own, int64_t *count) {
  int64_t k = (own - zpr_state_here(c)) / c->stage->window_elements;
  zpr_piece_of_state p = zpr_state_piece(c, k);
  *count = least(*count, p.first + p.count - own);
  return weights_out(c, &p, k) + (own - p.first) * zpk_bytes(c->program->dtype);
}

/* Piece by piece through the windows, as in a step. Rounded weights are where they would leave from. */
void zpr_host_update_begin(zpr *c, const zpr_host_update *u) {
  if (!u) return;
  for (int64_t k = 0; k < zpr_state_pieces(c) && c->program->delayed; k++)
    round_piece(c->state->pool, &(work){.c = c, .piece = zpr_state_piece(c, k)}, k);
  if (zpk_is_narrow(c->program->dtype)) return;
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
  zpr_offloaded_flush(c);
}
