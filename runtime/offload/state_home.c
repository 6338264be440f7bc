/* SPDX-License-Identifier: Apache-2.0 */
/* Where elements of optimizer state are, and the ways to them. */
#include "state_home.h"
#include <string.h>
#include "device.h"
#include "optimizer.h"
#include "state.h"
#include "tier.h"

enum { PAGE_ELEMENTS = ZPR_PAGE / 2 }; /* a page in the shortest format; the plan rounds to it */

unsigned zpr_state_arrays(const zpr_program *program) {
  const zpr_one_bit_row *one_bit = zpr_one_bit_of(program);
  unsigned arrays = 1u << ZPR_WEIGHTS | (one_bit ? one_bit->arrays : 0);
  arrays |= zpr_kept(program) << ZPR_MOMENTS_FROM;
  return program->ema > 0 ? arrays | 1u << ZPR_AVERAGE : arrays;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- pieces ---- */

int64_t zpr_state_pieces(const zpr *c) {
  const zpr_stage *s = c->stage;
  return s->state_offloaded.elements > 0 ? (s->state_offloaded.elements - 1) / s->window_elements + 1 : 0;
}

/* Elements of piece k, with what fills up its last page. */
static int64_t whole_pages(const zpr *c, int64_t k) {
  int64_t left = c->stage->state_offloaded.elements - k * c->stage->window_elements;
  return least(c->stage->window_elements, (left + PAGE_ELEMENTS - 1) / PAGE_ELEMENTS * PAGE_ELEMENTS);
}

static bool is_there(const zpr *c, int array) { return zpr_state_arrays(c->program) >> array & 1; }

static int64_t element_bytes(const zpr *c) {
  int arrays = 0;
  for (int a = 0; a < ZPR_ARRAYS; a++) arrays += is_there(c, a);
  return arrays * zpk_real_bytes(c->program->dtype);
}

/* The last piece, which may be short, has the first window: then the windows end where full pieces do. */
static int64_t window_of(const zpr *c, int64_t k) { return (zpr_state_pieces(c) - 1 - k) % c->stage->state_windows; }

int64_t zpr_piece_before(const zpr *c, int64_t k) {
  return c->stage->state_offloaded.on_disk && k >= c->stage->state_windows ? k - c->stage->state_windows : -1;
}

/* On the device; -1: there is none of it. */
static int64_t place_of(const zpr *c, zpr_array array) {
  const int64_t at[ZPR_ARRAYS] = {
#define STATE_ARRAY(region, field, key, name) c->stage->field,
#include <zplan/state_regions.def>
  };
  return is_there(c, (int)array) ? at[array] : -1;
}

void zpr_moments_here(zpr *c, void *moment[ZPK_MOMENTS]) {
  for (int i = 0; i < ZPK_MOMENTS; i++) {
    int64_t at = place_of(c, (zpr_array)(ZPR_MOMENTS_FROM + i));
    moment[i] = at < 0 ? NULL : zpr_at(c, at);
  }
}

static char *window_at(zpr *c, int64_t k) {
  return (char *)zpr_host_at(c, c->stage->state_offloaded.host) +
         window_of(c, k) * whole_pages(c, 0) * element_bytes(c);
}

zpr_piece_of_state zpr_state_piece(zpr *c, int64_t k) {
  const zpr_offloaded *offloaded = &c->stage->state_offloaded;
  int64_t first = k * c->stage->window_elements, real = zpk_real_bytes(c->program->dtype);
  zpr_piece_of_state p = {.first = zpr_state_here(c) + first,
                          .count = least(c->stage->window_elements, offloaded->elements - first)};
  int64_t stride = (offloaded->on_disk ? whole_pages(c, k) : offloaded->elements) * real;
  char *at = offloaded->on_disk ? window_at(c, k) : (char *)zpr_host_at(c, offloaded->host) + first * real;
  for (int a = 0; a < ZPR_ARRAYS; a++) {
    if (!is_there(c, a)) continue;
    p.array[a] = at;
    at += stride;
  }
  return p;
}

static int64_t place_in_file(const zpr *c, int64_t k) {
  return c->stage->state_offloaded.file + k * c->stage->window_elements * element_bytes(c);
}

/* Bytes [from, to) of piece k. */
static void request(zpr *c, int64_t k, bool write, int64_t from, int64_t to, zpr_requests *all) {
  if (from == to) return;
  char *memory = window_at(c, k) + from;
  int64_t at = place_in_file(c, k) + from;
  all->last = write ? zpr_file_write(c, memory, at, to - from) : zpr_file_read(c, memory, at, to - from);
  if (all->first == 0) all->first = all->last;
}

/* Neighbours travel together. */
static zpr_requests move_arrays(zpr *c, int64_t k, unsigned arrays, bool write) {
  int64_t bytes = whole_pages(c, k) * zpk_real_bytes(c->program->dtype), from = 0, to = 0;
  zpr_requests all = {0};
  if (!c->stage->state_offloaded.on_disk) return all;
  for (int a = 0; a < ZPR_ARRAYS; a++) {
    if (!is_there(c, a)) continue;
    if (arrays >> a & 1) {
      to += bytes;
      continue;
    }
    request(c, k, write, from, to, &all);
    from = to = to + bytes;
  }
  request(c, k, write, from, to, &all);
  return all;
}

zpr_requests zpr_read_arrays(zpr *c, int64_t k, unsigned arrays) { return move_arrays(c, k, arrays, false); }

zpr_requests zpr_write_arrays(zpr *c, int64_t k, unsigned arrays) { return move_arrays(c, k, arrays, true); }

/* Tickets of one call follow each other. */
void zpr_requests_wait(zpr *c, zpr_requests r) {
  for (int64_t ticket = r.first; ticket > 0 && ticket <= r.last; ticket++) zpr_file_wait(c, ticket);
}

/* ---- between steps ---- */

void zpr_state_flush(zpr *c) {
  zpr_open_state *h = &c->state->open_state;
  if (h->piece > 0 && h->changed) zpr_requests_wait(c, zpr_write_arrays(c, h->piece - 1, ZPR_ALL_ARRAYS));
  h->piece = 0;
  h->changed = false;
}

/* Pieces are read whole, also to change some of their elements. */
static void open_piece(zpr *c, int64_t k) {
  zpr_open_state *h = &c->state->open_state;
  if (h->piece == k + 1 || !c->stage->state_offloaded.on_disk) return;
  zpr_state_flush(c);
  zpr_requests_wait(c, zpr_read_arrays(c, k, ZPR_ALL_ARRAYS));
  h->piece = k + 1;
}

void *zpr_state_open(zpr *c, zpr_array array, int64_t at, int64_t *count, bool to_read) {
  const zpr_stage *s = c->stage;
  zpr_open_state *h = &c->state->open_state;
  int64_t here = zpr_state_here(c), size = zpk_real_bytes(c->program->dtype);
  h->device = at < here;
  if (h->device) {
    *count = least(least(*count, here - at), zpr_window_bytes(c) / size);
    return zpr_window_open(c, (char *)zpr_at(c, place_of(c, array)) + at * size, *count * size, to_read);
  }
  int64_t k = (at - here) / s->window_elements;
  open_piece(c, k);
  if (!to_read) h->changed = true;
  zpr_piece_of_state piece = zpr_state_piece(c, k);
  *count = least(*count, piece.first + piece.count - at);
  return piece.array[array] + (at - piece.first) * size;
}

void zpr_state_close(zpr *c) {
  if (c->state->open_state.device) zpr_window_close(c);
}

void zpr_state_zero(zpr *c) {
  const zpr_stage *s = c->stage;
  int64_t here = zpr_state_here(c) * zpk_real_bytes(c->program->dtype);
  for (int a = 0; a < ZPR_ARRAYS; a++)
    if (place_of(c, (zpr_array)a) >= 0) zpr_zero(c, zpr_at(c, place_of(c, (zpr_array)a)), here);
  if (s->n_statistics > 0) zpr_zero(c, zpr_at(c, s->statistics), s->n_statistics * zpk_real_bytes(c->program->dtype));
  zpr_state_flush(c);
  if (!s->state_offloaded.on_disk && s->state_offloaded.elements > 0)
    memset(zpr_host_at(c, s->state_offloaded.host), 0, (size_t)(s->state_offloaded.elements * element_bytes(c)));
  for (int64_t k = 0; s->state_offloaded.on_disk && k < zpr_state_pieces(c); k++) {
    memset(window_at(c, k), 0, (size_t)(whole_pages(c, k) * element_bytes(c)));
    zpr_requests_wait(c, zpr_write_arrays(c, k, ZPR_ALL_ARRAYS));
  }
}
