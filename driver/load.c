/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of all subcommands: a .dz file, or the sources and decisions inside a plan file. */
#include "purchase.h"
#include <zplan/path.h>
#include <zplan/plan_file.h>
#include <zplan/software.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_suffix(const char *text, const char *suffix) {
  size_t n = strlen(text), k = strlen(suffix);
  return n >= k && strcmp(text + n - k, suffix) == 0;
}

/* The command-line words that shape a spec, so that a plan file can be loaded again the same way. */
static void keep_options(zp_run_state *run, zp_spec *spec) {
  const zp_load_options *l = &run->options.load;
  const struct {
    const char *name, *value;
  } text[] = {{"--cluster", run->options.machine_cluster ? run->options.machine_cluster : l->cluster},
              {"--model", l->model},
              {"--plan", l->plan},
              {"--gap", run->options.gap_text}};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++)
    if (text[i].value) {
      zp_push(run->arena, &spec->options, text[i].name);
      zp_push(run->arena, &spec->options, text[i].value);
    }
  const struct {
    const char *name;
    int64_t value;
  } count[] = {{"--gpus", l->gpus}, {"--nodes", l->nodes}};
  for (size_t i = 0; i < 2; i++)
    if (count[i].value) {
      zp_push(run->arena, &spec->options, count[i].name);
      zp_push(run->arena, &spec->options, zp_format(run->arena, "%lld", (long long)count[i].value));
    }
  if (run->options.device_memory) {
    zp_push(run->arena, &spec->options, "--device-memory");
    zp_push(run->arena, &spec->options, zp_format(run->arena, "%lldB", (long long)run->options.device_memory));
  }
  if (run->options.search_memory) {
    zp_push(run->arena, &spec->options, "--search-memory");
    zp_push(run->arena, &spec->options, zp_format(run->arena, "%lldB", (long long)run->options.search_memory));
  }
  for (int i = 0; i < l->n_set; i++) {
    zp_push(run->arena, &spec->options, "--set");
    zp_push(run->arena, &spec->options, l->set[i]);
  }
}

static void set_memory(zp_node_type *node, const void *user) { node->device.memory_bytes = *(const int64_t *)user; }

/* Does the command print a trainer? */
static bool prints_trainer(const zp_run_state *run) {
  return strcmp(run->command, "build") == 0 || strcmp(run->command, "run") == 0;
}

/* --device-memory is what one rank may use; the memory of a CPU node is shared by its ranks. Commands that start a
 * trainer are for one rank where --ranks does not say. */
static void cap_memory(zp_run_state *run, zp_spec *spec) {
  if (!run->options.device_memory) return;
  bool starts = prints_trainer(run) || strcmp(run->command, "bench") == 0;
  int64_t ranks = spec->cluster.node.device.is_cpu ? zp_rank_count(run, spec, starts) : 1;
  int64_t most = INT64_MAX / 4 / ranks,
          bytes = ranks * (run->options.device_memory < most ? run->options.device_memory : most);
  zp_cluster_change(run->arena, &spec->cluster, set_memory, &bytes);
  spec->cluster.rank_memory_bytes = run->options.device_memory;
  for (int i = 0; i < spec->plans.len; i++) spec->plans.data[i].memory_fraction = 1.0;
}

static void limit_search(const zp_run_state *run, zp_spec *spec) {
  zp_constraints *plan = &spec->plans.data[spec->plan];
  if (run->options.gap_text) plan->search_gap = run->options.gap;
  if (run->options.search_memory) plan->search_memory = run->options.search_memory;
}

/* Options recorded in a plan file come first, the command line's own after them. */
static bool recall_options(zp_run_state *run, const zp_json *json) {
  const zp_json *list = zp_json_get(json, "options");
  int n = zp_json_count(list);
  char **argv = ZP_NEW_ARRAY(run->arena, char *, n + 1);
  for (int i = 0; i < n; i++) argv[i] = zp_strdup(run->arena, zp_json_string(zp_json_at(list, i), ""));
  zp_options own = run->options;
  const char *command = run->command;
  memset(&run->options, 0, sizeof run->options);
  run->command = "plan";
  bool ok = zp_parse_options(run, n, argv);
  run->command = command;
  zp_options kept = run->options;
  run->options = own;
  zp_load_options *l = &run->options.load;
  if (!l->gpus) l->gpus = kept.load.gpus;
  if (!l->nodes) l->nodes = kept.load.nodes;
  if (!l->cluster) l->cluster = kept.load.cluster;
  if (!l->model) l->model = kept.load.model;
  if (!l->plan) l->plan = kept.load.plan;
  if (!run->options.device_memory) run->options.device_memory = kept.device_memory;
  if (!run->options.gap_text) run->options.gap_text = kept.gap_text, run->options.gap = kept.gap;
  if (!run->options.search_memory) run->options.search_memory = kept.search_memory;
  if (!run->options.calibration) run->options.calibration = kept.calibration;
  if (!run->options.program) run->options.program = kept.program;
  zp_lay_settings_over(run, &kept.set, &own.set);
  return ok;
}

