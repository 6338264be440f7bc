/* SPDX-License-Identifier: Apache-2.0 */
/* `precision` of the train block, words of other programs for it, and what it makes of the model. */
#include "spec_internal.h"

const zp_word zp_precision_words[] = {
#define PRECISION(id, word, ...) {word, ZP_PREC_##id},
#include <zplan/precisions.def>
    {NULL, 0}};

/* Recipes of other programs for products in 8 or 4 bits. */
static bool refuse_recipe(zp_reader *reader, zp_span span, const char *text) {
  static const char blocks[] =
      "write `\"mixed_fp8_block\"`: products of layers in fp8, a scale for 128 values or 128 x 128 weights, the rest "
      "in bf16";
  static const char current[] = "write `\"mixed_fp8\"`: products of layers in fp8 by current scales, the rest in bf16";
  static const char delayed[] =
      "write `\"mixed_fp8_delayed\"`: products of layers in fp8 by scales of earlier steps, the "
      "rest in bf16";
  static const struct {
    const char *word, *help;
  } rows[] = {{"fp8", current},
              {"fp8_current", current},
              {"fp8_hybrid", current},
              {"hybrid", current},
              {"tensorwise", current},
              {"fp8_delayed", delayed},
              {"delayed", delayed},
              {"fp8_block", blocks},
              {"fp8_blockwise", blocks},
              {"blockwise", blocks},
              {"mxfp8", "write `\"mixed_mxfp8\"`: products of layers in MXFP8, the rest in bf16"},
              {"nvfp4", "write `\"mixed_nvfp4\"`: products of layers in NVFP4, the rest in bf16"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strcmp(text, rows[i].word) != 0) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0308, span, "`precision` cannot be \"%s\"", text);
    zp_diag_help(d, "%s", rows[i].help);
    return true;
  }
  return false;
}

void zp_read_precision(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  static const char *const short_names[] = {"fp16", "bf16", "half"}, *const long_names[] = {"float16", "bfloat16",
                                                                                            "amp"};
  zp_train *train = base;
  int word;
  const char *text;
  if (attr->op != ZP_ATTR_SET) {
    zp_report(reader->diags, ZP_Z0305, attr->span, "`precision` is set with `=`");
    return;
  }
  const char *bare = zp_dotted_name(reader->arena, attr->value); /* with its quotes it would be wrong as well */
  bool is_short = false;
  for (int i = 0; i < 3 && bare; i++) is_short |= strcmp(bare, short_names[i]) == 0 || strcmp(bare, long_names[i]) == 0;
  if (is_short)
    text = bare;
  else if (!zp_read_string(reader, env, attr->value, "precision", &text))
    return;
  if (refuse_recipe(reader, attr->value->span, text)) return;
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, short_names[i]) != 0 && strcmp(text, long_names[i]) != 0) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0308, attr->value->span, "`precision` cannot be \"%s\"", text);
    zp_diag_help(d, "write `\"mixed_%s\"`: 16-bit compute, weights and optimizer kept in fp32",
                 i == 1 ? "bf16" : "fp16");
    return;
  }
  if (zp_read_word(reader, env, attr->value, "precision", zp_precision_words, &word))
    train->precision = (zp_precision)word;
}

void zp_use_float8(zp_diags *diags, zp_spec *spec) {
  const zp_train *train = &spec->train;
  int multiple = zp_precision_multiple(train->precision);
  if (!multiple || zp_model_set_float8(spec->model, multiple) > 0) return;
  zp_diag *d = zp_report(diags, ZP_Z0508, train->precision_span, "no product of model `%s` would be in %s",
                         spec->model->name, zp_precision_recipe(train->precision));
  zp_diag_note(d,
               "products of parameters inside a `repeat` are, of rows and columns that are multiples of %d, but for "
               "gates and adapters",
               multiple);
  zp_diag_help(d, "use `precision = \"mixed_bf16\"`");
}
