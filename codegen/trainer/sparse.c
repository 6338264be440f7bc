/* SPDX-License-Identifier: Apache-2.0 */
/* Prints which blocks of keys the queries of block-sparse attention see, as constants of trainer.c or of kernels.cu. */
#include "sparse.h"

#include <assert.h>

/* Number of the first table of the layout at this place of the list. */
static int first_number(const zp_layouts *list, int at) {
  int number = 1;
  for (int i = 0; i < at; i++) number += list->data[i]->sets;
  return number;
}

int zp_layout_number(const zp_model *model, const zp_layout *layout) {
  if (!layout) return 0;
  zp_layouts list = zp_model_layouts(model);
  int at = zp_layouts_find(&list, layout);
  assert(at >= 0);
  return first_number(&list, at);
}

int zp_pattern_number(const zp_model *model, const zp_layout *layout) {
  zp_layouts list = zp_model_layouts(model);
  return 1 + zp_layouts_find(&list, layout);
}

/* Stretches of positions that have layouts of their own; 1: none. */
static int stretches_of(const zp_choice *choice) {
  int ranks = zp_context_ranks(choice);
  return ranks > 1 && choice->context_by ? 2 * ranks : 1;
}

static zp_layouts kernel_layouts(const zp_model *model, const zp_choice *choice) {
  zp_layouts whole = zp_model_layouts(model), parts = {0};
  int n = stretches_of(choice);
  if (n == 1) return whole;
  for (int i = 0; i < whole.len; i++)
    for (int pair = 0; pair < n * n; pair++) {
      const zp_layout *part = zp_layout_part(model->arena, whole.data[i], n, pair / n, pair % n);
      if (part && zp_layouts_find(&parts, part) < 0) zp_push(model->arena, &parts, part);
    }
  return parts;
}

enum { WIDTH = 118 };

/* One item of a list in braces; lines are broken before they are too long. */
static void put_item(zp_buf *out, const char *item, int *column) {
  int length = (int)strlen(item) + 2;
  if (*column == 0 || *column + length > WIDTH) {
    zp_buf_puts(out, *column == 0 ? "   " : "\n   ");
    *column = 3;
  }
  zp_buf_printf(out, " %s,", item);
  *column += length;
}

static void put_list(zp_buf *out, const char *first_type, const char *run_type, const char *name,
                     const zp_block_list *list, int n) {
  int column = 0;
  zp_buf_line(out, "%s %s_first[] = {", first_type, name);
  for (int i = 0; i <= n; i++) put_item(out, zp_format(out->arena, "%d", list->first[i]), &column);
  column = 0;
  zp_buf_line(out, "\n};\n%s %s[] = {", run_type, name);
  for (int r = 0; r < list->first[n]; r++)
    put_item(out, zp_format(out->arena, "{%d, %d}", list->run[r].first, list->run[r].end), &column);
  zp_buf_line(out, "\n};");
}

static void put_title(zp_buf *out, const zp_layout *layout) {
  zp_buf_printf(out, "/* %s.", zp_layout_text(out->arena, layout));
}

/* Two lists for each set, "layout1_keys" and "layout1_queries" with the number of the first. */
static void put_sets(zp_buf *out, const char *first_type, const char *run_type, const zp_layout *layout, int number) {
  for (int i = 0; i < layout->sets; i++) {
    const zp_pair_set *set = &layout->set[i];
    put_list(out, first_type, run_type, zp_format(out->arena, "layout%d_keys", number + i), &set->keys, layout->n);
    put_list(out, first_type, run_type, zp_format(out->arena, "layout%d_queries", number + i), &set->queries,
             layout->n);
  }
}

