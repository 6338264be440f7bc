/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam's exchange without ZeRO where optimizer state is on the host: there momentum of these elements becomes
 * signs and scales, theirs are averaged, and means become momentum again. Records travel between devices as ever, so
 * what the host packs goes up into them, and comes down from them. State leaves from the end of the flat buffers: of
 * every part the first blocks are on the device, and the last ones here. */
#include <assert.h>
#include <string.h>
#include "one_bit.h"
#include "tier.h"

enum { GRAIN = 256 }; /* blocks of ZPK_SIGNS elements */

static int64_t part_elements(const zpr *c) { return zpr_flat_elements(c->stage) / c->program->data; }

/* Elements at the beginning of a part whose state is on the device. */
static int64_t elements_here(const zpr *c, int part) {
  int64_t here = zpr_state_here(c) - part * part_elements(c), all = part_elements(c);
  return here < 0 ? 0 : here < all ? here : all;
}

int64_t zpr_blocks_here(const zpr *c, int part) {
  assert(elements_here(c, part) % ZPK_SIGNS == 0);
  return elements_here(c, part) / ZPK_SIGNS;
}

/* What of a part is on the host. */
typedef struct share {
  zpr *c;
  int64_t first, count; /* blocks of the part */
  char *m, *v;          /* of the first one; so the errors */
  float *error;
  zpk_signs record;    /* of these blocks alone */
  const void *records; /* n of them that are averaged */
  int n;
} share;

/* record: byte of the place for records where that of the share begins. */
static share share_of(zpr *c, int part, int64_t record) {
  assert(!c->stage->state_offloaded.on_disk);
  int64_t first = zpr_blocks_here(c, part), all = part_elements(c) / ZPK_SIGNS;
  zpr_piece_of_state state = zpr_state_piece(c, 0); /* on the host the arrays stand side by side */
  int64_t from = part * part_elements(c) + first * ZPK_SIGNS - state.first, real = zpk_real_bytes(c->program->dtype);
  char *place = (char *)zpr_host_at(c, c->stage->host_records) + record;
  return (share){.c = c,
                 .first = first,
                 .count = all - first,
                 .m = state.array[ZPR_MOMENT1] + from * real,
                 .v = state.array[ZPR_MOMENT2] + from * real,
                 .error = (float *)zpr_host_at(c, c->stage->host_error) + from,
                 .record = zpk_signs_of(place, all - first, 0)};
}

/* A record stands on the device with all its blocks, signs before scales, so a share of it is two pieces. */
int64_t zpr_record_up(zpr *c, char *record, int64_t blocks, int64_t first, zpk_signs from, int64_t count) {
  enum { SCALE = sizeof(float) };
  zpr_copy_up(c, record + first * 8, from.bits, count * 8, 0);
  return zpr_copy_up(c, record + blocks * 8 + first * SCALE, from.scale, count * SCALE, 0);
}

int64_t zpr_record_down(zpr *c, const char *record, int64_t blocks, int64_t first, zpk_signs to, int64_t count) {
  enum { SCALE = sizeof(float) };
  zpr_copy_down(c, to.bits, record + first * 8, count * 8);
  return zpr_copy_down(c, to.scale, record + blocks * 8 + first * SCALE, count * SCALE);
}

static int64_t send(const share *s, char *record) {
  return zpr_record_up(s->c, record, part_elements(s->c) / ZPK_SIGNS, s->first, s->record, s->count);
}

static int64_t fetch(const share *s, zpk_signs to, const char *record) {
  return zpr_record_down(s->c, record, part_elements(s->c) / ZPK_SIGNS, s->first, to, s->count);
}

ZPR_TASK(pack, share, zpk_pack_signs(a->c->program->dtype, a->m, a->v, a->error, a->record, begin, end))

ZPR_TASK(average, share,
         zpk_average_signs(a->c->program->dtype, a->n, a->records, a->count, a->v, a->error, a->record, begin, end))

ZPR_TASK(unpack, share, zpk_unpack_signs(a->c->program->dtype, a->record, a->v, a->m, begin, end))

