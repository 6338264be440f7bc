/* SPDX-License-Identifier: Apache-2.0 */
/* A launch of Megatron-LM, as a script or as arguments, as a .dz file. */
#include "megatron.h"

#include <assert.h>
#include <stdlib.h>

/* The number after --nproc_per_node or --nnodes, however it is spelled; 0: not said, -1: only a run would say it. */
static int64_t launcher_number(const shell_words *words, const char *a, const char *b) {
  for (int i = 0; i < words->len; i++) {
    const char *text = words->data[i].text;
    size_t n = strncmp(text, a, strlen(a)) == 0 ? strlen(a) : strncmp(text, b, strlen(b)) == 0 ? strlen(b) : 0;
    const char *value = n == 0                           ? NULL
                        : text[n] == '='                 ? text + n + 1
                        : text[n] || i + 1 == words->len ? NULL
                                                         : words->data[i + 1].text;
    char *end = NULL;
    long long number = value ? strtoll(value, &end, 10) : 0;
    if (value && end != value && !*end && number >= 1 && number <= 1 << 20) return number;
    if (value) return -1;
  }
  return 0;
}

static void read_world(launch *l, const shell_words *launcher) {
  int64_t gpus = launcher_number(launcher, "--nproc_per_node", "--nproc-per-node");
  int64_t nodes = launcher_number(launcher, "--nnodes", "--num_nodes");
  if (l->gpus || gpus <= 0 || nodes < 0) return;
  l->gpus = gpus * (nodes ? nodes : 1);
  l->gpus_from = zp_format(l->arena, "%lld node%s of %lld GPUs in the script", (long long)(nodes ? nodes : 1),
                           nodes > 1 ? "s" : "", (long long)gpus);
}

/* Words of the command line as a source of their own. */
static shell_words words_of(launch *l, const zp_strings *args) {
  zp_buf text = zp_buf_new(l->arena);
  for (int i = 0; i < args->len; i++) zp_buf_printf(&text, "%s%s", i ? " " : "", args->data[i]);
  int file = zp_diags_add_source(l->diags, "arguments", text.data, text.len);
  shell_words words = {0};
  uint32_t at = 0;
  for (int i = 0; i < args->len; i++) {
    uint32_t n = (uint32_t)strlen(args->data[i]);
    shell_word word = {.text = args->data[i], .at = {file, at, at + n}};
    zp_push(l->arena, &words, word);
    at += n + 1;
  }
  return words;
}

/* Programs of Megatron-LM that train something else than a GPT. */
static void check_program(launch *l, const char *program) {
  static const char *const others[] = {"bert", "t5", "mamba", "hybrid", "vision", "vlm", "retro", "ict", "mimo", "rl"};
  const char *slash = strrchr(program, '/'), *base = slash ? slash + 1 : program;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const char *at = strstr(base, others[i]);
    if (at && (at == base || at[-1] == '_') && strchr("_.", at[strlen(others[i])])) {
      launch_refuse(l, ZP_NO_SPAN, "the script starts %s: launches of pretrain_gpt.py are imported", base);
      return;
    }
  }
}

zp_imported *zp_import_megatron(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                                const zp_launch_words *words) {
  assert(words && (path || !text));
  launch l = launch_begin(arena, diags, path, "Megatron-LM (" ZP_MEGATRON_VERSION ")", "megatron", words);
  megatron m = {.l = &l};
  for (int i = 0; i < MEGATRON_FLAG_COUNT; i++) m.given[i] = (megatron_given){.at = ZP_NO_SPAN, .text = ""};
  if (text) {
    shell_launch found;
    if (!shell_read(arena, diags, zp_diags_add_source(diags, path, text, len), &found)) return NULL;
    if (found.commands > 1) launch_note(&l, "the script starts %d programs: the last one is imported", found.commands);
    if (found.args.len == 0 && words->args.len == 0) {
      launch_complain(&l, ZP_NO_SPAN,
                      "%s has no arguments: neither a command that starts a program of Python with flags, "
                      "nor an array of flags",
                      path);
      return NULL;
    }
    if (found.program) check_program(&l, found.program);
    megatron_take(&m, &found.args, false);
    read_world(&l, &found.launcher);
  }
  shell_words own = words_of(&l, &words->args);
  megatron_take(&m, &own, text != NULL);
  l.model.name = path ? launch_name(arena, path) : "megatron";
  if (launch_is_sound(&l)) {
    megatron_model(&m);
    megatron_plan(&m);
    megatron_train(&m);
  }
  return launch_end(&l);
}
