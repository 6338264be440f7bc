/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options, one table for all subcommands. */
#include "driver.h"
#include "machines.h"
#include "option_values.h"
#include <zplan/buf.h>
#include <zplan/hosted.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What most options do with their value; what the others do stands in apply_other. */
typedef enum way { WAY_TEXT, WAY_LIST, WAY_FLAG, WAY_COUNT, WAY_SIZE, WAY_SHARE, WAY_WAIT, WAY_OTHER } way;
typedef enum other_option {
  O_GPUS,
  O_CLUSTER,
  O_MACHINE,
  O_PLAN,
  O_MODEL,
  O_FOR,
  O_TOP,
  O_TARGET,
  O_ARCH,
  O_TEMPERATURE,
  O_DTYPE,
  O_RESUME_FROM,
  O_COLOR,
  O_FORMAT,
  O_THREADS,
  O_DUMP,
  O_GAP,
  O_PROFILE_STEPS
} other_option;

typedef struct option_row {
  const char *name;
  const char *value; /* what follows it, as help shows it; NULL: nothing */
  const char *verbs; /* that take it; "*" all, "* -lsp" all but that one */
  const char *help;
  way way;
  size_t offset;      /* of the field of zp_options that it fills */
  int least;          /* COUNT */
  other_option other; /* OTHER */
} option_row;

#define FIELD(name) offsetof(zp_options, name)
#define TEXT(name) WAY_TEXT, FIELD(name), 0, 0
#define LIST(name) WAY_LIST, FIELD(name), 0, 0
#define FLAG(name) WAY_FLAG, FIELD(name), 0, 0
#define COUNT(name, least) WAY_COUNT, FIELD(name), least, 0
#define SIZE(name) WAY_SIZE, FIELD(name), 0, 0
#define SHARE(name) WAY_SHARE, FIELD(name), 0, 0
#define WAIT(name) WAY_WAIT, FIELD(name), 0, 0
#define BY(other) WAY_OTHER, 0, 0, other

