/* Prints which blocks of keys the queries of block-sparse attention see, as constants of trainer.c or of kernels.cu. */
#include "sparse.h"

#include <assert.h>

int zp_layout_number(const zp_model *model, const zp_layout *layout) {
  if (!layout) return 0;
  zp_layouts list = zp_model_layouts(model);
  int at = zp_layouts_find(&list, layout);
  assert(at >= 0);
  return at + 1;
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

static void put_trainer_layout(zp_buf *out, const zp_layout *layout, int number) {
  static const char first[] = "static const int32_t", run[] = "static const zpk_run";
  zp_buf_line(out, "\n * Block i sees the keys of runs first[i] .. first[i + 1] - 1, {first block, end}; then the same "
                   "by key block. */");
  put_list(out, first, run, zp_format(out->arena, "layout%d_keys", number), &layout->keys, layout->n);
  put_list(out, first, run, zp_format(out->arena, "layout%d_queries", number), &layout->queries, layout->n);
  zp_buf_line(out, "static const zpk_layout layout%d = {", number);
  zp_buf_line(out, "    .block = %lld,", (long long)layout->block);
  zp_buf_line(out, "    .keys = {layout%d_keys_first, layout%d_keys},", number, number);
  zp_buf_line(out, "    .queries = {layout%d_queries_first, layout%d_queries},", number, number);
  zp_buf_line(out, "};");
}

void zp_print_layouts(zp_buf *out, const zp_model *model, bool gpu) {
  zp_layouts list = zp_model_layouts(model);
  for (int i = 0; i < list.len; i++) {
    put_title(out, list.data[i]);
    if (gpu) {
      zp_buf_line(out, "\n * kernels.cu has its tables. */");
      zp_buf_line(out, "static const zpk_layout layout%d = {.block = %lld, .id = %d};", i + 1,
                  (long long)list.data[i]->block, i + 1);
    } else
      put_trainer_layout(out, list.data[i], i + 1);
  }
  if (list.len) zp_buf_puts(out, "\n");
}

void zp_print_device_layouts(zp_buf *out, const zp_model *model) {
  zp_layouts list = zp_model_layouts(model);
  if (!list.len) return;
  zp_buf_line(out, "/* Block-sparse attention: which runs of blocks a block meets. */");
  for (int i = 0; i < list.len; i++) {
    put_title(out, list.data[i]);
    zp_buf_puts(out, " */\n");
    put_list(out, "ZPD_TABLE int", "ZPD_TABLE zpd_run", zp_format(out->arena, "layout%d_keys", i + 1),
             &list.data[i]->keys, list.data[i]->n);
    put_list(out, "ZPD_TABLE int", "ZPD_TABLE zpd_run", zp_format(out->arena, "layout%d_queries", i + 1),
             &list.data[i]->queries, list.data[i]->n);
  }
  zp_buf_line(out, "#define ZPD_LAYOUTS %d", list.len);
  zp_buf_line(out, "ZPD_DEVICE zpd_layout zpd_layout_of(int id) {");
  zp_buf_line(out, "  switch (id) {");
  for (int i = list.len; i > 0; i--)
    zp_buf_line(
        out, "  %s: return {%lld, {layout%d_keys_first, layout%d_keys}, {layout%d_queries_first, layout%d_queries}};",
        i > 1 ? zp_format(out->arena, "case %d", i) : "default", (long long)list.data[i - 1]->block, i, i, i, i);
  zp_buf_line(out, "  }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}
