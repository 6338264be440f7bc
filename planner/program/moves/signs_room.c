/* What compressed exchanges (signs.c) keep beside the optimizer's state. */
#include "layout_internal.h"

enum { ERROR_BYTES = 4 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Two errors in f32, of the whole vector and of the part that the rank averages (arXiv 2102.02888), are where their
 * elements' state is: of a part the beginning is on the device, the more the earlier the part. Records on the host: a
 * worker's of all of it, or what n workers sent of a part and their mean.
 *
 * With ZeRO 1 the state is that of the part alone. A worker's errors are of everybody's elements and stay where the
 * gradients are; with a master copy the second error is what that has more than the weights. 1-bit LAMB's owners know
 * the gradient, and keep no momentum to take it from. A master copy is 0/1 Adam's weights of the last exchange. */
zp_signs_room zp_signs_room_of(const zp_lowered *l, const zp_choice *c, int64_t flat_elements, int64_t here,
                               int64_t away) {
  const zp_train *train = &l->spec->train;
  bool shards = zp_shards_state(c), mixed = l->compute_bytes == 2, owes = !shards || !mixed;
  if (!c->compress) return (zp_signs_room){0};
  int64_t part = flat_elements / c->data, part_away = least(away, part), real = here * l->stat_bytes;
  int64_t of_a_part = (c->data + 1) * part_away / ZP_SIGNS_BLOCK, of_all = shards ? 0 : away / ZP_SIGNS_BLOCK;
  zp_signs_room room = {.error = (shards ? flat_elements : here) * ERROR_BYTES,
                        .server_error = owes ? least(here, part) * ERROR_BYTES : 0,
                        .host_error = shards ? 0 : away * ERROR_BYTES,
                        .host_server_error = owes ? part_away * ERROR_BYTES : 0,
                        .host_records = (of_all > of_a_part ? of_all : of_a_part) * ZP_SIGNS_BLOCK_BYTES};
  bool lamb = zp_optimizer_facts(train)->one_bit == ZP_ONE_BIT_LAMB;
  if (lamb) room.fresh = real;
  if (lamb && !shards) room.momentum_before = real;
  if (train->variance_every > 0) room.local_sum = real;
  if (train->variance_every > 0 && !mixed) room.anchor = real;
  return room;
}