/* Where the record of the next part's share begins. */
static int64_t end_of(const share *s, int64_t record) { return record + s->count * ZPK_SIGNS_BYTES; }

static int64_t record_bytes(const zpr *c) { return part_elements(c) / ZPK_SIGNS * ZPK_SIGNS_BYTES; }

void zpr_pack_offloaded(zpr *c, char *records) {
  int64_t at = 0, ticket = 0;
  for (int r = 0; r < c->program->data; r++) {
    share s = share_of(c, r, at);
    if (s.count == 0) continue;
    zpr_parallel(c, s.count, GRAIN, pack, &s);
    ticket = send(&s, records + r * record_bytes(c));
    at = end_of(&s, at);
  }
  zpr_copy_wait(c, ticket);
}

void zpr_average_offloaded(zpr *c, int part, const char *records, char *mean) {
  share s = share_of(c, part, 0);
  int64_t ticket = 0;
  if (s.count == 0) return;
  s.n = c->program->data;
  s.records = zpr_host_at(c, c->stage->host_records);
  s.error = zpr_host_at(c, c->stage->host_server_error);
  for (int r = 0; r < s.n; r++) ticket = fetch(&s, zpk_signs_of(s.records, s.count, r), records + r * record_bytes(c));
  zpr_copy_wait(c, ticket);
  s.record = zpk_signs_of(s.records, s.count, s.n);
  zpr_parallel(c, s.count, GRAIN, average, &s);
  zpr_copy_wait(c, send(&s, mean));
}

void zpr_unpack_offloaded(zpr *c, const char *records) {
  int64_t at = 0;
  for (int r = 0; r < c->program->data; r++) {
    share s = share_of(c, r, at);
    if (s.count == 0) continue;
    zpr_copy_wait(c, fetch(&s, s.record, records + r * record_bytes(c)));
    zpr_parallel(c, s.count, GRAIN, unpack, &s);
    at = end_of(&s, at);
  }
}

/* ---- errors ---- */

static int64_t errors_here(const zpr *c, zpr_error_side side) {
  if (zpr_shards_state(c->program)) return side == ZPR_WORKER ? zpr_flat_elements(c->stage) : zpr_state_here(c);
  return side == ZPR_WORKER ? zpr_state_here(c) : elements_here(c, c->d);
}

void *zpr_error_open(zpr *c, zpr_error_side side, int64_t at, int64_t *count, bool to_read) {
  int64_t here = errors_here(c, side), size = (int64_t)sizeof(float);
  bool worker = side == ZPR_WORKER;
  if (at >= here)
    return (float *)zpr_host_at(c, worker ? c->stage->host_error : c->stage->host_server_error) + (at - here);
  int64_t most = zpr_window_bytes(c) / size;
  if (*count > here - at) *count = here - at;
  if (*count > most) *count = most;
  char *errors = zpr_at(c, worker ? c->stage->error : c->stage->server_error);
  return zpr_window_open(c, errors + at * size, *count * size, to_read);
}

void zpr_error_close(zpr *c, zpr_error_side side, int64_t at) {
  if (at < errors_here(c, side)) zpr_window_close(c);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void zpr_errors_zero(zpr *c) {
  const zpr_stage *s = c->stage;
  int64_t here = zpr_state_here(c), gone = s->state_offloaded.elements, part = part_elements(c);
  if (s->error >= 0) zpr_zero(c, zpr_at(c, s->error), errors_here(c, ZPR_WORKER) * 4);
  if (s->server_error >= 0) zpr_zero(c, zpr_at(c, s->server_error), least(here, part) * 4);
  if (zpr_is_zero_one_adam(c->program)) zpr_zero(c, zpr_at(c, s->local_sum), here * zpk_real_bytes(c->program->dtype));
  if (gone == 0) return;
  if (s->host_error >= 0) memset(zpr_host_at(c, s->host_error), 0, (size_t)gone * 4);
  if (s->host_server_error >= 0) memset(zpr_host_at(c, s->host_server_error), 0, (size_t)least(gone, part) * 4);
}
