/* SPDX-License-Identifier: Apache-2.0 */
/* A launch of DeepSpeed, by its configuration file, as a .dz file. The model is not in that file: the command line
 * names it. */
#include "deepspeed_import.h"

#include <assert.h>

static const config_row rows[] = {
#define READ(names) {KEY_READ, names, NULL},
#define NOTHING(names) {KEY_NOTHING, names, NULL},
#define NAMED(names, text) {KEY_NAMED, names, text},
#define REFUSED(names, text) {KEY_REFUSED, names, text},
#include "deepspeed_keys.def"
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* KEY=VALUE after `--` takes the place of a key. */
static void override(config *d, const char *word) {
  const char *equals = strchr(word, '=');
  if (equals && equals != word)
    config_set(d, zp_strndup(d->l->arena, word, (size_t)(equals - word)), equals + 1);
  else
    launch_complain(d->l, ZP_NO_SPAN, "`%s` after `--` is no KEY=VALUE, such as train_micro_batch_size_per_gpu=4",
                    word);
}

static void read_root(config *d, const zp_strings *words) {
  for (int i = 0; i < words->len; i++) override(d, words->data[i]);
  config_look(d);
  if (launch_is_sound(d->l)) deepspeed_plan(d);
  if (launch_is_sound(d->l)) deepspeed_train(d);
}

zp_imported *zp_import_deepspeed(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                                 const zp_launch_words *words) {
  assert(path && text && words && words->model && words->model_name);
  launch l = launch_begin(arena, diags, path, "DeepSpeed", "deepspeed", words);
  config d = {
      .l = &l, .text = text, .rows = rows, .n_rows = N_ROWS, .quoted = true, .what = "DeepSpeed's configuration"};
  const char *error = NULL;
  d.root = zp_json_parse(arena, text, len, &error);
  d.file = zp_diags_add_source(diags, path, text, len);
  if (!d.root || !zp_json_is_object(d.root))
    launch_complain(&l, ZP_NO_SPAN, "%s: %s", path, error ? error : "no JSON object");
  else
    read_root(&d, &words->args);
  if (d.root) zp_json_free(d.root);
  return launch_end(&l);
}
