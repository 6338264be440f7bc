/* SPDX-License-Identifier: Apache-2.0 */
/* What 1-bit Adam does over the threads of a rank (../optimizer/one_bit.c). */
#include "one_bit.h"
#include "state.h"

enum { GRAIN = 256 }; /* blocks of ZPK_SIGNS elements */

/* Weights as the update has them: the f32 master copy where there is one. */
static void *master_of(zpr *c) {
  return zpr_at(c, zpk_is_narrow(c->program->dtype) ? c->stage->master : c->stage->params);
}

typedef struct blocks_task {
  zpr *c;
  const zpr_block *blocks;
  const zpk_update *rule;
} blocks_task;

static void momentum(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const blocks_task *a = arg;
  const zpr_stage *stage = a->c->stage;
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    const zpk_update rule = zpr_rule_with(a->rule, b->recipe);
    zpk_momentum(&rule, master_of(a->c), zpr_at(a->c, stage->grads), zpr_at(a->c, stage->moment1), b->begin, b->end);
  }
}

void zpr_momentum_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  blocks_task a = {c, blocks, rule};
  zpr_parallel(c, n, 1, momentum, &a);
}

static void frozen(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const blocks_task *a = arg;
  const zpr_stage *stage = a->c->stage;
  zpk_dtype dtype = a->rule->dtype;
  uint16_t *rounded = zpk_is_narrow(dtype) ? zpr_at(a->c, stage->params) : NULL;
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    float *master = master_of(a->c);
    const zpk_update rule = zpr_rule_with(a->rule, b->recipe);
    zpk_frozen_update(&rule, master, zpr_at(a->c, stage->moment1), zpr_at(a->c, stage->moment2), b->begin, b->end);
    if (rounded) zpk_round(dtype, master + b->begin, rounded + b->begin, b->end - b->begin);
  }
}

void zpr_frozen_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  blocks_task a = {c, blocks, rule};
  zpr_parallel(c, n, 1, frozen, &a);
}

/* ---- parts of the flat buffers ---- */

typedef struct part_task {
  zpk_dtype dtype;
  int n;
  const void *records;
  int64_t blocks; /* of a record */
  zpk_signs to;
  char *m, *v;
  float *error;
} part_task;

static int64_t part_elements(const zpr *c) { return zpr_flat_elements(c->stage) / c->program->data; }

/* record: that the task makes or reads. */
static part_task task_of(zpr *c, int part, const void *record) {
  int64_t begin = part * part_elements(c), size = zpk_real_bytes(c->program->dtype);
  return (part_task){.dtype = c->program->dtype,
                     .blocks = part_elements(c) / ZPK_SIGNS,
                     .to = zpk_signs_of(record, part_elements(c) / ZPK_SIGNS, 0),
                     .m = (char *)zpr_at(c, c->stage->moment1) + begin * size,
                     .v = (char *)zpr_at(c, c->stage->moment2) + begin * size,
                     .error = (float *)zpr_at(c, c->stage->error) + begin};
}

ZPR_TASK(pack, part_task, zpk_pack_signs(a->dtype, a->m, a->v, a->error, a->to, begin, end))

void zpr_pack_part(zpr *c, int part, void *record) {
  part_task a = task_of(c, part, record);
  zpr_parallel(c, a.blocks, GRAIN, pack, &a);
}

ZPR_TASK(average, part_task,
         zpk_average_signs(a->dtype, a->n, a->records, a->blocks, a->v, a->error, a->to, begin, end))

void zpr_average_part(zpr *c, int part, const void *records, void *record) {
  part_task a = task_of(c, part, record);
  a.n = c->program->data;
  a.records = records;
  a.error = zpr_at(c, c->stage->server_error);
  zpr_parallel(c, a.blocks, GRAIN, average, &a);
}

ZPR_TASK(unpack, part_task, zpk_unpack_signs(a->dtype, a->to, a->v, a->m, begin, end))

void zpr_unpack_part(zpr *c, int part, const void *record) {
  part_task a = task_of(c, part, record);
  zpr_parallel(c, a.blocks, GRAIN, unpack, &a);
}
