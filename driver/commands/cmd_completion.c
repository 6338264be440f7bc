/* SPDX-License-Identifier: Apache-2.0 */
/* Shell completion, made from the tables of verbs and options: nothing to keep in step by hand. */
#include <ctype.h>
#include <stdio.h>
#include <zplan/buf.h>
#include <zplan/reference.h>
#include <zplan/software.h>
#include "driver.h"

static bool is_word_list(const char *value) {
  if (!strchr(value, '|')) return false;
  for (const char *p = value; *p; p++)
    if (!islower((unsigned char)*p) && *p != '|') return false;
  return true;
}

/* "auto|always|never" as "auto always never"; NULL: no such list. */
static const char *words_of(zp_arena *arena, const char *value) {
  if (!value || !is_word_list(value)) return NULL;
  char *words = zp_strdup(arena, value);
  for (char *p = words; *p; p++)
    if (*p == '|') *p = ' ';
  return words;
}

/* What `zplan explain` knows: for its first word. */
static const char *explained(zp_arena *arena) {
  zp_strings words = zp_explain_words(arena);
  zp_buf list = zp_buf_new(arena);
  for (int i = 0; i < words.len; i++) {
    bool again = false;
    for (int k = 0; k < i && !again; k++) again = strcmp(words.data[i], words.data[k]) == 0;
    if (!again) zp_buf_printf(&list, "%s%s", i ? " " : "", words.data[i]);
  }
  return list.data;
}

/* Words that come first after a verb: "deepspeed|megatron FILE.dz ..." as "deepspeed megatron"; NULL: a
 * file or an option does. */
static const char *first_words(zp_arena *arena, const zp_verb *verb) {
  if (strcmp(verb->name, "explain") == 0) return explained(arena);
  char *words = zp_strndup(arena, verb->arguments, strcspn(verb->arguments, " "));
  for (char *p = words; *p; p++) {
    if (!islower((unsigned char)*p) && *p != '|') return NULL;
    if (*p == '|') *p = ' ';
  }
  return *words ? words : NULL;
}

/* Values of options that are words of the language: keys for --set and --why-not, programs for --for. NULL: none. */
static const char *language_words(zp_arena *arena, const char *option) {
  zp_strings words = {0};
  bool keys = strcmp(option, "--set") == 0, decisions = strcmp(option, "--why-not") == 0;
  if (strcmp(option, "--for") == 0) words = zp_software_words(arena);
  zp_reference_pages pages = zp_reference(arena);
  for (int p = 0; p < pages.len && (keys || decisions); p++) {
    const zp_reference_page *page = &pages.data[p];
    bool plan = strcmp(page->name, "plan") == 0, train = keys && strcmp(page->name, "train") == 0;
    for (int i = 0; i < page->rows.len && (plan || train); i++)
      zp_push(arena, &words, zp_format(arena, "%s=", page->rows.data[i].key));
  }
  zp_buf list = zp_buf_new(arena);
  for (int i = 0; i < words.len; i++) zp_buf_printf(&list, "%s%s", i ? " " : "", words.data[i]);
  return words.len ? list.data : NULL;
}

static bool is_file(const char *value) { return value && strcmp(value, "FILE") == 0; }

static void put_verb_names(zp_buf *out) {
  for (int i = 0; i < zp_verb_count(); i++) zp_buf_printf(out, "%s%s", i ? " " : "", zp_verb_at(i)->name);
}

static void put_options_of(zp_buf *out, const char *verb) {
  const char *separator = "";
  for (int i = 0; i < zp_option_count(); i++) {
    if (!zp_verb_takes(verb, i)) continue;
    zp_buf_printf(out, "%s%s", separator, zp_option_at(i).name);
    separator = " ";
  }
}

/* ---- bash, and zsh through its emulation ---- */

static void put_bash_values(zp_buf *out) {
  zp_buf_puts(out, "  case $prev in\n");
  for (int i = 0; i < zp_option_count(); i++) {
    zp_option option = zp_option_at(i);
    const char *words = words_of(out->arena, option.value), *language = language_words(out->arena, option.name);
    if (language)
      zp_buf_line(out, "    %s) compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;",
                  option.name, language);
    else if (words)
      zp_buf_line(out, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;", option.name, words);
    else if (is_file(option.value))
      zp_buf_line(out, "    %s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;", option.name);
    else if (option.value)
      zp_buf_line(out, "    %s) return ;;", option.name);
  }
  zp_buf_puts(out, "  esac\n");
}

static void put_bash_first(zp_buf *out) {
  zp_buf_puts(out, "  case ${cur%%[!-]*}$COMP_CWORD-$verb in\n"); /* not where an option begins */
  for (int i = 0; i < zp_verb_count(); i++) {
    const char *words = first_words(out->arena, zp_verb_at(i));
    if (words)
      zp_buf_line(out, "    2-%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\") $(compgen -f -- \"$cur\")); return ;;",
                  zp_verb_at(i)->name, words);
  }
  zp_buf_puts(out, "  esac\n");
}

static void put_bash(zp_buf *out) {
  zp_buf_puts(out,
              "_zplan() {\n"
              "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} options\n"
              "  COMPREPLY=()\n");
  put_bash_values(out);
  zp_buf_puts(out, "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '");
  put_verb_names(out);
  zp_buf_puts(out, " --help --version' -- \"$cur\") $(compgen -f -X '!*.dz' -- \"$cur\"))\n    return\n  fi\n"
                   "  case $verb in\n");
  for (int i = 0; i < zp_verb_count(); i++) {
    const char *verb = zp_verb_at(i)->name;
    zp_buf_printf(out, "    %s) options='", verb);
    put_options_of(out, verb);
    zp_buf_puts(out, "' ;;\n");
  }
  zp_buf_puts(out, "    *) options='");
  put_options_of(out, "plan");
  zp_buf_puts(out, "' ;;\n  esac\n");
  put_bash_first(out);
  zp_buf_puts(out, "  case $cur in\n"
                   "    -*) COMPREPLY=($(compgen -W \"$options --help\" -- \"$cur\")) ;;\n"
                   "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                   "  esac\n}\n"
                   "complete -F _zplan zplan\n");
}

