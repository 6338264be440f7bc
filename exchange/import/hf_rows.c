/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the rows of a family: fields with their type and range, and what fields say together. Rows of keys that nothing
 * asks for are hf_keys.c's. */
#include "hf.h"

hf_scope hf_scope_of(const hf_reader *r) {
  return (hf_scope){.arena = r->arena, .model = r->model, .root = r->root, .for_people = true};
}

static const hf_value poison = {.kind = HF_POISON};

/* What a field without a value says. False: it is no value of its own. */
static bool is_left_out(hf_reader *r, const hf_row *row, hf_value *value) {
  if (hf_json(r, row->key)) return false;
  hf_scope scope = hf_scope_of(r);
  const char *expression = hf_is_null(r, row->key) ? row->null : row->missing;
  if (!expression) return false;
  *value = hf_evaluate(&scope, expression);
  return true;
}

static hf_value wrong(hf_reader *r, const hf_row *row, const char *wanted) {
  hf_wrong(r, row->key, hf_json(r, row->key), wanted);
  return poison;
}

static hf_value read_size(hf_reader *r, const hf_row *row) {
  int64_t n = zp_json_int(hf_json(r, row->key), (int64_t)row->low - 1);
  if (n >= (int64_t)row->low && n <= (int64_t)row->high) return (hf_value){.kind = HF_INT, .n = n};
  return wrong(r, row,
               zp_format(r->arena, "a whole number from %lld to %lld", (long long)row->low, (long long)row->high));
}

static hf_value read_real(hf_reader *r, const hf_row *row) {
  double x = zp_json_real(hf_json(r, row->key), row->low - 1);
  if (x >= row->low && x <= row->high) return (hf_value){.kind = HF_FLOAT, .x = x};
  return wrong(r, row, zp_format(r->arena, "a number from %g to %g", row->low, row->high));
}

static hf_value read_flag(hf_reader *r, const hf_row *row) {
  bool flag = zp_json_get_bool(r->root, row->key, false);
  if (flag != zp_json_get_bool(r->root, row->key, true)) return wrong(r, row, "true or false");
  return (hf_value){.kind = HF_INT, .n = flag};
}

static hf_value read_word(hf_reader *r, const hf_row *row) {
  const char *word = zp_json_string(hf_json(r, row->key), NULL);
  if (!word) return wrong(r, row, "a word");
  return (hf_value){.kind = HF_TEXT, .text = zp_strdup(r->arena, word)}; /* the file's text goes */
}

/* "gelu(x, approximate = "tanh")": `act` is what stands before x, `act_end` what stands after. */
static void set_activation(hf_reader *r, const char *key, hf_value word) {
  static const struct {
    const char *word, *begin, *end;
  } rows[] = {{"gelu_new", "gelu(", ", approximate = \"tanh\")"},
              {"gelu_pytorch_tanh", "gelu(", ", approximate = \"tanh\")"},
              {"gelu_fast", "gelu(", ", approximate = \"tanh\")"},
              {"gelu", "gelu(", ")"},
              {"relu", "relu(", ")"},
              {"silu", "silu(", ")"}};
  hf_set(r->arena, r->model, "act", poison);
  hf_set(r->arena, r->model, "act_end", poison);
  for (size_t i = 0; word.kind == HF_TEXT && i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(rows[i].word, word.text) != 0) continue;
    hf_set_text(r->arena, r->model, "act", rows[i].begin);
    hf_set_text(r->arena, r->model, "act_end", rows[i].end);
    return;
  }
  if (word.kind == HF_TEXT)
    hf_refuse(r, key, "known are gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu, silu",
              "activation `%s` is not an op of the language", word.text);
}

static void read_field(hf_reader *r, const hf_row *row) {
  hf_value value;
  if (!is_left_out(r, row, &value)) switch (row->kind) {
    case HF_SIZE: value = read_size(r, row); break;
    case HF_REAL: value = read_real(r, row); break;
    case HF_FLAG: value = read_flag(r, row); break;
    default: value = read_word(r, row); break;
    }
  if (row->kind == HF_ACTIVATION)
    set_activation(r, row->key, value);
  else
    hf_set(r->arena, r->model, row->to, value);
}

static void say(hf_reader *r, const hf_row *row) {
  hf_scope scope = hf_scope_of(r);
  if (row->kind == HF_TELL && !hf_is_sound(r)) return; /* there will be no text that it is about */
  if (!hf_holds(&scope, row->when)) return;
  const char *text = hf_fill_in(&scope, row->text), *help = row->help ? hf_fill_in(&scope, row->help) : NULL;
  if (row->kind == HF_TELL)
    hf_note(r, "%s", text);
  else if (row->kind == HF_WRONG)
    zp_report(r->diags, ZP_Z0683, hf_place(r, row->key), "%s", text);
  else
    hf_refuse(r, row->key, help, "%s", text);
}

void hf_read_rows(hf_reader *r, const hf_row *row) {
  for (; row->kind != HF_END; row++) {
    hf_scope scope = hf_scope_of(r);
    switch (row->kind) {
    case HF_SIZE:
    case HF_REAL:
    case HF_FLAG:
    case HF_WORD:
    case HF_ACTIVATION: read_field(r, row); break;
    case HF_LET: hf_set(r->arena, r->model, row->to, hf_evaluate(&scope, row->missing)); break;
    case HF_CALL: row->call(r); break;
    case HF_WRONG:
    case HF_REFUSED:
    case HF_TELL: say(r, row); break;
    default: break; /* hf_keys.c */
    }
  }
}