static const option_row rows[] = {
    {"--gpus", "N|auto|LOW..HIGH", "plan build run explain bench export compare new import",
     "devices to use (default: the cluster block; build, run: 1 rank); auto: the fewest that fit; a range: a table; "
     "compare: several; import: of a launch that does not say",
     BY(O_GPUS)},
    {"--ranks", "N", "plan build run explain bench export compare sample eval",
     "the same as --gpus; sample, eval: ranks that share every layer (tensor ranks)", BY(O_GPUS)},
    {"--nodes", "N", "plan build run explain bench export compare", "nodes of the cluster", COUNT(load.nodes, 1)},
    {"--cluster", "NAME", "plan build run check explain bench export compare",
     "which cluster block of the file; plan: several, the best of which is chosen; compare: several", BY(O_CLUSTER)},
    {"--model", "NAME", "plan build run check explain bench export compare new import",
     "which model of the file; without a file one of `zplan models` (compare: several); import deepspeed: also a .dz "
     "file, a config.json or a folder with one",
     BY(O_MODEL)},
    {"--machine", "NAME", "plan build run explain bench export compare new import",
     "a machine of `zplan machines` instead of the file's cluster block, or `this` for the one here; import: what a "
     "launch runs on; plan: several, the best of which is chosen; compare: several",
     BY(O_MACHINE)},
    {"--price", "DOLLARS|NAME=DOLLARS", "plan compare",
     "dollars of a device hour of every --machine or --cluster, or of the one of that name; several add up",
     LIST(prices)},
    {"--plan", "NAME", "plan build run check explain bench export compare",
     "which plan block of the file; compare takes several", BY(O_PLAN)},
    {"--set", "KEY=VALUE", "plan build run check explain bench export compare",
     "instead of the file's plan limit or train setting: 'tensor<=8', steps=50, model.layers=3; several add up",
     LIST(set)},
    {"-o", "FILE", "plan build run verify data calibrate bench export import sample eval new",
     "where the result goes (build, run, bench, sample, eval: a folder for the trainer)", TEXT(output)},
    {"--top", "K", "plan bench", "search for the K next best plans, too", BY(O_TOP)},
    {"--json", NULL, "* -lsp", "one JSON document on standard output, of errors, too", FLAG(json)},
    {"--target", "cpu|cuda", "build run bench sample eval",
     "what the trainer runs on (default: the devices of the cluster; sample, eval: the CPU)", BY(O_TARGET)},
    {"--arch", "sm_NN|host", "build run bench sample eval",
     "of GPU trainers (default: the device's); host: an emulated GPU, slow, to try trainers without one", BY(O_ARCH)},
    {"--hostfile", "FILE", "run sample eval", "given to mpirun", TEXT(hostfile)},
    {"--init", "FOLDER", "run", "start from its weights: a checkpoint of Hugging Face (safetensors) or of zplan",
     TEXT(init)},
    {"--adapters", "FOLDER", "run sample eval",
     "alongside weights of Hugging Face: the adapters (LoRA) that PEFT saved there", TEXT(adapters)},
    {"--checkpoint", "FOLDER", "run", "where checkpoints are kept, instead of the file's folder", TEXT(checkpoint)},
    {"--resume", NULL, "run", "go on from the last checkpoint", FLAG(resume)},
    {"--resume-from", "STEP", "run", "go on from the checkpoint of that step instead of the last one",
     BY(O_RESUME_FROM)},
    {"--accept-changes", NULL, "run", "with --resume: also when data or seed are not those of the checkpoint",
     FLAG(accept_changes)},
    {"--overwrite", NULL, "run", "start anew where checkpoints are, and remove these", FLAG(overwrite)},
    {"--no-checkpoint", NULL, "run",
     "keep no checkpoints (default: in the file's folder, or the last state alongside the trainer's folder)",
     FLAG(no_checkpoint)},
    {"--force", NULL, "plan build run verify report data calibrate export import watch",
     "write results also over files that were edited, or are of something else", FLAG(force)},
    {"--steps", "N", "run bench", "steps to run instead of the file's", COUNT(steps, 0)},
    {"--log", "FILE", "run report", "JSON lines of a run: written by run, read by report", TEXT(log)},
    {"--device-memory", "SIZE", "plan build run explain bench export compare", "budget of one device, e.g. 4GiB",
     SIZE(device_memory)},
    {"--sync", NULL, "run", "GPU: synchronize after each kernel so that errors name it (slow)", FLAG(sync)},
    {"--profile", NULL, "build run report",
     "measured alongside predicted time of every step (build: a trainer that can; run: measures every second step from "
     "the "
     "4th on; report: all rows of the log's profile)",
     FLAG(profile)},
    {"--profile-steps", "A..B", "run", "with --profile: measure steps A to B instead", BY(O_PROFILE_STEPS)},
    {"--html", "FILE", "report compare", "the report as one HTML file", TEXT(html)},
    {"--front", "FILE", "report", "with --html: draw the plans of `zplan FILE.dz --pareto --json` alongside this one",
     TEXT(front)},
    {"--trace", "FILE", "report",
     "the simulated step as a Chrome trace, with --log also the one that run --profile measured", TEXT(trace)},
    {"--reference", "blocks|operations|flags|messages|runs|man|json", "explain",
     "all entries: a page of docs/reference, zplan.1, or the language as JSON", TEXT(reference)},
    {"--why-not", "'KEY=VALUE, ...'", "explain", "what another plan would cost, or why it does not fit", TEXT(why_not)},
    {"--check", NULL, "fmt", "change nothing, exit 4 when a file is not in canonical layout", FLAG(check)},
    {"--check-memory", NULL, "run", "fail when memory or traffic is not what the plan says", FLAG(check_memory)},
    {"--color", "auto|always|never", "* -lsp",
     "colours of text; auto: on a terminal, but NO_COLOR and TERM=dumb are obeyed", BY(O_COLOR)},
    {"--progress", NULL, "plan build run report explain bench compare diff export",
     "say on stderr how far long work is, also where that is no terminal: a line every 10 s", FLAG(progress)},
    {"--verbose", NULL, "plan report explain",
     "all that is known of the plan: stages, other plans, what was rejected, what figures rest on", FLAG(verbose)},
    {"--message-format", "human|json", "* -lsp", "of diagnostics", BY(O_FORMAT)},
    {"--threads", "N", "run bench sample eval", "threads of a rank", BY(O_THREADS)},
    {"--wait-warn", "SECONDS", "run", "say so when a rank has waited that long for another one (default 30; 0: never)",
     WAIT(wait_warn)},
    {"--wait-end", "SECONDS", "run",
     "end when a rank has waited that long (default 600, outside of steps 3600; 0: never)", WAIT(wait_end)},
    {"--grace", "SECONDS", "run",
     "the same after a signal that asks to end; ranks of a run that failed have as long to go (default 30)",
     WAIT(grace)},
    {"--dump-after", "graph|shard|differentiate|lower|moves", "plan", "an intermediate form", BY(O_DUMP)},
    {"--sensitivity", NULL, "plan", "the best plan on a machine with one rate changed", FLAG(sensitivity)},
    {"--pareto", NULL, "plan", "step time against memory, devices and price", FLAG(pareto)},
    {"--calibration", "FILE|kept|none", "plan build run explain bench export compare",
     "measurements of `zplan calibrate`; kept: those that run and bench make once and keep for this machine (their "
     "default for CPU clusters); for CPU clusters also $ZPLAN_CALIBRATION",
     TEXT(calibration)},
    {"--for", "PROGRAM", "plan build run report explain bench export compare",
     "whose kernels are priced and what it can do: zplan (default), megatron, deepspeed, fsdp, or one of their "
     "profiles",
     BY(O_FOR)},
    {"--gap", "SHARE", "plan build run explain bench export compare import",
     "stop searching when no plan is faster by more than this: 1%, 0.01 (default 0; import 1%)", BY(O_GAP)},
    {"--search-memory", "SIZE", "plan build run explain bench export compare",
     "memory that the search may hold, e.g. 512MiB (default 2GiB); what it then leaves open is the gap",
     SIZE(search_memory)},
    {"--tokenizer", "FILE", "data export sample",
     "tokenizer.json of a Hugging Face model: BPE, unigram, WordPiece; or BERT's vocab.txt (data, sample: default "
     "bytes; export hf: goes with the weights)",
     TEXT(tokenizer)},
    {"--eod", "TOKEN", "data sample",
     "the tokenizer's token after every file, e.g. '<|endoftext|>'; sample: a text ends there", TEXT(eod)},
    {"--length", "N", "data", "squad, pairs, jsonl, table: tokens of a sample", COUNT(length, 1)},
    {"--copies", "N", "data", "pairs: how often the texts are read, each time drawn anew (default 1)",
     COUNT(copies, 1)},
    {"--unmasked", NULL, "data", "pairs: masks are left to `data = masked(arrays(...))`", FLAG(unmasked)},
    {"--stride", "N", "data", "squad: tokens from one window of a long context to the next (default: half a window)",
     COUNT(stride, 1)},
    {"--field", "COLUMN", "data", "jsonl, table: where the texts stand", TEXT(field)},
    {"--skip-bad", NULL, "data", "jsonl to a token file: leave rows out that cannot be read, and count them",
     FLAG(skip_bad)},
    {"--numbers", "NAME=COLUMN,...", "data", "jsonl, table: columns of the array NAME; several add up", LIST(numbers)},
    {"--labels", "NAME=COLUMN", "data", "jsonl, table: classes of the array NAME; several add up", LIST(labels)},
    {"--classes", "N", "data", "jsonl, table: labels are below N (default: any number)", COUNT(classes, 1)},
    {"--pack", NULL, "data", "jsonl, table, with --length: whole texts share a sample (default: one each)", FLAG(pack)},
    {"--documents", NULL, "data",
     "with --pack: which document every position is of, for `attention(documents)`, and its position there",
     FLAG(documents)},
    {"--gpu", "NAME", "import sample eval",
     "which device of std.hw the GPUs of a topology file are, e.g. a100_40; sample, eval: run on such GPUs", TEXT(gpu)},
    {"--like", "FOLDER", "export",
     "hf: config.json, tokenizer and files as in this folder (default: that which the run began with, or made anew)",
     TEXT(like)},
    {"--dtype", "f32|f64|bf16|f16", "export", "hf: type of the weights (default: that of the training)", BY(O_DTYPE)},
    {"--shard-size", "SIZE", "export", "hf: most of one safetensors file, e.g. 5GB (default: one file)",
     SIZE(shard_bytes)},
    {"--prompt", "TEXT", "sample", "what a text begins with; several add up", LIST(prompts)},
    {"--tokens", "N", "sample", "tokens to add (default 64), up to the length of a sample", COUNT(tokens, 1)},
    {"--temperature", "T", "sample", "draw tokens, the likelier ones less often above 1 (default: the likeliest one)",
     BY(O_TEMPERATURE)},
    {"--top-k", "K", "sample", "with --temperature: among the K likeliest tokens", COUNT(top_k, 1)},
    {"--top-p", "SHARE", "sample", "with --temperature: among the fewest tokens that have this share: 95%, 0.95",
     SHARE(top_p)},
    {"--seed", "N", "data sample", "pairs, sample with --temperature: of the draws (default 0)", COUNT(seed, 0)},
    {"--no-cache", NULL, "sample", "every token by a pass over the whole sample, without kept keys and values",
     FLAG(no_cache)},
    {"--ema", NULL, "sample eval export",
     "take the average of the weights that the training kept (`train { ema = 0.999 }`), not the weights; export: hf",
     FLAG(ema)},
    {"--data", "FILE", "eval", "what to evaluate on: token files (*.bin, *.idx), a text or a folder of arrays",
     TEXT(data)},
    {"--once", NULL, "watch", "show the state and end; exit status 1 when a run is not healthy", FLAG(once)},
    {"--tensorboard", "FOLDER", "watch", "write event files there; of several logs in a folder each",
     TEXT(tensorboard)},
    {"--prometheus", "FILE", "watch", "write metrics there at every change, for the textfile collector: NAME.prom",
     TEXT(prometheus)},
    {"-t", "SECONDS", "calibrate", "time to measure: 10 to 600 (default 30)", COUNT(seconds, 1)},
};
enum { N_ROWS = sizeof rows / sizeof *rows, MOST_TOP = 1000 };

