/* SPDX-License-Identifier: Apache-2.0 */
/* zplan models: published models by name, with what they are from. */
#define _GNU_SOURCE
#include "new_file.h"

#include <zplan/known_models.h>

#include <ctype.h>

/* Do all words occur in the text, whatever their capitals? */
bool zp_has_words(const zp_strings *words, const char *text) {
  for (int i = 0; i < words->len; i++)
    if (!strcasestr(text, words->data[i])) return false;
  return true;
}

static zp_json *as_json(const zp_known_model *known, const zp_imported *imported, const zp_model *model) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "name", known->name);
  zp_json_set_int(o, "parameters", zp_model_parameters(model));
  zp_json_set_int(o, "active_parameters", zp_model_active_parameters(model));
  zp_json_set_int(o, "sequence", model->sequence);
  zp_json_set_string(o, "family", zp_hf_type(imported));
  zp_json_set_string(o, "published", known->published);
  zp_json_set_string(o, "source", known->source);
  zp_json_set_string(o, "hub", known->hub);
  return o;
}

static const zp_column columns[] = {
    {"name", 14, 14, 0}, {"params", 7, 0, 0}, {"family", 6, 6, 0}, {"sample", 6, 0, 0}, {"source", 24, 24, 0}};

static void add_row(zp_arena *arena, zp_table *table, const zp_known_model *known, const zp_imported *imported,
                    const zp_model *model) {
  const char *cells[] = {known->name, zp_show_count(arena, (double)zp_model_parameters(model)), zp_hf_type(imported),
                         zp_format(arena, "%lld", (long long)model->sequence),
                         zp_format(arena, "%s%s%s", known->hub, *known->hub ? "; " : "", known->source)};
  zp_table_add(arena, table, cells);
}

int zp_cmd_models(zp_run_state *run) {
  const zp_options *o = &run->options;
  zp_json *all = o->json ? zp_json_array() : NULL;
  zp_table table = {.columns = columns, .n = sizeof columns / sizeof *columns};
  int found = 0;
  for (int i = 0; i < zp_known_model_count(); i++) {
    const zp_known_model *known = zp_known_model_at(i);
    const zp_imported *imported = zp_import_known_model(run->arena, run->diags, known);
    if (!imported) return zp_flush_diags(run), ZP_EXIT_BUG;
    if (!zp_has_words(&o->files, zp_format(run->arena, "%s %s %s %s", known->name, known->hub, zp_hf_type(imported),
                                           known->source)))
      continue;
    const zp_model *model = zp_model_of_text(run, imported->text);
    if (!model) return zp_flush_diags(run), ZP_EXIT_BUG;
    if (o->json)
      zp_json_append(all, as_json(known, imported, model));
    else
      add_row(run->arena, &table, known, imported, model);
    found++;
  }
  if (o->json) {
    zp_print_json(run->arena, all);
  } else if (found) {
    zp_page page = zp_page_for(run, stdout, 0);
    zp_page_table(&page, &table);
    zp_page_lines(&page, "\nzplan new plan NAME on dgx-h100 --gpus 64\n"
                         "zplan plan --model NAME --machine dgx-h100 --gpus 64\n");
    zp_page_put(&page, stdout);
  }
  if (found) return ZP_EXIT_OK;
  if (!o->json) zp_say_lines(stderr, "no published model has these words; `zplan models` lists all\n");
  return ZP_EXIT_ERROR;
}
