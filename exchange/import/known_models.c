/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of published models. */
#include <zplan/known_models.h>

#include <assert.h>
#include <ctype.h>
#include <string.h>

#define MODEL(name, hub, published, source, ...) {name, hub, published, source, "{" #__VA_ARGS__ "}"},
static const zp_known_model models[] = {
#include "known_models.def"
};
enum { N_MODELS = sizeof models / sizeof *models };

int zp_known_model_count(void) { return N_MODELS; }

const zp_known_model *zp_known_model_at(int index) {
  assert(index >= 0 && index < N_MODELS);
  return &models[index];
}

static char plain(char c) { return c == '_' || c == '.' ? '-' : (char)tolower((unsigned char)c); }

static bool is_same(const char *a, const char *b) {
  while (*a && plain(*a) == plain(*b)) a++, b++;
  return !*a && !*b;
}

const zp_known_model *zp_find_known_model(const char *name) {
  for (int i = 0; i < N_MODELS; i++)
    if (is_same(models[i].name, name)) return &models[i];
  return NULL;
}

zp_imported *zp_import_known_model(zp_arena *arena, zp_diags *diags, const zp_known_model *model) {
  const char *path = zp_format(arena, "config.json of %s", model->name);
  char *name = zp_strdup(arena, model->name);
  for (char *c = name; *c; c++)
    if (*c == '-' || *c == '.') *c = '_';
  return zp_import_hf_model(arena, diags, path, model->config, strlen(model->config), name);
}