/* What a host gave instead of the file; NULL: it is a file. */
static const char *given_text(const zp_run_state *run, const char *path) {
  return run->given_path && strcmp(run->given_path, path) == 0 ? run->given_text : NULL;
}

static zp_spec *load_plan_file(zp_run_state *run, const char *path, zp_json **json) {
  size_t len;
  const char *error = NULL;
  const char *text = given_text(run, path);
  if (text)
    len = strlen(text);
  else
    text = zp_read_input(run->arena, path, &len, &error);
  if (text) *json = zp_json_parse(run->arena, text, len, &error);
  if (text && *json) error = zp_plan_json_upgrade(run->arena, *json);
  if (error) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s", text ? zp_format(run->arena, "%s: %s", path, error) : error);
    if (text && !*json)
      zp_diag_help(d, "it is no plan file, or a part of one: `zplan FILE.dz -o PLAN.json` writes one");
    return NULL;
  }
  const zp_json *list = zp_json_get(*json, "sources");
  int n = zp_json_count(list);
  if (n < 1) {
    zp_diag *d = zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s carries no sources: it is not a plan of zplan", path);
    if (zp_json_get(*json, "model_type") || zp_json_get(*json, "architectures"))
      zp_diag_help(
          d,
          "it is the configuration of a Hugging Face model: `zplan import hf %s -o model.dz` makes a .dz file of "
          "it",
          path);
    return NULL;
  }
  const char *folder = zp_json_get_string(*json, "model_folder", ".");
  const char *model =
      zp_path_alongside(run->arena, path, zp_format(run->arena, "%s/plan", folder)); /* a file of that folder */
  zp_source_text *sources = ZP_NEW_ARRAY(run->arena, zp_source_text, n);
  for (int i = 0; i < n; i++) {
    sources[i].path = zp_path_alongside(run->arena, model, zp_json_get_string(zp_json_at(list, i), "path", ""));
    sources[i].text = zp_strdup(run->arena, zp_json_get_string(zp_json_at(list, i), "text", ""));
    sources[i].len = strlen(sources[i].text);
  }
  if (!recall_options(run, *json)) {
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s: its recorded options are not those of a command", path);
    return NULL;
  }
  zp_load_options options = run->options.load;
  options.machine_here = NULL; /* a plan is of its own machine */
  options.machine = NULL;
  return zp_load(run->arena, run->diags, sources[0].path, sources, n, &options);
}

/* There may be one of nearly the same name. */
static zp_spec *refuse_missing(zp_run_state *run, const char *path, int error) {
  zp_diag *d = zp_report(run->diags, ZP_Z0210, ZP_NO_SPAN, "cannot read `%s`: %s", path, strerror(error));
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *folder = slash ? zp_strndup(run->arena, path, (size_t)(name - path)) : ".";
  zp_strings names = {0};
  DIR *dir = opendir(folder);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (has_suffix(entry->d_name, ".dz")) zp_push(run->arena, &names, zp_strdup(run->arena, entry->d_name));
  if (dir) closedir(dir);
  if (!zp_diag_did_you_mean(d, name, names.data, names.len))
    zp_diag_help(d,
                 names.len ? "`%s` has other .dz files; `zplan new` writes one to start from"
                           : "`%s` has no .dz file; `zplan new` writes one to start from",
                 folder);
  return NULL;
}

static zp_spec *load_text(zp_run_state *run, const char *path) {
  struct stat st;
  const char *text = given_text(run, path);
  if (text) {
    const zp_source_text given = {.path = path, .text = text, .len = strlen(text)};
    return zp_load(run->arena, run->diags, path, &given, 1, &run->options.load);
  }
  if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
    zp_diag *d = zp_report(run->diags, ZP_Z0210, ZP_NO_SPAN, "`%s` is a folder, not a .dz file", path);
    if (access(zp_format(run->arena, "%s/config.json", path), R_OK) == 0)
      zp_diag_help(d, "`zplan new fine-tune %s` writes a .dz file to train it, `zplan import hf %s` its model", path,
                   path);
    return NULL;
  }
  const zp_source_text *known = zp_known_model_file(run, path);
  if (!known && access(path, F_OK) != 0) return refuse_missing(run, path, errno);
  return zp_load(run->arena, run->diags, known ? known->path : path, known, known ? 1 : 0, &run->options.load);
}