static _Thread_local char last_usage[512];

void zp_forget_usage_error(void) { *last_usage = '\0'; }

const char *zp_last_usage_error(void) { return *last_usage ? last_usage : NULL; }

int zp_usage_error(const char *format, ...) {
  zp_arena *scratch = zp_arena_new("a message");
  va_list args;
  va_start(args, format);
  const char *text = zp_vformat(scratch, format, args);
  zp_say_line(stderr, "zplan: %s", text);
  snprintf(last_usage, sizeof last_usage, "%s", text);
  va_end(args);
  zp_arena_free(scratch);
  return ZP_EXIT_USAGE;
}

static bool takes(const option_row *row, const char *verb) {
  if (*row->verbs == '*') return strncmp(row->verbs, "* -", 3) != 0 || strcmp(row->verbs + 3, verb) != 0;
  size_t n = strlen(verb);
  for (const char *p = row->verbs; (p = strstr(p, verb)) != NULL; p += n)
    if ((p == row->verbs || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
  return false;
}

static bool apply_other(zp_run_state *run, const option_row *row, const char *v) {
  zp_options *o = &run->options;
  int64_t n = 0;
  switch (row->other) {
  case O_GPUS: zp_push(run->arena, &o->counts, v); return zp_parse_devices(run, row->name, v);
  case O_CLUSTER:
    o->load.cluster = v;
    zp_push(run->arena, &o->clusters, v);
    return true;
  case O_MACHINE:
    o->machine = v;
    zp_push(run->arena, &o->machines, v);
    return true;
  case O_PLAN:
    o->load.plan = v;
    zp_push(run->arena, &o->plan_names, v);
    return true;
  case O_MODEL:
    o->load.model = v;
    zp_push(run->arena, &o->models, v);
    return true;
  case O_FOR: o->program = v; return zp_is_program(run, v);
  case O_TOP:
    if (!zp_parse_within(row->name, v, 0, MOST_TOP, &n)) return false;
    o->top = (int)n;
    return true;
  case O_TARGET:
    o->target = v;
    if (strcmp(v, "cpu") == 0 || strcmp(v, "cuda") == 0) return true;
    return zp_usage_error("--target is cpu or cuda, not `%s`", v), false;
  case O_ARCH:
    o->arch = v;
    if (strcmp(v, "host") == 0 || zp_is_gpu_arch(v)) return true;
    return zp_usage_error("--arch is the architecture of a GPU such as sm_90, or host, not `%s`", v), false;
  case O_TEMPERATURE: return zp_parse_temperature(row->name, v, &o->temperature);
  case O_DTYPE: o->dtype = v; return zp_is_dtype(v);
  case O_RESUME_FROM:
    o->resume = true;
    if (!zp_parse_within(row->name, v, 0, INT64_MAX - 1, &o->resume_from)) return false;
    return o->resume_from++, true;
  case O_COLOR: return zp_parse_color(v, &o->color);
  case O_FORMAT:
    o->message_json = strcmp(v, "json") == 0;
    if (!o->message_json && strcmp(v, "human") != 0)
      return zp_usage_error("--message-format is human or json, not `%s`", v), false;
    return true;
  case O_THREADS:
    if (!zp_parse_count(row->name, v, 1, &n)) return false;
    o->threads = (int)n;
    return true;
  case O_DUMP: o->dump = v; return zp_is_pass(v);
  case O_GAP: o->gap_text = v; return zp_parse_share(row->name, v, &o->gap);
  case O_PROFILE_STEPS: return zp_parse_steps(run, row->name, v);
  }
  return false;
}

static bool apply(zp_run_state *run, const option_row *row, const char *v) {
  void *field = (char *)&run->options + row->offset;
  switch (row->way) {
  case WAY_TEXT: *(const char **)field = v; return true;
  case WAY_LIST: zp_push(run->arena, (zp_strings *)field, v); return true;
  case WAY_FLAG: return *(bool *)field = true;
  case WAY_COUNT: return zp_parse_count(row->name, v, row->least, field);
  case WAY_SIZE: return zp_parse_size(row->name, v, field);
  case WAY_SHARE: return zp_parse_share(row->name, v, field);
  case WAY_WAIT: return zp_parse_seconds(row->name, v, field);
  case WAY_OTHER: break;
  }
  return apply_other(run, row, v);
}

/* May an option be given twice? If two different answers were given, one would be lost. Lists and compare's --plan add
 * up; --color is often in an alias. */
static bool may_repeat(const zp_run_state *run, const option_row *row) {
  if (row->way != WAY_OTHER) return row->way == WAY_LIST;
  bool machine = row->other == O_CLUSTER || row->other == O_MACHINE;
  bool side = machine || row->other == O_PLAN || row->other == O_MODEL || row->other == O_GPUS;
  return row->other == O_COLOR || row->other == O_FORMAT || (machine && strcmp(run->command, "plan") == 0) ||
         (side && strcmp(run->command, "compare") == 0);
}

/* The first row that does the same: --ranks is --gpus. */
static int first_alike(const option_row *row) {
  int i = 0;
  while (rows[i].way != row->way || rows[i].offset != row->offset || rows[i].other != row->other) i++;
  return i;
}

static bool once(const zp_run_state *run, const option_row *row, const char *value, const char *given[]) {
  const char **before = &given[first_alike(row)];
  if (*before && strcmp(*before, value) != 0 && !may_repeat(run, row))
    return zp_usage_error("%s %s contradicts the `%s` before it", row->name, value, *before), false;
  *before = value;
  return true;
}

static const option_row *find_row(const char *name, size_t len) {
  for (int i = 0; i < N_ROWS; i++)
    if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0) return &rows[i];
  return NULL;
}

/* "--micro-batch-size=4" -> "micro_batch_size": how such a word would be written in a file. */
static const char *as_key(zp_arena *arena, const char *word) {
  word += strspn(word, "-");
  char *key = zp_strndup(arena, word, strcspn(word, "="));
  for (char *c = key; *c; c++)
    if (*c == '-') *c = '_';
  return key;
}

/* An option of other verbs alone; a decision of the plan, perhaps in another tool's words; else a slip of a letter in
 * an option of this verb. */
static bool unknown_option(zp_run_state *run, const char *word, bool of_others) {
  const char *names[N_ROWS], *note, *key = as_key(run->arena, word);
  int n = 0;
  for (int i = 0; i < N_ROWS; i++)
    if (takes(&rows[i], run->command)) names[n++] = rows[i].name;
  const char *near = zp_closest(word, names, n);
  bool settable = takes(find_row("--set", 5), run->command) && zp_is_setting_key(key, &note);
  const char *here = zp_foreign_option(key);
  size_t len = here ? strcspn(here, " ") : 0;
  const option_row *row = here ? find_row(here, len) : NULL;
  if (row && takes(row, run->command))
    zp_usage_error("unknown option `%s`: here it is `%s`", word, here);
  else if (of_others)
    zp_usage_error("`zplan %s` does not take %s%s", run->command, word,
                   near ? zp_format(run->arena, "; did you mean `%s`?", near) : "");
  else if (takes(find_row("--machine", 9), run->command) && zp_is_machine(run->arena, key))
    zp_usage_error("unknown option `%s`: a machine is named with --machine %s", word, key);
  else if (zp_foreign_word(key))
    zp_usage_error("unknown option `%s`: %s", word, zp_foreign_word(key));
  else if (settable && note)
    zp_usage_error("unknown option `%s`: %s; settings are given as --set KEY=VALUE", word, note);
  else if (settable)
    zp_usage_error("unknown option `%s`: it is a setting, write --set %s=VALUE", word, key);
  else if (near)
    zp_usage_error("unknown option `%s`; did you mean `%s`?", word, near);
  else
    zp_usage_error("unknown option `%s`; see zplan %s --help", word, run->command);
  return false;
}

bool zp_parse_options(zp_run_state *run, int argc, char **argv) {
  zp_options *o = &run->options;
  const char *given[N_ROWS] = {0}; /* the value of every option so far */
  o->steps = -1;
  o->color = -1;
  o->top = -1;
  o->top_p = 1;
  for (int i = 0; i < argc; i++) {
    const char *word = argv[i];
    if (strcmp(word, "--") == 0) {
      for (i++; i < argc; i++) zp_push(run->arena, &o->trainer_args, argv[i]);
      break;
    }
    if (word[0] != '-' || word[1] == '\0') {
      zp_push(run->arena, &o->files, word);
      continue;
    }
    const char *equals = strncmp(word, "--", 2) == 0 ? strchr(word, '=') : NULL;
    const option_row *row = find_row(word, equals ? (size_t)(equals - word) : strlen(word));
    if (!row) return unknown_option(run, word, false);
    if (!takes(row, run->command)) return unknown_option(run, row->name, true);
    if (!row->value && equals) return zp_usage_error("%s takes no value", row->name), false;
    if (row->value && !equals && i + 1 >= argc) return zp_usage_error("%s wants a value", row->name), false;
    const char *value = !row->value ? NULL : equals ? equals + 1 : argv[++i];
    if (value && !*value) return zp_usage_error("%s wants a value, not an empty one", row->name), false;
    if (value && strcmp(row->name, "--set") == 0 && !strpbrk(value, "=<>! {"))
      return zp_usage_error("--set wants KEY=VALUE in one word, such as --set tensor=2, not `%s`", value), false;
    if (value && !once(run, row, value, given)) return false;
    if (!apply(run, row, value)) return false;
  }
  o->load.set = o->set.data;
  o->load.n_set = o->set.len;
  if (o->checkpoint) { /* a word of the trainer */
    zp_push(run->arena, &o->trainer_args, "--checkpoint");
    zp_push(run->arena, &o->trainer_args, o->checkpoint);
  }
  o->load.library_dir = zp_library_dir(run->arena);
  o->load.machine_here = zp_machine_of_file;
  o->load.user = run;
  return true;
}

int zp_option_count(void) { return N_ROWS; }

zp_option zp_option_at(int index) { return (zp_option){rows[index].name, rows[index].value, rows[index].help}; }

/* What stands for a value in an example. */
static const char *example_value(zp_arena *arena, const option_row *row) {
  static const struct {
    const char *value, *example;
  } values[] = {{"N", "8"},
                {"K", "3"},
                {"SIZE", "4GiB"},
                {"SHARE", "1%"},
                {"SECONDS", "60"},
                {"T", "0.8"},
                {"STEP", "100"},
                {"A..B", "10..20"},
                {"FILE", "FILE"},
                {"PROGRAM", "megatron"},
                {"KEY=VALUE", "'tensor<=8'"},
                {"'KEY=VALUE, ...'", "'tensor=8, zero=1'"}};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (strcmp(values[i].value, row->value) == 0) return values[i].example;
  bool range = strncmp(row->value, "N|", 2) == 0;
  return range ? "8" : zp_strndup(arena, row->value, strcspn(row->value, "|"));
}

zp_flag_text zp_option_text(zp_arena *arena, int index) {
  static const char *const types[] = {[WAY_TEXT] = "text",         [WAY_LIST] = "text, several add up",
                                      [WAY_FLAG] = "no value",     [WAY_COUNT] = "whole number",
                                      [WAY_SIZE] = "size",         [WAY_SHARE] = "share",
                                      [WAY_WAIT] = "whole number", [WAY_OTHER] = "value"};
  const option_row *row = &rows[index];
  zp_flag_text text = {.type = types[row->way], .range = ""};
  if (row->way == WAY_OTHER)
    text.type = strchr(row->value, '|') ? "one of these" : strcmp(row->value, "N") == 0 ? "whole number" : "text";
  if (row->way == WAY_COUNT) text.range = zp_format(arena, "%d or more", row->least);
  if (row->way == WAY_SHARE) text.range = "from 0 to below 100%";
  if (row->way == WAY_WAIT) text.range = zp_format(arena, "0 to %d", ZP_MOST_SECONDS);
  text.verb = *row->verbs == '*' ? "plan" : zp_strndup(arena, row->verbs, strcspn(row->verbs, " "));
  text.example = row->value ? zp_format(arena, "%s %s", row->name, example_value(arena, row)) : row->name;
  return text;
}

bool zp_verb_takes(const char *verb, int index) { return takes(&rows[index], verb); }

/* The words before `--`, without options that the verb does not take; empty where there is no file. */
const char *zp_words_for(const zp_run_state *run, const char *verb) {
  zp_buf out = zp_buf_new(run->arena);
  for (int i = 0; i < run->n_words && strcmp(run->words[i], "--") != 0; i++) {
    const char *word = run->words[i];
    size_t name = strcspn(word, "=");
    const option_row *row = word[0] == '-' ? find_row(word, name) : NULL;
    bool two = row && row->value && !word[name];
    if (!row || takes(row, verb)) zp_buf_printf(&out, "%s%s", out.len ? " " : "", zp_quote_shell(run->arena, word));
    if (two && takes(row, verb)) zp_buf_printf(&out, " %s", zp_quote_shell(run->arena, run->words[i + 1]));
    i += two;
  }
  return out.data ? out.data : "";
}

bool zp_flush_diags(zp_run_state *run) {
  if (run->quiet) return zp_diags_errors(run->diags) == 0;
  bool color = zp_screen_of(fileno(zp_stream(stderr)), (zp_color_choice)run->options.color).color;
  if (run->options.message_json)
    zp_diags_print_json(run->diags, zp_stream(stderr));
  else
    zp_diags_print(run->diags, zp_stream(stderr), color);
  return zp_diags_errors(run->diags) == 0;
}