static void put_zsh(zp_buf *out) {
  zp_buf_puts(out,
              "#compdef zplan\nautoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n");
  put_bash(out);
}

/* ---- fish ---- */

/* Inside single quotes. */
static const char *fish_quoted(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (const char *p = text; *p; p++) zp_buf_printf(&out, "%s%c", *p == '\'' || *p == '\\' ? "\\" : "", *p);
  return out.data ? out.data : "";
}

/* Verbs that take the option, as fish asks for them; plan is also what is meant when there is no verb. */
static const char *fish_condition(zp_arena *arena, int index) {
  zp_buf with = zp_buf_new(arena), others = zp_buf_new(arena);
  for (int i = 0; i < zp_verb_count(); i++) {
    const char *verb = zp_verb_at(i)->name;
    zp_buf_printf(zp_verb_takes(verb, index) ? &with : &others, " %s", verb);
  }
  if (!others.len) return "";
  if (zp_verb_takes("plan", index)) return zp_format(arena, " -n 'not __fish_seen_subcommand_from%s'", others.data);
  return zp_format(arena, " -n '__fish_seen_subcommand_from%s'", with.data);
}

static void put_fish(zp_buf *out) {
  zp_arena *arena = out->arena;
  for (int i = 0; i < zp_verb_count(); i++)
    zp_buf_line(out, "complete -c zplan -n __fish_use_subcommand -a %s -d '%s'", zp_verb_at(i)->name,
                fish_quoted(arena, zp_verb_at(i)->does));
  for (int i = 0; i < zp_verb_count(); i++) {
    const char *words = first_words(arena, zp_verb_at(i));
    if (words)
      zp_buf_line(out, "complete -c zplan -n '__fish_seen_subcommand_from %s' -a '%s'", zp_verb_at(i)->name, words);
  }
  for (int i = 0; i < zp_option_count(); i++) {
    zp_option option = zp_option_at(i);
    bool is_long = strncmp(option.name, "--", 2) == 0;
    const char *words = words_of(arena, option.value), *language = language_words(arena, option.name);
    if (language) words = language;
    zp_buf_printf(out, "complete -c zplan%s -%c %s", fish_condition(arena, i), is_long ? 'l' : 's',
                  option.name + (is_long ? 2 : 1));
    if (words)
      zp_buf_printf(out, " -x -a '%s'", words);
    else if (option.value)
      zp_buf_puts(out, is_file(option.value) ? " -r" : " -x");
    zp_buf_line(out, " -d '%s'", fish_quoted(arena, option.help));
  }
}

/* ---- all ---- */

static const struct {
  const char *name;
  void (*put)(zp_buf *out);
} shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};

/* With --json: the script, and the tables that it is made from. */
static void set_result(zp_run_state *run, const char *shell, const char *script) {
  zp_json *o = zp_result_object(run), *verbs = zp_json_set(o, "verbs", zp_json_array()),
          *options = zp_json_set(o, "options", zp_json_array());
  zp_json_set_string(o, "shell", shell);
  zp_json_set_string(o, "script", script);
  for (int v = 0; v < zp_verb_count(); v++) {
    const zp_verb *verb = zp_verb_at(v);
    zp_json *row = zp_json_append(verbs, zp_json_object());
    zp_json_set_string(row, "name", verb->name);
    zp_json_set_string(row, "arguments", verb->arguments);
    zp_json_set_string(row, "does", verb->does);
    zp_json *taken = zp_json_set(row, "options", zp_json_array());
    for (int i = 0; i < zp_option_count(); i++)
      if (zp_verb_takes(verb->name, i)) zp_json_append_string(taken, zp_option_at(i).name);
  }
  for (int i = 0; i < zp_option_count(); i++) {
    zp_json *row = zp_json_append(options, zp_json_object());
    zp_json_set_string(row, "name", zp_option_at(i).name);
    zp_json_set_string(row, "value", zp_option_at(i).value);
    zp_json_set_string(row, "help", zp_option_at(i).help);
  }
}

int zp_cmd_completion(zp_run_state *run) {
  const zp_strings *words = &run->options.files;
  zp_buf out = zp_buf_new(run->arena);
  for (size_t i = 0; words->len == 1 && i < sizeof shells / sizeof *shells; i++) {
    if (strcmp(shells[i].name, words->data[0]) != 0) continue;
    shells[i].put(&out);
    if (run->options.json)
      set_result(run, shells[i].name, out.data);
    else
      zp_say(stdout, "%s", out.data);
    return ZP_EXIT_OK;
  }
  return zp_usage_error("`zplan completion` wants the name of a shell: bash, zsh or fish");
}
