/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of published models: every configuration is read without a word, the text is a model of the language,
 * and it has as many parameters as its source says. */
#include "sema_fixture.h"
#include <ctype.h>
#include <math.h>
#include <zplan/known_models.h>

typedef struct published {
  double value, digit; /* what one more in its last digit is; 0: exact */
} published;

/* "8.2B": 8.2e9 and 0.1e9. Zeros at the end of whole numbers are no digits: "70B" is 70 and 10 billion. */
static published read_published(const char *text) {
  double value = 0, unit = 1;
  int decimals = -1, zeros = 0;
  for (const char *p = text; *p; p++) {
    if (*p == '.') decimals = 0;
    if (!isdigit((unsigned char)*p)) continue;
    value = 10 * value + (*p - '0');
    zeros = *p == '0' ? zeros + 1 : 0;
    if (decimals >= 0) decimals++;
  }
  char last = text[strlen(text) - 1];
  if (last == 'B') unit = 1e9;
  if (last == 'M') unit = 1e6;
  if (decimals > 0) unit /= pow(10, decimals), zeros = 0;
  return (published){value * unit, isdigit((unsigned char)last) ? 0 : unit * pow(10, zeros)};
}

/* Rounded (355M of gpt2-355m is 354.8), or cut off (405B of llama3-405b is 405.85). */
static bool agrees(double parameters, published p) {
  return parameters == p.value || (parameters >= p.value - p.digit / 2 && parameters < p.value + p.digit);
}

static int64_t parameters_of(const zp_known_model *known) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  const zp_imported *imported = zp_import_known_model(f.arena, f.diags, known);
  cr_assert(imported, "%s: %s", known->name, printed(&f));
  zp_source_text source = {.path = "known.dz", .text = imported->text, .len = strlen(imported->text)};
  zp_load_options options = {.library_dir = ZPLAN_SOURCE_DIR "/frontend/library", .model_only = true};
  f.spec = zp_load(f.arena, f.diags, source.path, &source, 1, &options);
  cr_assert(f.spec, "%s: %s", known->name, printed(&f));
  cr_expect_str_eq(f.spec->model->name, zp_hf_model_name(imported));
  int64_t parameters = zp_model_parameters(f.spec->model);
  unload(&f);
  return parameters;
}

Test(known_models, have_the_published_parameters) {
  for (int i = 0; i < zp_known_model_count(); i++) {
    const zp_known_model *known = zp_known_model_at(i);
    published said = read_published(known->published);
    int64_t parameters = parameters_of(known);
    cr_expect(agrees((double)parameters, said), "%s has %lld parameters, %s says %s", known->name,
              (long long)parameters, known->source, known->published);
    cr_expect(known->source[0] && said.digit < said.value / 2, "%s: %s says little", known->name, known->published);
    cr_expect_eq(zp_find_known_model(known->name), known, "%s: a name twice", known->name);
  }
}

Test(known_models, are_found_as_people_write_them) {
  cr_expect_str_eq(zp_find_known_model("Llama3_70B")->name, "llama3-70b");
  cr_expect_null(zp_find_known_model("llama3-70"));
  cr_expect_null(zp_find_known_model("llama3-70b-"));
  cr_expect_geq(zp_known_model_count(), 40);
}
