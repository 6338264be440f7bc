/* SPDX-License-Identifier: Apache-2.0 */
/* zplan explain: pages of error codes; what a key, an operation or a flag is; why a plan is best; what another choice
 * would cost. */
#include "driver.h"

#include <ctype.h>
#include <stdio.h>
#include <unistd.h>
#include <zplan/library_blocks.h>

static int explain_code(zp_run_state *run, const char *word) {
  zp_diag_code code = zp_code_by_name(zp_format(run->arena, "Z%s", word + 1));
  if (code == ZP_DIAG_CODE_COUNT) return zp_usage_error("there is no error code `%s`", word);
  zp_result_text(run, "code", zp_code_name(code));
  zp_result_text(run, "title", zp_code_title(code));
  zp_print_lines(run, stdout,
                 zp_format(run->arena, "%s: %s\n\n%s\n", zp_code_name(code), zp_code_title(code), zp_code_page(code)));
  return ZP_EXIT_OK;
}

/* Z0601 or z0601, not Zebra.dz. */
static bool is_code(const char *word) {
  if ((word[0] != 'Z' && word[0] != 'z') || !word[1]) return false;
  for (int i = 1; word[i]; i++)
    if (!isdigit((unsigned char)word[i])) return false;
  return true;
}

/* A file that is there, or a name as files have. */
static bool is_file(const char *word) {
  size_t n = strlen(word);
  bool named = (n > 3 && strcmp(word + n - 3, ".dz") == 0) || (n > 5 && strcmp(word + n - 5, ".json") == 0);
  return named || strchr(word, '/') || access(word, F_OK) == 0;
}

static int explain_word(zp_run_state *run, const char *word) {
  zp_arena *arena = run->arena;
  const char *text = zp_explain_word(arena, word);
  zp_library_block block;
  if (zp_library_block_find(arena, run->options.load.library_dir, word, &block)) {
    const char *library = zp_library_block_text(arena, &block);
    text = text ? zp_format(arena, "%s\n%s", text, library) : library;
  }
  if (text) {
    zp_print_lines(run, stdout, text);
    return ZP_EXIT_OK;
  }
  zp_strings words = zp_explain_words(arena);
  zp_library_blocks blocks = zp_library_blocks_all(arena, run->options.load.library_dir);
  for (int i = 0; i < blocks.len; i++) zp_push(arena, &words, blocks.data[i].name);
  const char *near = zp_closest(word, words.data, words.len);
  if (near) return zp_usage_error("nothing is called `%s`; did you mean `%s`?", word, near);
  return zp_usage_error(
      "`%s` is no file, key, operation, block, flag or error code; `zplan explain --reference blocks` lists "
      "keys",
      word);
}

/* Searches once more with the asked-for constraints on top of those of the file. */
static int why_not(zp_run_state *run, const zp_plan *best) {
  const char *wish = run->options.why_not;
  if (!zp_add_wishes(run, wish)) return zp_usage_error("--why-not wants constraints such as 'tensor=8, zero=1'");
  zp_json *json;
  zp_spec *spec = zp_load_input(run, &json);
  if (!spec) return ZP_EXIT_ERROR;
  if (json) zp_json_free(json);
  zp_plan *asked = zp_search_patiently(run, spec, best->devices, NULL);
  if (!zp_refuse_stopped(run, asked)) return ZP_EXIT_ERROR;
  if (!zp_prove_plan(run, asked)) return ZP_EXIT_BUG;
  zp_why_not answer = zp_compare(run->arena, best, asked);
  zp_page page = zp_page_for(run, stdout, 0);
  if (run->options.json)
    zp_print_json(run->arena, zp_why_not_json(&answer));
  else
    zp_show_why_not(&page, wish, &answer);
  zp_page_put(&page, stdout);
  return asked->feasible ? ZP_EXIT_OK : ZP_EXIT_INFEASIBLE;
}

int zp_cmd_explain(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (o->files.len == 1 && is_code(o->files.data[0])) return explain_code(run, o->files.data[0]);
  if (o->reference) {
    if (o->files.len) return zp_usage_error("`zplan explain --reference` takes no file");
    return zp_print_reference(run, o->reference);
  }
  if (o->files.len == 1 && !o->why_not && !is_file(o->files.data[0])) return explain_word(run, o->files.data[0]);
  zp_plan *plan = zp_obtain_plan(run, 0);
  if (!plan) return o->files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    return ZP_EXIT_INFEASIBLE;
  }
  if (o->why_not) return why_not(run, plan);
  run->options.verbose = true; /* what explains it is the rest of the screen */
  zp_show_plan(run, plan, false, NULL);
  return ZP_EXIT_OK;
}
