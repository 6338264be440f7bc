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
#include "torchtitan_sizes.def"
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

/* --section.key=VALUE, --section.key VALUE, --section.key for true and --section.no_key, --section.no-key for false. */
static void override(config *d, const zp_strings *words) {
  zp_arena *arena = d->l->arena;
  for (int i = 0; i < words->len; i++) {
    const char *word = words->data[i], *equals = strchr(word, '=');
    if (strncmp(word, "--", 2) != 0 || !word[2]) {
      launch_complain(d->l, ZP_NO_SPAN, "`%s` is no --section.key", word);
      continue;
    }
    char *path = equals ? zp_strndup(arena, word + 2, (size_t)(equals - word) - 2) : zp_strdup(arena, word + 2);
    for (char *c = path; *c; c++)
      if (*c == '-') *c = '_';
    bool follows = !equals && i + 1 < words->len && strncmp(words->data[i + 1], "--", 2) != 0;
    char *no = strstr(path, ".no_");
    if (!equals && !follows && no) memmove(no + 1, no + 4, strlen(no + 4) + 1);
    if (strcmp(path, "module") == 0 || strcmp(path, "config") == 0)
      launch_refuse(d->l, ZP_NO_SPAN,
                    "--%s names a function of Python, which is not run: give what it sets as --section.key", path);
    else
      config_set(d, path, equals ? equals + 1 : follows ? words->data[++i] : no ? "false" : "true");
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