bool zp_peek_terms(zp_run_state *run, zp_terms *terms) {
  const zp_options *o = &run->options;
  struct stat info; /* what is read from a pipe is gone */
  if (o->files.len != 1 || zp_is_plan_file(run, o->files.data[0])) return false;
  bool there = !given_text(run, o->files.data[0]) && stat(o->files.data[0], &info) == 0;
  if (there && !S_ISREG(info.st_mode)) return false;
  zp_run_state quiet = *run;
  quiet.machine_said = true;
  quiet.diags = zp_diags_new(run->arena);
  const zp_spec *spec = load_text(&quiet, o->files.data[0]);
  if (!spec || zp_diags_errors(quiet.diags) > 0) return false;
  *terms = spec->plans.data[spec->plan].terms;
  return true;
}

bool zp_is_plan_file(const zp_run_state *run, const char *path) {
  if (has_suffix(path, ".json")) return true;
  const char *text = given_text(run, path);
  if (text) return !has_suffix(path, ".dz") && text[strspn(text, " \t\r\n")] == '{';
  struct stat info; /* what is read from a pipe is gone */
  bool may = !has_suffix(path, ".dz") && stat(path, &info) == 0 && S_ISREG(info.st_mode);
  FILE *file = may ? fopen(path, "r") : NULL;
  int first = file ? fgetc(file) : EOF;
  while (first == ' ' || first == '\t' || first == '\r' || first == '\n') first = fgetc(file);
  if (file) fclose(file);
  return first == '{';
}

/* A file may describe a larger machine of which --gpus takes a part. */
static bool check_size(zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  bool uses_all = strcmp(run->command, "check") != 0 && !o->gpus_auto && !o->gpus_high;
  if (!uses_all || spec->cluster.ranks <= ZP_MOST_RANKS) return true;
  zp_diag *d = zp_report(run->diags, ZP_Z0405, spec->cluster.span, "%lld devices are more than can be planned",
                         (long long)spec->cluster.ranks);
  zp_diag_help(d, "plans are made for 1 to %d devices: give --gpus", ZP_MOST_RANKS);
  return zp_flush_diags(run);
}

/* A trainer needs data: where the file names none, made-up tokens, so that times and memory can be tried. */
static zp_spec *make_data_up(zp_run_state *run, const char *path, zp_spec *spec) {
  bool starts = strcmp(run->command, "run") == 0 || strcmp(run->command, "bench") == 0;
  if (!spec || !starts || spec->train.data.kind != ZP_DATA_NONE || zp_diags_errors(run->diags) > 0) return spec;
  zp_say_line(stderr,
              "note: %s has no `data`: it trains on made-up tokens (in train: data = text(\"book.txt\"); once: --set "
              "'data=text(\"book.txt\")')",
              path);
  zp_strings own = run->options.set, data = {0};
  zp_push(run->arena, &data, "data=synthetic(seed=1)");
  zp_lay_settings_over(run, &own, &data);
  zp_load_options options = run->options.load;
  if (run->options.machine_cluster) options.cluster = run->options.machine_cluster;
  options.machine = NULL;                /* the sources have it */
  run->diags = zp_diags_new(run->arena); /* warnings come once */
  return zp_load(run->arena, run->diags, spec->sources.data[0].path, spec->sources.data, spec->sources.len, &options);
}

zp_spec *zp_load_input(zp_run_state *run, zp_json **json) {
  *json = NULL;
  if (run->options.files.len != 1) {
    const zp_verb *verb = zp_find_verb(run->command);
    if (run->options.files.len == 0 && run->options.machine)
      zp_usage_error("--machine goes with a file or a published model: zplan %s FILE.dz --machine %s, or --model "
                     "llama3-8b --machine %s",
                     run->command, run->options.machine, run->options.machine);
    else if (run->options.files.len == 0)
      zp_usage_error("no file is named: zplan %s %s", run->command, verb->arguments);
    else
      zp_usage_error("`zplan %s` wants one file, %d were given", run->command, run->options.files.len);
    return NULL;
  }
  const char *path = run->options.files.data[0];
  zp_spec *spec =
      make_data_up(run, path, zp_is_plan_file(run, path) ? load_plan_file(run, path, json) : load_text(run, path));
  if (!zp_flush_diags(run)) spec = NULL;
  if (spec && !zp_find_data(run, path, *json != NULL, spec)) spec = NULL;
  if (spec && (!zp_calibrate_by_word(run, spec, *json) || !check_size(run, spec))) spec = NULL;
  if (!spec) {
    if (*json) zp_json_free(*json);
    *json = NULL;
    return NULL;
  }
  cap_memory(run, spec);
  limit_search(run, spec);
  keep_options(run, spec);
  if (zp_choose_program(run, spec, *json != NULL) && (*json || zp_calibrate_here(run, spec))) return spec;
  if (*json) zp_json_free(*json);
  *json = NULL;
  return NULL;
}

