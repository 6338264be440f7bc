/* SPDX-License-Identifier: Apache-2.0 */
/* What 1-bit LAMB does over the threads of a rank (../optimizer/one_bit_lamb.c): a block is a task. */
#include "one_bit_lamb.h"
#include "state.h"

typedef struct frozen_task {
  zpr *c;
  const zpr_block *blocks;
  const zpk_update *rule;
  double fresh_bias2, *most;
  const void *records;
  const double *ratio;
} frozen_task;

static double owner_fresh(const frozen_task *a, const zpr_block *b) {
  const zpr_stage *s = a->c->stage;
  int64_t real = zpk_real_bytes(a->rule->dtype), own = b->begin + b->to_state;
  zpk_records in = {a->c->program->data, a->records, zpr_shard_elements(s) / ZPK_SIGNS};
  return zpk_lamb_owner(a->rule, in, own, (char *)zpr_at(a->c, s->moment1) + own * real,
                        (char *)zpr_at(a->c, s->moment2) + own * real, (char *)zpr_at(a->c, s->fresh) + own * real,
                        a->fresh_bias2, b->end - b->begin);
}

static void fresh(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const frozen_task *a = arg;
  const zpr_stage *s = a->c->stage;
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    if (a->records) {
      a->most[i] = owner_fresh(a, b);
      continue;
    }
    a->most[i] =
        zpk_lamb_fresh(a->rule, zpr_at(a->c, s->moment1), zpr_at(a->c, s->momentum_before), zpr_at(a->c, s->moment2),
                       zpr_at(a->c, s->fresh), a->fresh_bias2, b->begin + b->to_state, b->end + b->to_state);
  }
}

void zpr_lamb_fresh(zpr *c, zpr_block_list *list, const zpk_update *rule, double fresh_bias2, const void *records,
                    double *most) {
  frozen_task a = {c, list->block, rule, fresh_bias2, most, records, NULL};
  zpr_parallel(c, list->n, 1, fresh, &a);
}

static void frozen(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const frozen_task *a = arg;
  const zpr_stage *s = a->c->stage;
  bool mixed = zpk_is_narrow(a->rule->dtype);
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    zpk_update rule = zpr_rule_with(a->rule, b->recipe);
    void *param = zpr_at(a->c, mixed ? s->master : s->params);
    rule.lr *= a->ratio[i];
    zpk_lamb_frozen(&rule, param, zpr_at(a->c, s->moment1), zpr_at(a->c, s->moment2), b->begin, b->end);
    if (mixed)
      zpk_round(rule.dtype, (float *)param + b->begin, (uint16_t *)zpr_at(a->c, s->params) + b->begin,
                b->end - b->begin);
  }
}

void zpr_lamb_frozen(zpr *c, zpr_block_list *list, const zpk_update *rule, const double *ratio) {
  frozen_task a = {.c = c, .blocks = list->block, .rule = rule, .ratio = ratio};
  zpr_parallel(c, list->n, 1, frozen, &a);
}
