/* SPDX-License-Identifier: Apache-2.0 */
/* Is the data there that a trainer is to be started with? Told before anything is built, with the places considered. A
 * model names data relative to its own folder. A plan file carries the model's text, and where the model stood as seen
 * from the plan, so both may move together; a plan that was sent away alone may have its data alongside it. */
#include "driver.h"
#include <zplan/json.h>
#include <zplan/path.h>

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is there data at this path? For tokens("shards/train_*.bin"): is there any file of the pattern? */
static bool is_there(const zp_data *data, const char *path) {
  glob_t found;
  if (data->kind != ZP_DATA_TOKENS && data->kind != ZP_DATA_DOCUMENTS) return access(path, F_OK) == 0;
  bool any = glob(path, 0, NULL, &found) == 0;
  globfree(&found);
  return any;
}

/* Does the trainer get this word, which takes the place of the data? */
static bool is_replaced(const zp_run_state *run, const char *word) {
  for (int i = 0; i < run->options.trainer_args.len; i++)
    if (strcmp(run->options.trainer_args.data[i], word) == 0) return true;
  return false;
}

static bool starts_here(const zp_run_state *run) {
  const zp_options *o = &run->options;
  return strcmp(run->command, "run") == 0 && !o->hostfile && o->steps != 0; /* the initial checkpoint needs no data */
}

/* What is missing last, or NULL: nothing. */
static zp_diag *find_one(zp_run_state *run, const char *file, bool is_plan, zp_data *data, const char *replacement) {
  zp_diag *missing = NULL;
  for (int i = 0; i < data->n_parts; i++) {
    zp_diag *part = find_one(run, file, is_plan, &data->parts[i], replacement);
    if (part) missing = part;
  }
  if (!data->path || is_there(data, data->path)) return missing;
  const char *alongside_model = data->path;
  const char *alongside_plan =
      is_plan && data->written ? zp_path_alongside(run->arena, file, data->written) : alongside_model;
  if (is_there(data, alongside_plan)) {
    data->path = alongside_plan;
    return missing;
  }
  if (!starts_here(run) || is_replaced(run, replacement)) return NULL; /* it need not be on this machine */
  zp_diag *d = zp_report(run->diags, ZP_Z0801, data->span, "the data `%s` is not there",
                         data->written ? data->written : data->path);
  char here[4096];
  zp_diag_note(d, "looked for `%s`%s", alongside_model, data->written ? ", alongside the model" : "");
  if (strcmp(alongside_plan, alongside_model) != 0)
    zp_diag_note(d, "looked for `%s`, alongside the plan", alongside_plan);
  if (alongside_model[0] != '/' && getcwd(here, sizeof here)) zp_diag_note(d, "the current folder is %s", here);
  return d;
}

/* Both in one command: who has neither should not be told of the second after naming the first. */
static void help_with(const char *file, bool is_plan, zp_diag *data, zp_diag *validate) {
  zp_diag *last = validate ? validate : data;
  zp_diag_help(last, "name %s: zplan run %s --%s%s", data && validate ? "them" : "it", file, data ? " --data PATH" : "",
               validate ? " --validate PATH" : "");
  if (is_plan) return; /* --set would plan anew */
  zp_diag_help(last, "made-up data do for a try: zplan run %s%s%s", file,
               data ? " --set 'data=synthetic(seed = 1)'" : "",
               validate ? " --set 'train.validate.data=synthetic(seed = 2)'" : "");
}

/* Other data are masked by the same words. */
static void look_for_words(zp_run_state *run, const zp_data *data) {
  if (!data->mask_words || !starts_here(run) || access(data->mask_words, R_OK) == 0) return;
  zp_diag *d = zp_report(run->diags, ZP_Z0801, data->span, "the vocabulary `%s` is not there", data->mask_words);
  zp_diag_help(d, "`words` is the vocab.txt of the tokens, relative to the model's folder");
}

/* Where the training had it, as the checkpoint's manifest says. NULL where that does not tell. */
static const char *kept_words(zp_run_state *run, const char *checkpoint) {
  const char *error = NULL, *words = NULL;
  size_t len;
  const char *text = zp_read_file(run->arena, zp_format(run->arena, "%s/manifest.json", checkpoint), &len, &error);
  zp_json *root = text ? zp_json_parse(run->arena, text, len, &error) : NULL;
  const zp_json *data = zp_json_get(root, "data");
  if (data) words = zp_json_get_string(data, "words", NULL);
  if (words) words = zp_strdup(run->arena, words);
  if (root) zp_json_free(root);
  return words;
}

bool zp_find_words(zp_run_state *run, const char *checkpoint, zp_data *data) {
  if (!data->mask_words || access(data->mask_words, R_OK) == 0) return true;
  const char *kept = kept_words(run, checkpoint);
  if (kept && access(kept, R_OK) == 0) {
    data->mask_words = kept;
    return true;
  }
  zp_diag *d = zp_report(run->diags, ZP_Z0801, ZP_NO_SPAN,
                         "the vocabulary `%s`, by whose words the training masked, "
                         "is not there",
                         kept ? kept : data->mask_words);
  zp_diag_help(d, "name the model alongside it: zplan eval %s FILE.dz --data FILE", checkpoint);
  return false;
}

bool zp_find_data(zp_run_state *run, const char *file, bool is_plan, zp_spec *spec) {
  zp_diag *data = find_one(run, file, is_plan, &spec->train.data, "--data");
  zp_diag *validate = find_one(run, file, is_plan, &spec->train.validate_data, "--validate");
  if (data || validate) help_with(file, is_plan, data, validate);
  look_for_words(run, &spec->train.data);
  look_for_words(run, &spec->train.validate_data);
  return zp_flush_diags(run);
}

static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_token_file(const char *path) {
  size_t n = strlen(path);
  return n > 4 && (strcmp(path + n - 4, ".bin") == 0 || strcmp(path + n - 4, ".idx") == 0);
}

zp_data zp_data_at(const zp_spec *trained, const char *path) {
  const zp_data *data = &trained->train.data, *first = data->kind == ZP_DATA_MIX ? &data->parts[0] : data;
  bool spans = data->spans.rate > 0 && !is_folder(path);
  zp_data at = {.path = path,
                .mask_rate = data->mask_rate,
                .mask_token = data->mask_token,
                .mask_seed = data->mask_seed,
                .mask_words = data->mask_words,
                .span = ZP_NO_SPAN};
  bool arrays = is_folder(path) || first->kind == ZP_DATA_ARRAYS || !zp_model_reads_tokens(trained->model);
  if (!spans && arrays) {
    at.kind = ZP_DATA_ARRAYS;
    return at;
  }
  zp_data_kind tokens = first->kind == ZP_DATA_DOCUMENTS ? ZP_DATA_DOCUMENTS : ZP_DATA_TOKENS;
  at.kind = is_token_file(path) ? tokens : first->kind == ZP_DATA_LINES ? ZP_DATA_LINES : ZP_DATA_TEXT;
  at.end = first->end;
  at.spans = data->spans;
  return at;
}
