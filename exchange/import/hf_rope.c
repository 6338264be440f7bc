/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: theta and what else stands in rope_scaling of older files, and in rope_parameters of newer ones,
 * which have theta too. */
#include "hf.h"

/* Keys alongside the type and theta. Those of other types than `default` are read by nobody then. */
static void look_at_rope(hf_reader *r, const char *key, const zp_json *rope, const char *known_here) {
  const char *const known[] = {"rope_type", "type", "rope_theta", known_here};
  const char *inner;
  for (int i = 0; (inner = zp_json_key(rope, i)) != NULL; i++) {
    const zp_json *value = zp_json_get(rope, inner);
    bool is_known = false;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) is_known |= known[k] && strcmp(inner, known[k]) == 0;
    if (is_known || zp_json_is_null(value)) continue;
    if (zp_json_is_object(value))
      hf_refuse(r, key, NULL, "`%s` has rotary positions for `%s` alone: layers of this type have the same ones", key,
                inner);
    else
      hf_note(r, "`%s` (%s) of `%s` was left out: rotary positions of type `default` do not read it", inner,
              hf_shown(r, value), key);
  }
}

/* What is there must be a number: null is not the class's. */
static double read_theta(hf_reader *r, const char *key, const zp_json *rope, double usual) {
  static const char wanted[] = "a number from 1 to 1e12 is expected";
  const zp_json *value = zp_json_get(rope, "rope_theta");
  double theta = value ? zp_json_real(value, 0) : usual;
  if (theta >= 1 && theta <= 1e12) return theta;
  if (value)
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`rope_theta` of `%s` is %s, %s", key, hf_shown(r, value), wanted);
  else
    zp_report(r->diags, ZP_Z0683, hf_place(r, "rope_theta"), "`rope_theta` is null, %s", wanted);
  return 1;
}

/* `rope_type`, or `type` of older files; "" where it is no word. */
static const char *rope_type(const zp_json *rope) {
  const zp_json *value = zp_json_get(rope, "rope_type");
  if (!value) value = zp_json_get(rope, "type");
  return value ? zp_json_string(value, "") : "default";
}

/* Theta of such an object, the value of `key` or a part of it; `usual` where it is NULL or has none. `known`: a key of
 * it that is read elsewhere; NULL: none. */
static double theta_of(hf_reader *r, const char *key, const zp_json *rope, double usual, const char *known) {
  static const char help[] = "shapes, memory and time do not depend on it: plan a copy of the file without the field";
  if (!rope) return read_theta(r, key, NULL, usual);
  const char *type = rope_type(rope);
  if (!zp_json_is_object(rope))
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` is no object", key);
  else if (!type[0])
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`rope_type` of `%s` is no word", key);
  else if (strcmp(type, "default") != 0)
    hf_refuse(r, key, help, "rotary positions are scaled (`%s`)", type);
  else
    look_at_rope(r, key, rope, known);
  return read_theta(r, key, rope, usual);
}

/* rope_scaling counts where both are, but for an empty one. */
static const char *rope_key(hf_reader *r) {
  const zp_json *scaling = hf_json(r, "rope_scaling");
  hf_json(r, "rope_parameters");
  bool empty = !scaling || (zp_json_is_object(scaling) && !zp_json_key(scaling, 0));
  return empty ? "rope_parameters" : "rope_scaling";
}

/* The number of a row that was read before; poison: 1. */
static double read_number(const hf_reader *r, const char *name) {
  hf_scope scope = hf_scope_of(r);
  hf_value value = hf_evaluate(&scope, name);
  return value.kind == HF_FLOAT ? value.x : value.kind == HF_INT ? (double)value.n : 1;
}

static const char factor[] = "partial_rotary_factor";

/* Classes that turn a share of a head have it here or alongside. */
static void refuse_share(hf_reader *r, const char *key, const zp_json *rope) {
  const zp_json *among = zp_json_get(rope, factor), *alone = hf_json(r, factor), *share = among ? among : alone;
  if (share && zp_json_real(share, 0) != 1)
    hf_refuse(r, among ? key : factor, NULL, "`%s` is %s: the import writes layers whose heads turn whole", factor,
              hf_shown(r, share));
}

void hf_read_rope(hf_reader *r) {
  const char *key = rope_key(r);
  const zp_json *rope = hf_json(r, key);
  bool has_share = hf_int(r->model, "has_rotary_share");
  double theta = theta_of(r, key, rope, read_number(r, "theta"), has_share ? factor : NULL);
  hf_set_real(r->arena, r->model, "theta", theta);
  if (has_share) refuse_share(r, key, rope);
}

/* The share of a head that turns; newer files have it among rope_parameters, which count where both are. */
void hf_read_neox_rope(hf_reader *r) {
  const char *key = rope_key(r);
  const zp_json *parameters = hf_json(r, key);
  hf_set_real(r->arena, r->model, "theta", theta_of(r, key, parameters, read_number(r, "theta"), factor));
  if (!hf_is_sound(r)) return;
  bool newer = zp_json_get(parameters, factor) != NULL;
  double share = newer ? zp_json_get_real(parameters, factor, -1) : read_number(r, "rotary_share");
  zp_span place = hf_place(r, newer ? key : "rotary_pct");
  if (!(share >= 0 && share <= 1)) {
    zp_report(r->diags, ZP_Z0683, place, "`%s` is no number from 0 to 1", factor);
    return;
  }
  int64_t head_size = hf_int(r->model, "head_size"), columns = (int64_t)((double)head_size * share);
  if (columns % 2 != 0 || columns == 0)
    zp_report(r->diags, ZP_Z0683, place, "%g of a head of %lld are no pairs for rotary positions", share,
              (long long)head_size);
  else if (columns < head_size)
    hf_set_int(r->arena, r->model, "rotary", columns);
}

/* Frequencies of layers with a window are others. Newer files have both among rope_parameters. */
void hf_read_gemma3_rope(hf_reader *r) {
  static const char key[] = "rope_parameters", full[] = "full_attention", local[] = "sliding_attention";
  const zp_json *both = hf_json(r, key), *scaling = hf_json(r, "rope_scaling");
  if (both && !zp_json_get(both, full) && !zp_json_get(both, local))
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` has neither `%s` nor `%s`", key, full, local);
  double theta = theta_of(r, key, zp_json_get(both, full), read_number(r, "theta"), NULL);
  theta = theta_of(r, "rope_scaling", scaling, theta, NULL); /* of layers that see all, and before the other */
  hf_set_real(r->arena, r->model, "theta", theta);
  hf_set_real(r->arena, r->model, "local_theta",
              theta_of(r, key, zp_json_get(both, local), read_number(r, "local_theta"), NULL));
}
