/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit Adam with ZeRO 1 where the owner's state is on the host: there the records of its elements are what it updates
 * by, and there is made what all shall add to their weights. The records stand in memory of the host with these
 * elements' blocks alone, one of every rank and after them the owner's.
 *
 * With 16 bits the owner's weights are the master copy, and those of all ranks come from the device. Otherwise the
 * weights of the state are a copy of those, which adds what all add, and what the owner has more stands alongside. */
#include <assert.h>
#include <string.h>
#include "one_bit.h"
#include "one_bit_shards.h"
#include "tier.h"

static int64_t blocks_offloaded(const zpr *c) { return c->stage->state_offloaded.elements / ZPK_SIGNS; }

static zpk_records records_offloaded(zpr *c) {
  return (zpk_records){c->program->data, zpr_host_at(c, c->stage->host_records), blocks_offloaded(c)};
}

static zpk_signs change_offloaded(zpr *c) {
  return zpk_signs_of(zpr_host_at(c, c->stage->host_records), blocks_offloaded(c), c->program->data);
}

void zpr_owner_offloaded(zpr *c, const zpr_host_update *offloaded, const zpk_update *rule, const char *records,
                         char *record, zpr_between *here, void *arg) {
  zpk_records in = records_offloaded(c);
  int64_t blocks = zpr_shard_elements(c->stage) / ZPK_SIGNS, first = blocks - in.blocks, ticket = 0;
  assert(zpr_state_here(c) % ZPK_SIGNS == 0 && !c->stage->state_offloaded.on_disk);
  for (int r = 0; r < in.n; r++)
    ticket = zpr_record_down(c, records + r * blocks * ZPK_SIGNS_BYTES, blocks, first,
                             zpk_signs_of(in.records, in.blocks, r), in.blocks);
  zpr_copy_wait(c, ticket);
  zpr_host_update_run(c, offloaded, ZPR_PASS_OWNER, rule, here, arg);
  zpr_copy_wait(c, zpr_record_up(c, record, blocks, first, change_offloaded(c), in.blocks));
}

void zpr_owner_update_offloaded(zpr *c, const zpk_update *rule, const zpr_piece_of_state *p, const char *weights,
                                int64_t begin, int64_t end) {
  int64_t size = zpk_bytes(rule->dtype), real = zpk_real_bytes(rule->dtype), at = begin - p->first;
  int64_t offloaded = begin - zpr_state_here(c);
  bool mixed = zpk_is_narrow(rule->dtype);
  char *own = p->array[ZPR_WEIGHTS] + at * real;
  zpk_owner owner = {.weights = mixed ? weights + at * size : own,
                     .master = mixed ? own : NULL,
                     .m = p->array[ZPR_MOMENT1] + at * real,
                     .v = p->array[ZPR_MOMENT2] + at * real,
                     .server_error = mixed ? NULL : (float *)zpr_host_at(c, c->stage->host_server_error) + offloaded};
  assert(offloaded % ZPK_SIGNS == 0);
  zpk_owner_update(rule, &owner, records_offloaded(c), change_offloaded(c), offloaded / ZPK_SIGNS, end - begin);
  if (!mixed) zpk_apply_signs(rule->dtype, change_offloaded(c), offloaded / ZPK_SIGNS, own, end - begin);
}

void zpr_owner_clear_offloaded(zpr *c, int64_t begin, int64_t end) {
  int64_t here = zpr_state_here(c), real = zpk_real_bytes(c->program->dtype);
  if (begin >= end || zpk_is_narrow(c->program->dtype)) return;
  zpr_piece_of_state p = zpr_state_piece(c, 0); /* on the host the arrays stand side by side */
  memset(p.array[ZPR_WEIGHTS] + (begin - here) * real, 0, (size_t)((end - begin) * real));
  memset((float *)zpr_host_at(c, c->stage->host_server_error) + begin - here, 0, (size_t)(end - begin) * 4);
}
