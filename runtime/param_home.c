/* Parameters of which a part lives on the host: where they are, how units get them, how the device updates them. */
#include "param_home.h"
#include <string.h>
#include "state.h"
#include "state_home.h"
#include "tier.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t element_bytes(const zpr *c) { return zpk_bytes(c->program->dtype); }

int64_t zpr_params_held(const zpr *c) {
  return zpr_shards_params(c->program) ? c->stage->shard_elements : c->stage->flat_elements;
}

char *zpr_param_away_at(zpr *c, int64_t at) {
  return (char *)zpr_host_at(c, c->stage->params_away.host) + (at - zpr_params_here(c)) * element_bytes(c);
}

static char *here_at(zpr *c, int64_t at) { return (char *)zpr_at(c, c->stage->params) + at * element_bytes(c); }

/* ---- between steps ---- */

void *zpr_params_open(zpr *c, int64_t at, int64_t *count, bool to_read) {
  int64_t here = zpr_params_here(c), size = element_bytes(c);
  if (at >= here) return zpr_param_away_at(c, at);
  *count = least(least(*count, here - at), zpr_window_bytes(c) / size);
  return zpr_window_open(c, here_at(c, at), *count * size, to_read);
}

/* Closing what is not open does nothing. */
void zpr_params_close(zpr *c) { zpr_window_close(c); }

void zpr_params_zero(zpr *c) {
  int64_t here = zpr_params_here(c), away = c->stage->params_away.elements, size = element_bytes(c);
  if (here > 0) zpr_zero(c, here_at(c, 0), here * size);
  if (away > 0) memset(zpr_param_away_at(c, here), 0, (size_t)(away * size));
}

/* ---- before a unit works ---- */

/* What this rank has of the bucket: elements [begin, end) of its own; *to: where they go. */
typedef struct part {
  int64_t begin, end;
  char *to;
} part;

static part part_of(zpr *c, int64_t first, void *to) {
  int64_t i;
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  if (!zpr_shards_params(c->program)) return (part){first, first + run->stride, to};
  zpr_slice shard = zpr_slice_of(c, run, i);
  int64_t count = shard.end - shard.begin;
  return (part){shard.stored, shard.stored + count,
                (char *)to + zpr_part_of(c, run->params[0].spread).place * count * element_bytes(c)};
}

void zpr_fetch_params(zpr *c, int64_t first, void *to) {
  int64_t size = element_bytes(c);
  part p = part_of(c, first, to);
  int64_t begin = most(p.begin, zpr_params_here(c));
  if (begin < p.end)
    c->state->fetched =
        zpr_copy_up(c, p.to + (begin - p.begin) * size, zpr_param_away_at(c, begin), (p.end - begin) * size, 0);
}

void zpr_await_params(zpr *c) { zpr_copy_before(c, c->state->fetched); }

void zpr_gather_params(zpr *c, int64_t first, void *to) {
  int64_t i, size = element_bytes(c);
  part p = part_of(c, first, to);
  zpr_copy(c, p.to, here_at(c, p.begin), (least(p.end, zpr_params_here(c)) - p.begin) * size);
  if (!zpr_shards_params(c->program)) return;
  const zpr_run *run = zpr_bucket_of(c, first, &i);
  zpr_group holders = zpr_part_of(c, run->params[0].spread).holders;
  zpr_group_all_gather(c, &holders, ZPR_DATA, to, p.end - p.begin);
}

/* ---- the update on the device ---- */

/* The parts of blocks in parameters [begin, end), which are in a buffer of the ring. */
static void update_piece(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule, int64_t begin, int64_t end,
                         int64_t buffer) {
  for (int64_t i = 0; i < n; i++) {
    zpr_block b = blocks[i];
    b.begin = most(b.begin, begin - b.to_params);
    b.end = least(b.end, end - b.to_params);
    if (b.begin >= b.end) continue;
    b.to_params += (buffer - c->stage->params) / element_bytes(c) - begin;
    zpr_update_blocks(c, &b, 1, rule);
  }
}

/* Parameters and state are numbered alike: there are none off the device with ZeRO 1 and 2. */
void zpr_update_params_away(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  const zpr_stage *s = c->stage;
  int64_t size = element_bytes(c), here = zpr_params_here(c), ticket[2] = {0, 0};
  if (s->params_away.elements == 0) return;
  for (int64_t at = here, end = zpr_state_here(c), k = 0, count; at < end; at += count, k++) {
    int64_t buffer = s->param_ring + k % 2 * s->bucket_elements * size;
    char *away = zpr_param_away_at(c, at);
    count = least(end - at, s->bucket_elements);
    zpr_copy_before(c, ticket[k % 2]);
    zpr_copy_before(c, zpr_copy_up(c, zpr_at(c, buffer), away, count * size, 0));
    update_piece(c, blocks, n, rule, at, at + count, buffer);
    ticket[k % 2] = zpr_copy_down(c, away, zpr_at(c, buffer), count * size);
  }
  for (int i = 0; i < 2; i++) {
    zpr_copy_wait(c, ticket[i]);
    zpr_copy_before(c, ticket[i]);
  }
}
