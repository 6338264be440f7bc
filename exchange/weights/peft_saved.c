/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that are trained whole alongside adapters: PEFT's modules_to_save. */
#include "weights_internal.h"

static bool refuse(zp_diags *diags, const zp_spec *spec, const char *tensor, const char *why) {
  zp_diag *d = zp_report(diags, ZP_Z0682, spec->train.adapt.span,
                         "PEFT saves no `%s`, which is trained alongside the "
                         "adapters: %s",
                         tensor, why);
  zp_diag_help(d, "`zplan export hf` writes the whole model");
  return false;
}

const char *zp_peft_module_of(zp_arena *arena, const char *tensor) {
  const char *dot = strrchr(tensor, '.');
  return dot ? zp_strndup(arena, tensor, (size_t)(dot - tensor)) : tensor;
}

static int find_param(const zp_model *model, const char *name) {
  for (int i = 0; i < model->params.len; i++)
    if (strcmp(model->params.data[i].name, name) == 0) return i;
  return -1;
}

static bool is_adapted(const zp_model *model, int param) {
  for (int i = 0; i < model->adapters.len; i++)
    if (model->adapters.data[i].weight == param) return true;
  return false;
}

/* Parts of the tensor that are trained; *why: for which reason they are none of PEFT's. */
static int trained_parts(const zp_model *model, const zp_mapped_tensor *tensor, const char **why) {
  int n = 0;
  for (int i = 0; i < tensor->parts.len; i++) {
    int param = find_param(model, tensor->parts.data[i].param);
    if (param < 0 || model->params.data[param].frozen) continue;
    n++;
    if (is_adapted(model, param)) *why = "it has an adapter, too";
    if (zp_model_is_tied(model, param)) *why = "what else reads the weight there would not be trained";
  }
  if (n > 0 && n < tensor->parts.len) *why = "a part of it is frozen";
  return n;
}

bool zp_peft_saved_of(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                      zp_peft_saved *to) {
  zp_strings modules = {0}; /* of `to` */
  for (int i = 0; i < map->tensors.len; i++) {
    const char *why = NULL;
    if (trained_parts(spec->model, &map->tensors.data[i], &why) == 0) continue;
    zp_hf_expert of;
    if (zp_hf_expert_of(arena, map->imported, map->tensors.data[i].name, &of))
      why = "since transformers 5 it is a part of a parameter, of which adapters alone are written";
    if (why) return refuse(diags, spec, map->tensors.data[i].name, why);
    zp_push(arena, to, &map->tensors.data[i]);
    zp_push(arena, &modules, zp_peft_module_of(arena, map->tensors.data[i].name));
  }
  for (int i = 0; i < map->tensors.len; i++) {
    const char *module = zp_peft_module_of(arena, map->tensors.data[i].name), *why = NULL;
    if (trained_parts(spec->model, &map->tensors.data[i], &why) > 0) continue;
    for (int k = 0; k < modules.len; k++)
      if (strcmp(modules.data[k], module) == 0)
        return refuse(diags, spec, to->data[k]->name,
                      zp_format(arena, "it trains whole modules, and `%s` is frozen", map->tensors.data[i].name));
  }
  return true;
}