int zp_rank_count(const zp_run_state *run, const zp_spec *spec, int fallback) {
  if (run->options.load.gpus) return (int)run->options.load.gpus;
  if (fallback && spec->cluster.node.device.is_cpu) return fallback;
  return (int)spec->cluster.ranks;
}

zp_plan *zp_plan_of_choice(zp_arena *arena, const zp_spec *spec, const zp_choice *choice, int devices,
                           const char **error) {
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  plan->arena = arena;
  plan->spec = spec;
  plan->devices = devices;
  plan->machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(choice));
  *error = zp_choice_refusal(choice, spec);
  if (!*error) *error = zp_choice_refusal_complete(choice, spec);
  if (*error) return NULL;
  const zp_sharding *sharding = zp_shard_choice(arena, spec->model, &plan->machine, choice, error);
  if (!sharding) return NULL;
  zp_lowered **lowered = zp_lower_stages(arena, spec, sharding, choice, error);
  if (!lowered) return NULL;
  int64_t units = choice->cut[choice->pipeline * (choice->chunks > 1 ? choice->chunks : 1)];
  if (units != lowered[0]->n_units) {
    *error = zp_format(arena, "the stages hold %lld units, the model has %lld", (long long)units,
                       (long long)lowered[0]->n_units);
    return NULL;
  }
  if (spec->train.batch % (zp_replicas(choice) * choice->microbatch) != 0) {
    *error = zp_format(arena, "batch %lld does not divide over %d data ranks and micro-batch %lld",
                       (long long)spec->train.batch, zp_replicas(choice), (long long)choice->microbatch);
    return NULL;
  }
  plan->program = zp_program_make_priced(arena, zp_price_stages(lowered, &plan->machine, choice), choice);
  plan->best.choice = plan->program->choice;
  plan->best.estimate = zp_simulate(arena, plan->program, &plan->machine);
  plan->certificate.best_s = plan->best.estimate.step_s;
  plan->feasible = true;
  return plan;
}

zp_plan *zp_plan_of_file(zp_arena *arena, const zp_spec *spec, const zp_json *json, const char **error) {
  zp_choice choice;
  int devices;
  const zp_spec *there = zp_plan_spec_from_json(arena, spec, json, error);
  if (!there || !zp_plan_choice_from_json(arena, there, json, &choice, &devices, error)) return NULL;
  zp_plan *plan = zp_plan_of_choice(arena, there, &choice, devices, error);
  if (plan && there != spec) plan->asked = spec;
  return plan;
}

/* A plan may hold more than the generator of trainers can print. */
static zp_plan *refuse_ungenerated(zp_run_state *run, zp_plan *plan) {
  if (!plan || !plan->feasible || !prints_trainer(run)) return plan;
  const char *why_not = zp_trainer_refusal(ZP_TRAINER_ZPLAN, &plan->spec->train, &plan->best.choice);
  if (!why_not) return plan;
  zp_diag *d = zp_report(run->diags, ZP_Z0702, ZP_NO_SPAN, "%s", why_not);
  zp_diag_help(d, "`zplan plan`, `report` and `verify` work with such plans; without this constraint a plan is "
                  "searched that can be built");
  zp_flush_diags(run);
  return NULL;
}

/* A plan file has decided already: what asks for another plan cannot be had from it. own: the words of this command
 * line. */
