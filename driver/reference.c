/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of everything that a user writes: the language (<zplan/reference.h>), verbs and flags, messages; a
 * word's text, and all as the pages of docs/reference, as zplan.1 and as JSON. All are made of the tables that are read
 * and checked by, so nothing here is kept in step by hand. */
#include "driver.h"
#include <zplan/reference.h>
#include <zplan/validate.h>

#include <stdio.h>

/* ---- verbs and flags ---- */

static const char *verbs_of(zp_arena *arena, int option) {
  zp_buf list = zp_buf_new(arena);
  const char *not = NULL;
  int n = 0;
  for (int v = 0; v < zp_verb_count(); v++)
    if (zp_verb_takes(zp_verb_at(v)->name, option))
      zp_buf_printf(&list, "%s%s", n++ ? ", " : "", zp_verb_at(v)->name);
    else
      not = zp_verb_at(v)->name;
  if (n + 1 == zp_verb_count()) return zp_format(arena, "every verb but %s", not );
  return n == zp_verb_count() ? "every verb" : list.data;
}

static void put_flag(zp_buf *out, int index) {
  zp_option o = zp_option_at(index);
  zp_flag_text text = zp_option_text(out->arena, index);
  zp_buf_printf(out, "%s%s%s: flag\n  ", o.name, o.value ? " " : "", o.value ? o.value : "");
  zp_put_wrapped(out, 2, zp_format(out->arena, "of %s", verbs_of(out->arena, index)));
  zp_buf_puts(out, "  ");
  zp_put_wrapped(out, 2, o.help);
  zp_buf_printf(out, "  %s%s%s\n  zplan %s ... %s\n", text.type, *text.range ? ": " : "", text.range, text.verb,
                text.example);
}

static void put_verb(zp_buf *out, const zp_verb *verb) {
  zp_buf_printf(out, "%s: verb\n  ", verb->name);
  zp_put_wrapped(out, 2, zp_format(out->arena, "zplan %s %s", verb->name, verb->arguments));
  zp_buf_puts(out, "  ");
  zp_put_wrapped(out, 2, zp_format(out->arena, "%s; its flags: zplan %s --help", verb->does, verb->name));
}

static bool is_flag(int index, const char *word) {
  const char *name = zp_option_at(index).name;
  return strcmp(word, name) == 0 || strcmp(word, name + strspn(name, "-")) == 0;
}

const char *zp_explain_word(zp_arena *arena, const char *word) {
  const char *language = zp_reference_find(arena, word);
  zp_buf out = zp_buf_new(arena);
  if (language) zp_buf_puts(&out, language);
  const zp_verb *verb = zp_find_verb(word);
  if (verb) {
    if (out.len) zp_buf_puts(&out, "\n");
    put_verb(&out, verb);
  }
  for (int i = 0; i < zp_option_count(); i++) {
    if (!is_flag(i, word)) continue;
    if (out.len) zp_buf_puts(&out, "\n");
    put_flag(&out, i);
  }
  return out.len ? out.data : NULL;
}

zp_strings zp_explain_words(zp_arena *arena) {
  zp_strings words = zp_reference_words(arena);
  for (int v = 0; v < zp_verb_count(); v++) zp_push(arena, &words, zp_verb_at(v)->name);
  for (int i = 0; i < zp_option_count(); i++) {
    const char *name = zp_option_at(i).name;
    zp_push(arena, &words, name + strspn(name, "-"));
  }
  return words;
}

/* ---- pages ---- */

static const char *cell(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (const char *p = text; *p; p++) zp_buf_printf(&out, "%s%c", *p == '|' ? "\\" : "", *p);
  return out.data ? out.data : "";
}

static void put_title(zp_buf *out, const char *title, const char *page) {
  zp_buf_printf(out, "# %s\n\nPrinted by `zplan explain --reference %s`; `zplan explain WORD` shows one entry.\n",
                title, page);
}

static void put_blocks(zp_buf *out) {
  zp_reference_pages pages = zp_reference(out->arena);
  put_title(out, "Blocks of a .dz file", "blocks");
  zp_reference_markdown(out, &pages, ZP_REFERENCE_BLOCK);
  zp_buf_puts(out, "\n# Values that are written like calls\n");
  zp_reference_markdown(out, &pages, ZP_REFERENCE_CALL);
}

