/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of experts, whose matrices transformers has in one parameter since its version 5: gate above up. PEFT has
 * one adapter for both, here each has its own. Side by side they are one of both ranks, of which b is diagonal in
 * blocks:
 *
 *     [ w_gate ]   [ b_gate    0  ] [ a_gate ]
 *     [  w_up  ] + [   0     b_up ] [  a_up  ] */
#include "weights_internal.h"

#include <assert.h>
#include <math.h>

static zp_peft_param *param_of(zp_arena *arena, zp_peft_params *to, const zp_hf_expert *x, const zp_merge *adapter) {
  const char *name = zp_format(arena, "%s.%s", x->module, x->param);
  for (int i = 0; i < to->len; i++)
    if (strcmp(to->data[i].name, name) == 0) return &to->data[i];
  zp_peft_param param = {.name = name, .in = adapter->in, .out = adapter->out, .parts = x->parts, .first = *x};
  assert(param.parts <= ZP_PEFT_PARTS);
  zp_push(arena, to, param);
  return &to->data[to->len - 1];
}

/* Weights of experts are matched as they are: [experts, out, in] here as well, one for every matrix of an expert. */
static void add_expert(zp_arena *arena, const zp_weight_map *map, zp_peft_params *to, const zp_peft_module *m) {
  zp_hf_expert x;
  bool found = zp_hf_expert_of(arena, map->imported, zp_format(arena, "%s.weight", m->name), &x);
  assert(found && x.expert == m->expert && m->adapter->trans && m->out == m->adapter->out);
  (void)found;
  zp_peft_param *param = param_of(arena, to, &x, m->adapter);
  assert(!param->part[x.part].adapter || param->part[x.part].adapter == m->adapter);
  param->part[x.part].adapter = m->adapter;
  if (x.expert >= param->experts) param->experts = x.expert + 1;
}

static void set_ranks(zp_peft_param *p) {
  for (int i = 0; i < p->parts; i++) {
    p->part[i].rank_at = p->rank;
    if (p->part[i].adapter) p->rank += p->part[i].adapter->rank;
  }
}

/* PEFT wraps a module once for every parameter that has an adapter, the module's first parameter innermost. */
static void set_module(zp_arena *arena, const zp_peft_params *all, zp_peft_param *p) {
  p->module = p->first.module;
  for (int i = 0; i < all->len; i++) {
    const zp_hf_expert *other = &all->data[i].first;
    if (strcmp(other->module, p->first.module) == 0 && other->place > p->first.place)
      p->module = zp_format(arena, "%s.base_layer", p->module);
  }
}

zp_peft_params zp_peft_params_of(zp_arena *arena, const zp_weight_map *map, zp_peft_modules *modules) {
  zp_peft_params params = {0};
  zp_peft_modules others = {0};
  for (int i = 0; i < modules->len; i++) {
    if (modules->data[i].adapter->experts)
      add_expert(arena, map, &params, &modules->data[i]);
    else
      zp_push(arena, &others, modules->data[i]);
  }
  for (int i = 0; i < params.len; i++) {
    set_ranks(&params.data[i]);
    set_module(arena, &params, &params.data[i]);
  }
  *modules = others;
  return params;
}

bool zp_peft_share(zp_peft_param *p) {
  if (!p->part[0].adapter || !p->part[1].adapter) return false;
  p->part[1].rank_at = 0;
  p->rank = p->part[0].adapter->rank;
  return true;
}

double zp_peft_alpha(const zp_adapt *adapt, int64_t rank) {
  double times = (double)rank / (double)adapt->rank;
  return adapt->alpha * (adapt->by_root ? sqrt(times) : times);
}

const char *zp_peft_param_tensor(zp_arena *arena, const zp_peft_param *param, char which) {
  return zp_format(arena, "base_model.model.%s.lora_%c.weight", param->module, which);
}