static bool check_words_of_plan(zp_run_state *run, const zp_options *own, const zp_plan *plan) {
  const char *path = own->files.data[0];
  const zp_choice *c = &plan->best.choice;
  int ranks = c->tensor * c->pipeline * c->data;
  zp_diag *d = NULL;
  if (own->machine)
    d = zp_report(run->diags, ZP_Z0643, ZP_NO_SPAN, "%s is planned already: --machine %s cannot change it", path,
                  own->machine);
  if (own->load.gpus && own->load.gpus != ranks)
    d = zp_report(run->diags, ZP_Z0643, ZP_NO_SPAN, "%s is a plan for %d ranks, not for %lld", path, ranks,
                  (long long)own->load.gpus);
  for (int i = 0; i < own->set.len && prints_trainer(run); i++)
    if (zp_is_plan_setting(own->set.data[i]))
      d = zp_report(run->diags, ZP_Z0643, ZP_NO_SPAN, "%s is planned already: --set '%s' cannot change it", path,
                    own->set.data[i]);
  if (own->device_memory && plan->best.estimate.peak_bytes > own->device_memory)
    d = zp_report(run->diags, ZP_Z0643, ZP_NO_SPAN, "%s needs %s on stage %d, --device-memory allows %s", path,
                  zp_show_bytes(run->arena, plan->best.estimate.peak_bytes), plan->best.estimate.peak_stage,
                  zp_show_bytes(run->arena, own->device_memory));
  if (d) zp_diag_help(d, "give the .dz file, so that a plan is searched that has it so");
  return d == NULL;
}

zp_plan *zp_refuse_stopped(zp_run_state *run, zp_plan *plan) {
  if (!plan->stopped) return plan;
  zp_diag *d = zp_report(run->diags, ZP_Z0604, ZP_NO_SPAN, "%s", plan->why_not);
  zp_diag_help(d, "give it %sfewer candidates: pin what is known, as in --set tensor=8",
               plan->certificate.short_of_memory ? "more with --search-memory, or " : "");
  zp_flush_diags(run);
  return NULL;
}

/* Nobody waits for a trainer of a plan that may be far from the best one. */
static zp_plan *refuse_interrupted(zp_run_state *run, zp_plan *plan) {
  if (!plan || !run->interrupted || !prints_trainer(run)) return plan;
  zp_say_line(stderr, "zplan: interrupted while it searched: nothing was built (--gap 5%% searches less)");
  return NULL;
}

/* Found, sound, and a trainer is generated where one is wanted; else NULL. Intermediate forms are for finding out why a
 * plan is not sound, so it is proven after they were printed. */
static zp_plan *accept(zp_run_state *run, zp_plan *plan) {
  plan = refuse_ungenerated(run, refuse_interrupted(run, zp_refuse_stopped(run, plan)));
  if (plan && run->options.dump) return plan;
  if (!plan || !zp_prove_plan(run, plan)) return NULL;
  if (plan->feasible) zp_note_terms(run, plan);
  if (!prints_trainer(run)) zp_prove_alternatives(run, plan);
  return plan;
}

zp_plan *zp_obtain_plan_and_file(zp_run_state *run, int fallback_ranks, zp_json **file) {
  const zp_options own = run->options; /* a plan file adds the words that it recorded */
  zp_json *json;
  zp_spec *spec = zp_load_input(run, &json);
  *file = NULL;
  if (!spec) return NULL;
  if (!json) {
    int top = run->options.top > 0 ? run->options.top : 0;
    zp_search_options options = {.top = top, .generated_only = prints_trainer(run)};
    return accept(run, zp_search_patiently(run, spec, zp_rank_count(run, spec, fallback_ranks), &options));
  }
  const char *error = NULL;
  zp_plan *plan = zp_plan_of_file(run->arena, spec, json, &error);
  if (!plan)
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s: %s", run->options.files.data[0], error);
  else if (!check_words_of_plan(run, &own, plan) || !zp_prove_plan_file(run, run->options.files.data[0], plan))
    plan = NULL;
  zp_flush_diags(run);
  plan = refuse_ungenerated(run, plan);
  if (plan)
    *file = json;
  else
    zp_json_free(json);
  return plan;
}

zp_plan *zp_obtain_plan(zp_run_state *run, int fallback_ranks) {
  zp_json *file;
  zp_plan *plan = zp_obtain_plan_and_file(run, fallback_ranks, &file);
  if (file) zp_json_free(file);
  return plan;
}

/* Every file brings its own recorded options. */
int zp_obtain_plan_of(zp_run_state *run, const char *path, const zp_plan **plan) {
  const zp_options own = run->options;
  run->options.files = (zp_strings){0};
  zp_push(run->arena, &run->options.files, path);
  run->diags = zp_diags_new(run->arena);
  *plan = zp_obtain_plan(run, 0);
  run->options = own;
  if (!*plan) return ZP_EXIT_ERROR;
  if ((*plan)->feasible) return ZP_EXIT_OK;
  zp_say(stderr, "%s: ", path);
  zp_print_no_plan(run, *plan);
  return ZP_EXIT_INFEASIBLE;
}

const char *zp_tree_dir(zp_run_state *run) {
  if (run->options.output) return run->options.output;
  const char *path = run->options.files.data[0], *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  return zp_format(run->arena, "%.*s.zplan", (int)strcspn(base, "."), base);
}