static void put_operations(zp_buf *out) {
  zp_reference_pages pages = zp_reference(out->arena);
  put_title(out, "Operations of a model", "operations");
  zp_buf_puts(out, "\nB is the micro-batch, S the length of a sample, d the width, V the size of the vocabulary.\n");
  zp_reference_markdown(out, &pages, ZP_REFERENCE_OPERATION);
}

static void put_flags(zp_buf *out) {
  put_title(out, "Verbs and flags", "flags");
  for (int v = 0; v < zp_verb_count(); v++) {
    const zp_verb *verb = zp_verb_at(v);
    zp_buf_printf(out, "\n## zplan %s\n\n    zplan %s%s%s\n\n%s.\n", verb->name, verb->name,
                  *verb->arguments ? " " : "", verb->arguments, zp_as_sentence(out->arena, verb->does));
    bool begun = false;
    for (int i = 0; i < zp_option_count(); i++) {
      if (!zp_verb_takes(verb->name, i)) continue;
      if (!begun) zp_buf_puts(out, "\n| flag | value | type | meaning | example |\n|---|---|---|---|---|\n");
      begun = true;
      zp_option o = zp_option_at(i);
      zp_flag_text text = zp_option_text(out->arena, i);
      zp_buf_printf(out, "| `%s` | %s | %s%s%s | %s | `%s` |\n", o.name, o.value ? cell(out->arena, o.value) : "",
                    text.type, *text.range ? ": " : "", text.range, cell(out->arena, o.help),
                    cell(out->arena, text.example));
    }
  }
}

static void put_messages(zp_buf *out) {
  put_title(out, "Messages", "messages");
  for (int c = 0; c < ZP_DIAG_CODE_COUNT; c++)
    zp_buf_printf(out, "\n## %s\n\n%s.\n\n%s\n", zp_code_name((zp_diag_code)c), zp_code_title((zp_diag_code)c),
                  zp_code_page((zp_diag_code)c));
}

static void put_runs(zp_buf *out) {
  put_title(out, "Columns of a table of measured runs", "runs");
  zp_buf_puts(
      out,
      "\nFor `zplan validate RUNS.csv`: comma-separated values (RFC 4180), a line of titles, one run a row. An empty "
      "cell means not published. Columns of other titles are named and not used; a row that is not sound is "
      "named by its line and left out. A row that is sound and cannot be predicted is counted with its "
      "reason.\n\n| column | type | range | holds |\n|---|---|---|---|\n");
  for (int i = 0; i < zp_run_column_count(); i++) {
    zp_run_column c = zp_run_column_at(out->arena, i);
    zp_buf_printf(out, "| `%s` | %s%s | %s | %s |\n", c.title, c.type, c.required ? ", required" : "", c.range,
                  cell(out->arena, c.holds));
  }
  zp_buf_puts(out,
              "\nTables of vTrain, Megatron-Bridge, AutoModel and SimuMax are read as they are published: their titles "
              "say which they are. What they do not print (machine, shape of a model by its name) is taken from "
              "`planner/validate/sources.c` and `shapes.def`.\n");
}

/* ---- zplan.1 ---- */

/* Text of roff: its own characters are escaped, and no line begins as a request. */
static void put_roff(zp_buf *out, const char *text) {
  for (const char *p = text; *p; p++) {
    bool begins = p == text || p[-1] == '\n';
    if (begins && (*p == '.' || *p == '\'')) zp_buf_puts(out, "\\&");
    zp_buf_printf(out, "%s%c", *p == '-' ? "\\" : "", *p);
    if (*p == '\\') zp_buf_puts(out, "e");
  }
}

static void put_term(zp_buf *out, const char *term, const char *value, const char *text) {
  zp_buf_puts(out, ".TP\n.B ");
  put_roff(out, term);
  if (value) {
    zp_buf_puts(out, " ");
    put_roff(out, value);
  }
  zp_buf_puts(out, "\n");
  put_roff(out, text);
  zp_buf_puts(out, "\n");
}