static void put_trainer_layout(zp_buf *out, const zp_layout *layout, int number) {
  zp_buf_line(out, "\n * Block i sees the keys of runs first[i] .. first[i + 1] - 1, {first block, end}; then the same "
                   "by key block. */");
  put_sets(out, "static const int32_t", "static const zpk_run", layout, number);
  zp_buf_line(out, "static const zpk_layout layout%d[] = {", number);
  for (int i = number; i < number + layout->sets; i++) {
    zp_buf_line(out, "    {.block = %lld,", (long long)layout->block);
    if (layout->sets > 1) zp_buf_line(out, "     .others = %d,", layout->sets - 1);
    zp_buf_line(out, "     .keys = {layout%d_keys_first, layout%d_keys},", i, i);
    zp_buf_line(out, "     .queries = {layout%d_queries_first, layout%d_queries}},", i, i);
  }
  zp_buf_line(out, "};");
}

/* By stretch of queries, then of keys: the layout of what is seen; NULL: nothing is. */
static void put_patterns(zp_buf *out, const zp_model *model, int n, const zp_layouts *parts) {
  zp_layouts whole = zp_model_layouts(model);
  for (int i = 0; i < whole.len; i++) {
    int column = 0;
    put_title(out, whole.data[i]);
    zp_buf_line(out, "\n * What a stretch of queries sees of each stretch of keys. */");
    zp_buf_line(out, "static const zpk_layout *const pattern%d[] = {", i + 1);
    for (int pair = 0; pair < n * n; pair++) {
      const zp_layout *part = zp_layout_part(model->arena, whole.data[i], n, pair / n, pair % n);
      int number = part ? first_number(parts, zp_layouts_find(parts, part)) : 0;
      put_item(out, part ? zp_format(out->arena, "layout%d", number) : "NULL", &column);
    }
    zp_buf_line(out, "\n};");
  }
}

void zp_print_layouts(zp_buf *out, const zp_model *model, const zp_choice *choice, bool gpu) {
  zp_layouts list = kernel_layouts(model, choice);
  for (int i = 0; i < list.len; i++) {
    const zp_layout *layout = list.data[i];
    int number = first_number(&list, i);
    put_title(out, layout);
    if (!gpu) {
      put_trainer_layout(out, layout, number);
      continue;
    }
    zp_buf_line(out, "\n * kernels.cu has its tables. */");
    zp_buf_line(out, "static const zpk_layout layout%d[] = {{.block = %lld, %s.id = %d}};", number,
                (long long)layout->block,
                layout->sets > 1 ? zp_format(out->arena, ".others = %d, ", layout->sets - 1) : "", number);
  }
  if (stretches_of(choice) > 1) put_patterns(out, model, stretches_of(choice), &list);
  if (list.len) zp_buf_puts(out, "\n");
}

void zp_print_device_layouts(zp_buf *out, const zp_model *model, const zp_choice *choice) {
  zp_layouts list = kernel_layouts(model, choice);
  int tables = 0, most = 1;
  if (!list.len) return;
  zp_buf_line(out, "/* Block-sparse attention: which runs of blocks a block meets. */");
  for (int i = 0; i < list.len; i++) {
    put_title(out, list.data[i]);
    zp_buf_puts(out, " */\n");
    put_sets(out, "ZPD_TABLE int", "ZPD_TABLE zpd_run", list.data[i], tables + 1);
    tables += list.data[i]->sets;
    if (list.data[i]->sets > most) most = list.data[i]->sets;
  }
  zp_buf_line(out, "#define ZPD_LAYOUTS %d", tables);
  if (most > 1) zp_buf_line(out, "#define ZPD_HEAD_LAYOUTS /* heads have different ones */");
  zp_buf_line(out, "ZPD_DEVICE zpd_layout zpd_layout_of(int id) {");
  zp_buf_line(out, "  switch (id) {");
  for (int at = list.len - 1, number = tables; number > 0; number--) {
    if (number < first_number(&list, at)) at--;
    zp_buf_line(
        out, "  %s: return {%lld, {layout%d_keys_first, layout%d_keys}, {layout%d_queries_first, layout%d_queries}};",
        number > 1 ? zp_format(out->arena, "case %d", number) : "default", (long long)list.data[at]->block, number,
        number, number, number);
  }
  zp_buf_line(out, "  }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}
