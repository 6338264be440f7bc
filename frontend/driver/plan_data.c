/* Where the data of a plan file is. A model names it relative to its own folder. A plan file carries the model's text,
 * and where the model stood as seen from the plan, so both may move together; a plan that was sent away alone may have
 * its data beside it. */
#include "driver.h"
#include <zplan/path.h>

#include <glob.h>
#include <unistd.h>

/* Of tokens("shards/train_*.bin"): any file. */
static bool is_there(const zp_data *data, const char *path) {
  glob_t found;
  if (data->kind != ZP_DATA_TOKENS) return access(path, F_OK) == 0;
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

static void find_one(zp_run_state *run, const char *plan, zp_data *data, const char *replacement) {
  if (!data->written || is_there(data, data->path)) return;
  const char *beside_model = data->path, *beside_plan = zp_path_beside(run->arena, plan, data->written);
  if (is_there(data, beside_plan)) {
    data->path = beside_plan;
    return;
  }
  if (strcmp(run->command, "run") != 0 || is_replaced(run, replacement)) return; /* it need not be on this machine */
  zp_diag *d =
      zp_report(run->diags, ZP_Z0801, data->span, "the data `%s` of the plan %s is not there", data->written, plan);
  zp_diag_note(d, "looked for `%s`, beside the model", beside_model);
  if (strcmp(beside_plan, beside_model) != 0) zp_diag_note(d, "looked for `%s`, beside the plan", beside_plan);
  zp_diag_help(d, "name it: zplan run %s -- %s PATH", plan, replacement);
}

bool zp_find_plan_data(zp_run_state *run, const char *plan, zp_spec *spec) {
  find_one(run, plan, &spec->train.data, "--data");
  find_one(run, plan, &spec->train.validate_data, "--validate");
  return zp_flush_diags(run);
}
