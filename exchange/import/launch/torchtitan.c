/* SPDX-License-Identifier: Apache-2.0 */
/* A launch of torchtitan, by a TOML file or by `--section.key` alone, as a .dz file. */
#include "torchtitan.h"
#include "toml.h"

#include <assert.h>
#include <math.h>

static const config_row rows[] = {
#define READ(names) {KEY_READ, names, NULL},
#define NOTHING(names) {KEY_NOTHING, names, NULL},
#define NAMED(names, text) {KEY_NAMED, names, text},
#define REFUSED(names, text) {KEY_REFUSED, names, text},
#include "torchtitan_keys.def"
};

/* ---- sizes ---- */

static const struct {
  const char *name, *flavor;
  int64_t d, layers, heads, kv_heads, head, ff, vocabulary;
  double theta, eps;
  bool qk_norm, tied;
  int64_t experts, top_k, expert_ff;
} sizes[] = {
#define SIZE(name, flavor, d, layers, heads, kv_heads, head, ff, vocabulary, theta, eps, qk_norm, tied, experts,       \
             top_k, expert_ff)                                                                                         \
  {name,       flavor, d,   layers,  heads, kv_heads, head,  ff,                                                       \
   vocabulary, theta,  eps, qk_norm, tied,  experts,  top_k, expert_ff},
#include <zplan/torchtitan_sizes.def>
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* "8B_flex" is "8B": which kernel computes attention. */
static bool is_flavor(const char *row, const char *flavor) {
  size_t n = strlen(row);
  return strncmp(row, flavor, n) == 0 &&
         (!flavor[n] || strcmp(flavor + n, "_flex") == 0 || strcmp(flavor + n, "_varlen") == 0 ||
          strcmp(flavor + n, "_flex_attn") == 0 || strcmp(flavor + n, "_varlen_attn") == 0);
}

void torchtitan_model(config *d) {
  launch *l = d->l;
  const char *name = config_text(d, "model.name", "llama3"), *flavor = config_text(d, "model.flavor", "debugmodel");
  int64_t length =
      config_int(d, config_has(d, "training.max_context_length") ? "training.max_context_length" : "training.seq_len",
                 2048, 1, INT64_C(1) << 32);
  for (int i = 0; i < N_SIZES; i++) {
    if (strcmp(sizes[i].name, name) != 0 || !is_flavor(sizes[i].flavor, flavor)) continue;
    double std = 0.02;
    char *model_name = zp_format(l->arena, "%s_%s", name, sizes[i].flavor);
    for (char *c = model_name; *c; c++)
      if (*c == '.') *c = '_';
    l->model = (launch_model){.name = launch_name(l->arena, model_name),
                              .layers = sizes[i].layers,
                              .hidden = sizes[i].d,
                              .ff = sizes[i].ff,
                              .heads = sizes[i].heads,
                              .kv_heads = sizes[i].kv_heads,
                              .head = sizes[i].head,
                              .vocabulary = sizes[i].vocabulary,
                              .sequence = length,
                              .theta = sizes[i].theta,
                              .rms_norm = true,
                              .tied = sizes[i].tied,
                              .qk_norm = sizes[i].qk_norm,
                              .activation = LAUNCH_SWIGLU,
                              .eps = sizes[i].eps,
                              .std = std,
                              .table_std = std,
                              .residual_std = std / sqrt(2.0 * (double)sizes[i].layers),
                              .experts = sizes[i].experts,
                              .top_k = sizes[i].top_k,
                              .expert_ff = sizes[i].expert_ff,
                              .normalize = true};
    return;
  }
  zp_buf known = zp_buf_new(l->arena);
  for (int i = 0; i < N_SIZES; i++) zp_buf_printf(&known, "%s%s %s", i ? ", " : "", sizes[i].name, sizes[i].flavor);
  zp_diag *diag = launch_refuse(l, config_at(d, "model.flavor"),
                                "the sizes of model.name %s with model.flavor %s are not known", name, flavor);
  zp_diag_help(diag, "known are %s; --model names another one", known.data);
}

/* ---- words ---- */

