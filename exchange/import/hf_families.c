/* SPDX-License-Identifier: Apache-2.0 */
/* Which family a configuration is of: by its model_type, and a class that this import writes the head of. */
#include "hf.h"

#define FAMILY(name) extern const hf_family hf_##name;
#include "families.def"
#undef FAMILY
#define FAMILY(name) &hf_##name,
static const hf_family *const families[] = {
#include "families.def"
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Weights may have any head: missing and surplus tensors are reported, and what is drawn and unread. */
static void check_class(hf_reader *r) {
  static const char key[] = "architectures";
  const hf_class *known = r->model->family->classes;
  const zp_json *list = hf_json(r, key);
  if (!list || r->for_weights) return;
  const char *class = zp_json_string(zp_json_at(list, 0), NULL);
  for (int i = 0; class && known[i].name; i++) {
    if (strcmp(known[i].name, class) != 0) continue;
    if (!known[i + 1].name) hf_note(r, "%s has no head: that of %s was written", class, known[0].name);
    return;
  }
  if (!class)
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` is %s, a list of one class is expected", key,
              hf_shown(r, list));
  else
    hf_refuse(
        r, key,
        zp_format(r->arena, "a copy of the file with [\"%s\"] is of the same layers with its head", known[0].name),
        "%s has a head that this import does not write", class);
}

/* What rows and templates may leave as it is. */
static void set_defaults(hf_reader *r) {
  static const char *const unset[] = {"head",        "longest",      "experts", "any_sample",
                                      "uses_models", "takes_arrays", "dropout", "full_layers"};
  for (size_t i = 0; i < sizeof unset / sizeof *unset; i++) hf_set_int(r->arena, r->model, unset[i], 0);
  hf_set_int(r->arena, r->model, "variants", 1);
  hf_set_int(r->arena, r->model, "for_weights", r->for_weights);
  const char *class = zp_json_string(zp_json_at(hf_json(r, "architectures"), 0), "");
  for (const hf_class *known = r->model->family->classes; known->name; known++)
    if (strcmp(known->name, class) == 0) hf_set_int(r->arena, r->model, "head", known->head);
}

static void read_family(hf_reader *r) {
  set_defaults(r);
  for (int i = 0; i < HF_MOST_ROWS && r->model->family->rows[i]; i++) hf_read_rows(r, r->model->family->rows[i]);
  check_class(r);
}

bool hf_read_model(hf_reader *r) {
  static const char key[] = "model_type";
  const char *type = zp_json_string(hf_json(r, key), NULL), *names[N_FAMILIES];
  if (!type) {
    hf_wrong(r, key, hf_json(r, key), "a word");
    return false;
  }
  for (int i = 0; i < N_FAMILIES; i++) {
    names[i] = families[i]->type;
    if (strcmp(families[i]->type, type) != 0) continue;
    r->model->family = families[i];
    if (!hf_is_whole(r)) return false;
    read_family(r);
    return true;
  }
  if (strcmp(type, "gemma3") == 0) {
    hf_refuse(r, key, "a file with what stands in `text_config` is of its text model, `gemma3_text`",
              "a model of type `gemma3` reads pictures alongside text");
    return false;
  }
  zp_diag *d = zp_report(r->diags, ZP_Z0684, hf_place(r, key), "model_type `%s` is not known to this import", type);
  zp_diag_did_you_mean(d, type, names, N_FAMILIES);
  zp_buf list = zp_buf_new(r->arena);
  for (int i = 0; i < N_FAMILIES; i++) zp_buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
  zp_diag_note(d, "known are %s", list.data);
  return false;
}
