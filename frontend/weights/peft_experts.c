/* Adapters of experts, whose matrices transformers has in one parameter since its version 5: gate above up. PEFT has one
 * adapter for both, here each has its own. Side by side they are one of both ranks, of which b is diagonal in blocks:
 *
 *     [ w_gate ]   [ b_gate    0  ] [ a_gate ]
 *     [  w_up  ] + [   0     b_up ] [  a_up  ] */
#include "weights_internal.h"

#include <math.h>

typedef struct grouper {
  zp_arena *arena;
  zp_diags *diags;
  const zp_spec *spec;
  const zp_weight_map *map;
  zp_peft_params *to;
} grouper;

static zp_peft_param *param_of(grouper *g, const zp_hf_expert *x, const zp_peft_module *m) {
  const char *name = zp_format(g->arena, "%s.%s", x->module, x->param);
  for (int i = 0; i < g->to->len; i++)
    if (strcmp(g->to->data[i].name, name) == 0) return &g->to->data[i];
  zp_peft_param param = {.name = name, .in = m->adapter->in, .parts = x->parts, .rows = m->out, .first = *x};
  zp_push(g->arena, g->to, param);
  return &g->to->data[g->to->len - 1];
}

/* NULL, or why not. */
static const char *add_expert(grouper *g, const zp_peft_module *m) {
  zp_hf_expert x;
  if (!g->map->imported || !zp_hf_expert_of(g->arena, g->map->imported, zp_format(g->arena, "%s.weight", m->name), &x))
    return "it is one of several matrices here";
  if (x.expert != m->expert) return "experts stand in another order here";
  zp_peft_param *param = param_of(g, &x, m);
  zp_peft_part *part = &param->part[x.part];
  if (x.expert >= param->experts) param->experts = x.expert + 1;
  if (!part->module) part->module = m;
  bool alike = part->module->adapter == m->adapter && part->module->out == m->out && m->adapter->in == param->in &&
               memcmp(part->module->row, m->row, sizeof *m->row * (size_t)m->out) == 0;
  return alike ? NULL : "experts stand otherwise than the first one here";
}

/* Parts of one weight here have one adapter, others their own. */
static void set_ranks(zp_peft_param *p) {
  for (int i = 0; i < p->parts; i++) {
    if (!p->part[i].module) continue;
    const zp_merge *x = p->part[i].module->adapter;
    bool again = i > 0 && p->part[0].module && p->part[0].module->adapter == x;
    p->part[i].rank_at = again ? p->part[0].rank_at : p->rank;
    if (!again) p->rank += x->rank;
  }
}

/* PEFT wraps a module once for every parameter that has an adapter, the module's first parameter innermost. */
static void set_module(grouper *g, zp_peft_param *p) {
  p->module = p->first.module;
  for (int i = 0; i < g->to->len; i++) {
    const zp_hf_expert *other = &g->to->data[i].first;
    if (strcmp(other->module, p->first.module) == 0 && other->place > p->first.place)
      p->module = zp_format(g->arena, "%s.base_layer", p->module);
  }
}

bool zp_peft_params_of(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                       zp_peft_modules *modules, zp_peft_params *to) {
  grouper g = {arena, diags, spec, map, to};
  zp_peft_modules others = {0};
  for (int i = 0; i < modules->len; i++) {
    zp_peft_module *m = &modules->data[i];
    if (!m->adapter->experts) {
      zp_push(arena, &others, *m);
      continue;
    }
    const char *why = add_expert(&g, m);
    if (why) return zp_peft_refuse(diags, spec, m->name, why);
  }
  for (int i = 0; i < to->len; i++) {
    set_ranks(&to->data[i]);
    set_module(&g, &to->data[i]);
  }
  *modules = others; /* what parts point to stays in the arena */
  return true;
}

bool zp_peft_share(zp_peft_param *p) {
  const zp_peft_module *one = p->part[0].module, *other = p->part[1].module;
  if (!one || !other || one->adapter == other->adapter) return false;
  p->part[0].rank_at = p->part[1].rank_at = 0;
  p->rank = one->adapter->rank;
  return true;
}

double zp_peft_alpha(const zp_adapt *adapt, int64_t rank) {
  double times = (double)rank / (double)adapt->rank;
  return adapt->alpha * (adapt->by_root ? sqrt(times) : times);
}

const char *zp_peft_param_tensor(zp_arena *arena, const zp_peft_param *param, char which) {
  return zp_format(arena, "base_model.model.%s.lora_%c.weight", param->module, which);
}