static const struct {
  const char *module, *name, *flavor, *settings;
} configs[] = {
#define CONFIG(module, function, flavor, settings) {module, function, flavor, settings},
#include <zplan/torchtitan_sizes.def>
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

/* "a.b=1 c.d=2" */
static void set_all(config *d, const char *settings) {
  for (size_t n; (n = strcspn(settings, " ")) > 0; settings += n + (settings[n] == ' ')) {
    const char *one = zp_strndup(d->l->arena, settings, n), *equals = strchr(one, '=');
    config_set(d, zp_strndup(d->l->arena, one, (size_t)(equals - one)), equals + 1);
  }
}

/* What a function of Python would return, by the table of those that are known. */
static void start_from(config *d, const char *module, const char *name) {
  zp_buf known = zp_buf_new(d->l->arena);
  for (int i = 0; i < N_CONFIGS; i++) {
    zp_buf_printf(&known, "%s%s", i ? ", " : "", configs[i].name);
    if (!name || strcmp(configs[i].name, name) != 0 || (module && strcmp(configs[i].module, module) != 0)) continue;
    config_set(d, "model.name", configs[i].module);
    config_set(d, "model.flavor", configs[i].flavor);
    set_all(d, configs[i].settings);
    return;
  }
  zp_diag *diag = launch_refuse(d->l, ZP_NO_SPAN,
                                "--%s %s names a function of Python, which is not run: give what it sets as "
                                "--section.key",
                                name ? "config" : "module", name ? name : module);
  zp_diag_help(diag, "known with their settings are %s", known.data);
}

/* "activation_checkpoint:full": the class of a section. */
static bool is_class(const char *word) { return strncmp(word, "--", 2) != 0 && strchr(word, ':'); }

/* Keys of the first group of parameters, "optimizer.param_groups.0.optimizer_kwargs.lr", as "optimizer.lr". */
static const char *short_path(zp_arena *arena, const char *path) {
  static const char group[] = "optimizer.param_groups.0.", settings[] = "optimizer_kwargs.", prefix[] = "optimizer_";
  if (strncmp(path, group, sizeof group - 1) != 0) return path;
  const char *key = path + sizeof group - 1;
  if (strncmp(key, settings, sizeof settings - 1) == 0) key += sizeof settings - 1;
  if (strncmp(key, prefix, sizeof prefix - 1) == 0) key += sizeof prefix - 1; /* optimizer_name */
  return zp_format(arena, "optimizer.%s", key);
}

/* A word and what follows it: --section.key=VALUE, --section.key VALUE, --section.key for true and --section.no_key,
 * --section.no-key for false; section:class. Sets *key and *value; how many words they take, 0: it is none. */
static int read_word(zp_arena *arena, const zp_strings *words, int at, const char **key, const char **value) {
  const char *word = words->data[at], *equals = strchr(word, '='), *end = equals;
  bool class = is_class(word);
  if (!class && (strncmp(word, "--", 2) != 0 || !word[2])) return 0;
  if (class) end = strchr(word, ':');
  const char *begin = class ? word : word + 2;
  char *path = end ? zp_strndup(arena, begin, (size_t)(end - begin)) : zp_strdup(arena, begin);
  for (char *c = path; *c; c++)
    if (*c == '-') *c = '_';
  const char *next = at + 1 < words->len ? words->data[at + 1] : NULL;
  bool follows = !end && next && strncmp(next, "--", 2) != 0 && !is_class(next);
  char *no = strstr(path, ".no_");
  if (!end && !follows && no) memmove(no + 1, no + 4, strlen(no + 4) + 1);
  *key = class ? zp_format(arena, "%s.mode", path) : short_path(arena, path);
  *value = end ? end + 1 : follows ? next : no ? "false" : "true";
  return 1 + follows;
}

/* The second of two numbers: "optimizer.betas" takes them. */
static bool takes_pair(config *d, const zp_strings *words, int at, const char *key, const char *value) {
  if (strcmp(key, "optimizer.betas") != 0 || at >= words->len) return false;
  config_set(d, "optimizer.beta1", value);
  config_set(d, "optimizer.beta2", words->data[at]);
  return true;
}

/* --module and --config come before all others, wherever they stand. */
static void override(config *d, const zp_strings *words) {
  const char *key, *value, *module = NULL, *name = NULL;
  for (int i = 0, n; i < words->len; i += n ? n : 1) {
    n = read_word(d->l->arena, words, i, &key, &value);
    if (n && strcmp(key, "module") == 0) module = value;
    if (n && strcmp(key, "config") == 0) name = value;
  }
  if (module || name) start_from(d, module, name);
  for (int i = 0, n; i < words->len; i += n ? n : 1) {
    n = read_word(d->l->arena, words, i, &key, &value);
    if (n == 0) {
      launch_complain(d->l, ZP_NO_SPAN, "`%s` is no --section.key", words->data[i]);
      continue;
    }
    if (strcmp(key, "module") == 0 || strcmp(key, "config") == 0) continue;
    if (takes_pair(d, words, i + n, key, value))
      n++;
    else
      config_set(d, key, value);
    if (strcmp(key, "activation_checkpoint.mode") == 0 && is_class(words->data[i])) /* every second layer is older */
      config_set(d, "activation_checkpoint.selective_ac_option", "op");
  }
}

static void read_root(config *d) {
  launch *l = d->l;
  override(d, &l->words->args);
  config_look(d);
  if (!launch_is_sound(l)) return;
  if (!l->model_text) torchtitan_model(d);
  if (launch_is_sound(l)) torchtitan_plan(d);
  if (launch_is_sound(l)) torchtitan_train(d);
}

zp_imported *zp_import_torchtitan(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                                  const zp_launch_words *words) {
  assert(words && (path || !text));
  launch l = launch_begin(arena, diags, path, "torchtitan", "fsdp", words);
  config d = {.l = &l,
              .text = text ? text : "",
              .rows = rows,
              .n_rows = sizeof rows / sizeof *rows,
              .what = "torchtitan's configuration"};
  d.file = zp_diags_add_source(diags, l.path, d.text, text ? len : 0);
  if (path && len == 0) launch_complain(&l, ZP_NO_SPAN, "%s is empty", path);
  d.root = launch_is_sound(&l) ? toml_read(arena, diags, d.file) : NULL;
  if (d.root) read_root(&d);
  if (d.root) zp_json_free(d.root);
  return launch_end(&l);
}