static void put_man(zp_buf *out) {
  zp_buf_printf(out,
                ".TH ZPLAN 1 \"\" \"zplan %s\"\n.SH NAME\nzplan \\- plans, generates and runs the parallel training "
                "of large models\n.SH SYNOPSIS\n.B zplan\n.I VERB\n[\n.I FILE\n\\&...] [\n.I FLAGS\n]\n.SH VERBS\n",
                zp_version());
  for (int v = 0; v < zp_verb_count(); v++)
    put_term(out, zp_verb_at(v)->name, zp_verb_at(v)->arguments, zp_verb_at(v)->does);
  zp_buf_puts(out, ".SH FLAGS\n");
  for (int i = 0; i < zp_option_count(); i++) {
    zp_option o = zp_option_at(i);
    put_term(out, o.name, o.value, zp_format(out->arena, "%s. Of %s.", o.help, verbs_of(out->arena, i)));
  }
  zp_buf_puts(out, ".SH LANGUAGE\n");
  zp_reference_pages pages = zp_reference(out->arena);
  for (int p = 0; p < pages.len; p++) {
    const zp_reference_page *page = &pages.data[p];
    zp_buf_puts(out, ".SS ");
    put_roff(out, page->name);
    zp_buf_puts(out, "\n");
    put_roff(out, zp_format(out->arena, "%s%s%s%s.", *page->within ? "In " : "", page->within,
                            *page->within ? ": " : "", page->meaning));
    zp_buf_puts(out, "\n");
    for (int i = 0; i < page->rows.len; i++) {
      const zp_reference_row *row = &page->rows.data[i];
      put_term(out, row->key, NULL,
               zp_format(out->arena, "%s. %s%s%s; default: %s.", row->meaning, row->type, *row->range ? ": " : "",
                         row->range, row->unless));
    }
  }
  zp_buf_puts(out, ".SH EXIT STATUS\n");
  put_roff(out, zp_exit_statuses);
  zp_buf_puts(out, "\n.SH SEE ALSO\n");
  put_roff(out, "`zplan explain WORD` shows a key, a flag, an operation or the page of a message.");
  zp_buf_puts(out, "\n");
}

/* ---- JSON ---- */

static zp_json *row_json(const zp_reference_row *row) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "key", row->key);
  zp_json_set_string(o, "type", row->type);
  zp_json_set_string(o, "default", row->unless);
  zp_json_set_string(o, "range", row->range);
  zp_json_set_string(o, "meaning", row->meaning);
  zp_json_set_string(o, "example", row->example);
  zp_json_set_string(o, "written", row->written);
  zp_json_set_string(o, "outside", row->outside);
  return o;
}

static void put_json(zp_buf *out) {
  static const char *const kinds[] = {"block", "call", "operation"};
  zp_reference_pages pages = zp_reference(out->arena);
  zp_json *root = zp_json_array();
  for (int p = 0; p < pages.len; p++) {
    const zp_reference_page *page = &pages.data[p];
    zp_json *o = zp_json_append(root, zp_json_object());
    zp_json_set_string(o, "name", page->name);
    zp_json_set_string(o, "within", page->within);
    zp_json_set_string(o, "kind", kinds[page->kind]);
    zp_json_set_string(o, "meaning", page->meaning);
    zp_json_set_string(o, "example", page->example);
    zp_json *rows = zp_json_set(o, "rows", zp_json_array());
    for (int i = 0; i < page->rows.len; i++) zp_json_append(rows, row_json(&page->rows.data[i]));
  }
  zp_buf_puts(out, zp_json_text(out->arena, root, true));
  zp_json_free(root);
}

static const struct {
  const char *name;
  void (*put)(zp_buf *out);
} pages[] = {{"blocks", put_blocks}, {"operations", put_operations},
             {"flags", put_flags},   {"messages", put_messages},
             {"runs", put_runs},     {"man", put_man},
             {"json", put_json}};

int zp_print_reference(zp_run_state *run, const char *page) {
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
    if (strcmp(pages[i].name, page) != 0) continue;
    zp_buf out = zp_buf_new(run->arena);
    pages[i].put(&out);
    zp_say(stdout, "%s", out.data);
    return ZP_EXIT_OK;
  }
  return zp_usage_error("--reference is blocks, operations, flags, messages, runs, man or json, not `%s`", page);
}
