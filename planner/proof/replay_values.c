/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a replay in words, and findings with their place. */
#include "replay_internal.h"

#include <stdarg.h>

#define LL(x) ((long long)(x))

enum {
  MOST_FOUND = 3, /* findings of a stage: the ones after follow from them */
};

/* The call of the stage that begins with a unit. */
static const zp_replay_call *call_at(const zp_replay *r, int64_t unit) {
  for (int k = 0; k < r->stage->n_chunks; k++)
    for (int64_t j = 0; j < r->chunk[k].calls; j++)
      if (r->chunk[k].call[j].first == unit) return &r->chunk[k].call[j];
  return NULL;
}

const char *zp_replay_value_text(const zp_replay *r, uint64_t value) {
  const uint64_t mask = (UINT64_C(1) << ZP_REPLAY_BITS) - 1;
  int64_t a = (int64_t)(value >> 2 * ZP_REPLAY_BITS & mask), b = (int64_t)(value >> ZP_REPLAY_BITS & mask),
          c = (int64_t)(value & mask);
  const zp_replay_call *call;
  const zp_model *model = r->program->spec->model;
  switch ((zp_replay_kind)(value >> 60)) {
  case ZP_TAG_POISON: break;
  case ZP_TAG_TENSOR:
  case ZP_TAG_OPERAND:
    call = call_at(r, b);
    return zp_format(r->words, "`%s` of unit %lld and micro-batch %lld%s",
                     call ? call->seg->graph->tensors.data[a].name : "a tensor", LL(b), LL(c),
                     value >> 60 == ZP_TAG_OPERAND ? " as products read it" : "");
  case ZP_TAG_CARRY: return zp_format(r->words, "the input of unit %lld for micro-batch %lld", LL(b), LL(c));
  case ZP_TAG_CARRY_GRAD:
    return zp_format(r->words, "the gradient of the input of unit %lld for micro-batch %lld", LL(b), LL(c));
  case ZP_TAG_SHARD: return zp_format(r->words, "a shard of the input of unit %lld for micro-batch %lld", LL(b), LL(c));
  case ZP_TAG_INPUT: return zp_format(r->words, "`%s` of micro-batch %lld", model->inputs.data[a].name, LL(c));
  case ZP_TAG_PARAM:
    return zp_format(r->words, "parameter `%s`", zp_param_instance_name(r->words, &model->params.data[a], b));
  case ZP_TAG_STATE: return "state that lasts from step to step";
  case ZP_TAG_GRADIENT: return "a sum of gradients";
  }
  return "nothing that was ever written";
}

void zp_replay_find(zp_replay *r, const zp_replay_frame *f, const char *format, ...) {
  if (r->n_found++ >= MOST_FOUND) return;
  va_list args;
  va_start(args, format);
  const char *what = zp_vformat(r->words, format, args), *where = "at the end";
  va_end(args);
  if (f) {
    static const char *const pass[] = {"forward", "backward", "backward (inputs)", "backward (weights)"};
    const zp_step *step = f->step >= 0 ? &f->p->steps.data[f->step] : NULL;
    const char *named =
        step && step->node ? zp_format(r->words, " (%s `%s`)", zp_op_name(step->op), step->node->name) : "";
    where = zp_format(r->words, "%s of `%s` %lld, micro-batch %lld", pass[f->pass], f->call->seg->segment->name,
                      LL(f->call->run->first + f->call->i), LL(f->mb));
    if (step) where = zp_format(r->words, "%s, step %d%s", where, f->step, named);
  }
  zp_push(r->words, r->findings, zp_format(r->words, "stage %d, %s: %s", r->stage->index, where, what));
}

bool zp_replay_want(zp_replay *r, const zp_replay_frame *f, zp_shadow_place place, uint64_t value, const char *what) {
  uint64_t found;
  int64_t at;
  if (zp_shadow_holds(&r->device, place, value, &found, &at)) return true;
  if (found == value)
    zp_replay_find(r, f, "wants `%s` at byte %lld of the arena, where other parts of it stand", what, LL(at));
  else
    zp_replay_find(r, f, "wants `%s` at byte %lld of the arena, where %s stands", what, LL(at),
                   zp_replay_value_text(r, found));
  return false;
}
