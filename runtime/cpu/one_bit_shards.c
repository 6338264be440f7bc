/* SPDX-License-Identifier: Apache-2.0 */
/* What 1-bit Adam with ZeRO 1 does over the threads of a rank (../optimizer/one_bit_shards.c). */
#include "one_bit_shards.h"
#include "state.h"

typedef struct owned_task {
  zpr *c;
  const zpr_owned_block *blocks;
  double scale;
  const void *records;
} owned_task;

static int64_t record_blocks(const zpr *c) { return zpr_shard_elements(c->stage) / ZPK_SIGNS; }
static int64_t own_of(const zpr_block *b) { return b->begin + b->to_state; }

static void add_to_error(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const owned_task *a = arg;
  zpk_dtype dtype = a->c->program->dtype;
  const char *grads = zpr_at(a->c, a->c->stage->grads);
  float *error = zpr_at(a->c, a->c->stage->error);
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i].block;
    zpk_add_to_error(dtype, grads + b->begin * zpk_real_bytes(dtype), a->scale, error + b->begin, b->end - b->begin);
  }
}

void zpr_add_to_errors(zpr *c, const zpr_owned_block *blocks, int64_t n, double scale) {
  owned_task a = {c, blocks, scale, NULL};
  zpr_parallel(c, n, 1, add_to_error, &a);
}

static void pack(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const owned_task *a = arg;
  float *error = zpr_at(a->c, a->c->stage->error);
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i].block;
    zpk_signs to = zpk_signs_of(a->records, record_blocks(a->c), a->blocks[i].owner);
    zpk_pack_error(error + b->begin, b->end - b->begin, to, own_of(b) / ZPK_SIGNS);
  }
}

void zpr_pack_errors(zpr *c, const zpr_owned_block *blocks, int64_t n, void *records) {
  owned_task a = {c, blocks, 0, records};
  zpr_parallel(c, n, 1, pack, &a);
}

static void apply(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const owned_task *a = arg;
  zpk_dtype dtype = a->c->program->dtype;
  char *weights = zpr_at(a->c, a->c->stage->params);
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i].block;
    zpk_signs from = zpk_signs_of(a->records, record_blocks(a->c), a->blocks[i].owner);
    zpk_apply_signs(dtype, from, own_of(b) / ZPK_SIGNS, weights + b->begin * zpk_bytes(dtype), b->end - b->begin);
  }
}

void zpr_apply_signs(zpr *c, const zpr_owned_block *blocks, int64_t n, const void *records) {
  owned_task a = {c, blocks, 0, records};
  zpr_parallel(c, n, 1, apply, &a);
}

/* ---- the owner ---- */

typedef struct mine_task {
  zpr *c;
  const zpr_block *mine;
  const zpk_update *rule;
  const double *ratio;
  zpk_records in;
  zpk_signs to;
} mine_task;

static void update(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const mine_task *a = arg;
  const zpr_stage *stage = a->c->stage;
  zpk_dtype dtype = a->rule->dtype;
  bool mixed = zpk_is_narrow(dtype);
  int64_t size = zpk_bytes(dtype), real = zpk_real_bytes(dtype);
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->mine[i];
    int64_t own = own_of(b);
    zpk_update rule = zpr_rule_with(a->rule, b->recipe);
    if (a->ratio) rule.lr *= a->ratio[i];
    zpk_owner owner = {.weights = (char *)zpr_at(a->c, stage->params) + (b->begin + b->to_params) * size,
                       .master = mixed ? (float *)zpr_at(a->c, stage->master) + own : NULL,
                       .m = (char *)zpr_at(a->c, stage->moment1) + own * real,
                       .v = (char *)zpr_at(a->c, stage->moment2) + own * real,
                       .server_error = mixed ? NULL : (float *)zpr_at(a->c, stage->server_error) + own};
    zpk_owner_update(&rule, &owner, a->in, a->to, own / ZPK_SIGNS, b->end - b->begin);
  }
}

void zpr_owner_update(zpr *c, const zpr_block *mine, int64_t n, const zpk_update *rule, const double *ratio,
                      const void *records, void *record) {
  int64_t blocks = record_blocks(c);
  zpk_records in = {records ? c->program->data : 0, records, blocks};
  mine_task a = {c, mine, rule, ratio, in, zpk_signs_of(record, blocks, 0)};
  zpr_parallel(c, n, 1, update, &a);
}
