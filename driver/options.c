/* SPDX-License-Identifier: Apache-2.0 */
/* Command-line options, one table for all subcommands. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/software.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What most options do with their value; what the others do stands in apply_other. */
typedef enum way { WAY_TEXT, WAY_LIST, WAY_FLAG, WAY_COUNT, WAY_SIZE, WAY_SHARE, WAY_WAIT, WAY_OTHER } way;
typedef enum other_option {
  O_GPUS,
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
  const char *verbs; /* that take it; "*" all */
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
    {"--gpus", "N|auto|LOW..HIGH", "plan build run explain bench export compare new",
     "devices to use (default: the cluster block; build, run: 1 rank); auto: the fewest that fit; a range: a table",
     BY(O_GPUS)},
    {"--ranks", "N", "plan build run explain bench export compare sample eval",
     "the same as --gpus; sample, eval: ranks that share every layer (tensor ranks)", BY(O_GPUS)},
    {"--nodes", "N", "plan build run explain bench export compare", "nodes of the cluster", COUNT(load.nodes, 1)},
    {"--cluster", "NAME", "plan build run check explain bench export compare", "which cluster block of the file",
     TEXT(load.cluster)},
    {"--model", "NAME", "plan build run check explain bench export compare new",
     "which model of the file; without a file one of `zplan models` (compare: several)", BY(O_MODEL)},
    {"--machine", "NAME", "plan build run explain bench export compare new",
     "a machine of `zplan machines` instead of the file's cluster block, or `this` for the one here", TEXT(machine)},
    {"--plan", "NAME", "plan build run check explain bench export compare",
     "which plan block of the file; compare takes several", BY(O_PLAN)},
    {"--set", "KEY=VALUE", "plan build run check explain bench export compare",
     "instead of the file's plan limit or train setting: 'tensor<=8', steps=50, model.layers=3; several add up",
     LIST(set)},
    {"-o", "FILE", "plan build run verify data calibrate bench export import sample eval new",
     "where the result goes (build, run, bench, sample, eval: a folder for the trainer)", TEXT(output)},
    {"--top", "K", "plan bench", "search for the K next best plans, too", BY(O_TOP)},
    {"--json", NULL, "*", "one JSON document on standard output, of errors, too", FLAG(json)},
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
     "keep no state where the file names no folder (default: the last one, alongside the trainer's folder)",
     FLAG(no_checkpoint)},
    {"--force", NULL, "plan build run verify report data calibrate export import",
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
    {"--color", "auto|always|never", "*", "colours of text; auto: on a terminal, but NO_COLOR and TERM=dumb are obeyed",
     BY(O_COLOR)},
    {"--progress", NULL, "plan build run report explain bench compare diff export",
     "say on stderr how far long work is, also where that is no terminal: a line every 10 s", FLAG(progress)},
    {"--verbose", NULL, "plan report explain",
     "all that is known of the plan: stages, other plans, what was rejected, what figures rest on", FLAG(verbose)},
    {"--message-format", "human|json", "*", "of diagnostics", BY(O_FORMAT)},
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
    {"--gap", "SHARE", "plan build run explain bench export compare",
     "stop searching when no plan is faster by more than this: 1%, 0.01 (default 0)", BY(O_GAP)},
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
    {"-t", "SECONDS", "calibrate", "time to measure: 10 to 600 (default 30)", COUNT(seconds, 1)},
};
enum { N_ROWS = sizeof rows / sizeof *rows, MOST_TOP = 1000, MOST_SECONDS = 1000000 };

static char last_usage[512];

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
  if (strcmp(row->verbs, "*") == 0) return true;
  size_t n = strlen(verb);
  for (const char *p = row->verbs; (p = strstr(p, verb)) != NULL; p += n)
    if ((p == row->verbs || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) return true;
  return false;
}

/* What people write in the place of a whole number. */
static const char *whole_number_help(const char *option, const char *text) {
  bool gpus = strcmp(option, "--gpus") == 0 || strcmp(option, "--ranks") == 0;
  const char *rest = text + strspn(text, "0123456789");
  if (rest == text || !*rest) return "";
  if (gpus && *rest == '-') return ": a range is LOW..HIGH";
  if (gpus && (*rest == 'x' || *rest == '*')) return ": it counts the devices of all nodes";
  return strpbrk(rest, "kKMGTeE_,.") == rest ? ": write it in digits" : "";
}

/* A number that is too large for 64 bits is the largest one to strtoll, and above `high` too. */
static bool parse_within(const char *option, const char *text, int64_t low, int64_t high, int64_t *out) {
  char *end;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || value < low)
    return zp_usage_error("%s wants a whole number of at least %lld, not `%s`%s", option, (long long)low, text,
                          whole_number_help(option, text)),
           false;
  if (value > high) return zp_usage_error("%s wants at most %lld, not `%s`", option, (long long)high, text), false;
  *out = value;
  return true;
}

static bool parse_count(const char *option, const char *text, int64_t low, int64_t *out) {
  return parse_within(option, text, low, INT32_MAX, out);
}

/* Checked; the trainer reads it again. */
static bool parse_seconds(const char *option, const char *text, const char **out) {
  int64_t seconds;
  if (!parse_within(option, text, 0, MOST_SECONDS, &seconds)) return false;
  *out = text;
  return true;
}

/* "8..64" */
static bool parse_range(const char *option, const char *text, int *low, int *high) {
  char *end, *begin = strstr(text, "..") + 2;
  long long first = strtoll(text, &end, 10);
  bool sound = end != text && end == begin - 2;
  long long last = strtoll(begin, &end, 10);
  if (!sound || end == begin || *end)
    return zp_usage_error("%s %s: a range is LOW..HIGH, for example 8..64", option, text), false;
  if (first < 1) return zp_usage_error("%s %s: the range must begin at 1 or above", option, text), false;
  if (last <= first || last > ZP_MOST_RANKS)
    return zp_usage_error("%s %s: the range must ascend and end at %d or below", option, text, ZP_MOST_RANKS), false;
  *low = (int)first;
  *high = (int)last;
  return true;
}

/* N, auto, or LOW..HIGH. The last two ask about several counts: only `plan` answers them. */
static bool parse_devices(zp_run_state *run, const char *option, const char *text) {
  zp_options *o = &run->options;
  bool range = strstr(text, "..") != NULL;
  o->ranks_given = true;
  o->gpus_auto = strcmp(text, "auto") == 0;
  o->gpus_low = o->gpus_high = 0;
  o->load.gpus = 0;
  if (!o->gpus_auto && !range) return parse_within(option, text, 1, ZP_MOST_RANKS, &o->load.gpus);
  if (strcmp(run->command, "plan") != 0)
    return zp_usage_error("%s %s: `zplan %s` wants one number", option, text, run->command), false;
  return o->gpus_auto || parse_range(option, text, &o->gpus_low, &o->gpus_high);
}

/* "10..20": kept as it is for the trainer. */
static bool parse_steps(zp_run_state *run, const char *option, const char *text) {
  char *end, *begin = strstr(text, "..");
  long long first = strtoll(text, &end, 10), last = begin ? strtoll(begin + 2, NULL, 10) : 0;
  bool digits = begin && strspn(text, "0123456789") == (size_t)(begin - text) && begin[2] != '\0' &&
                strspn(begin + 2, "0123456789") == strlen(begin + 2);
  if (!digits || end != begin || first < 1 || last < first)
    return zp_usage_error("%s wants two steps such as 10..20, not `%s`", option, text), false;
  run->options.profile_steps = text;
  return true;
}

/* 4GiB, 512MB, 1000 (bytes need a unit: a bare number is refused as in the language). */
static bool parse_size(const char *option, const char *text, int64_t *out) {
  static const struct {
    const char *unit;
    double bytes;
  } units[] = {{"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12},
               {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
               {"B", 1}};
  char *end;
  double number = strtod(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && strcmp(end, units[i].unit) == 0 && number > 0 && number * units[i].bytes < 9e18) {
      *out = (int64_t)(number * units[i].bytes);
      return true;
    }
  static const char letters[] = "kKMGT";
  size_t n = strspn(end, letters);
  bool letter = end != text && number > 0 && n == 1 && (!end[1] || strcmp(end + 1, "i") == 0);
  if (letter)
    zp_usage_error("%s %s: write %.*s%cB (powers of 1000) or %.*s%ciB (of 1024)", option, text, (int)(end - text), text,
                   *end, (int)(end - text), text, *end == 'k' ? 'K' : *end);
  else
    zp_usage_error("%s wants a size with a unit such as 4GiB or 512MB, not `%s`", option, text);
  return false;
}

/* 1: always, 0: never, -1: auto. */
static bool parse_color(const char *text, int *out) {
  *out = strcmp(text, "always") == 0 ? 1 : strcmp(text, "never") == 0 ? 0 : -1;
  if (*out >= 0 || strcmp(text, "auto") == 0) return true;
  return zp_usage_error("--color is auto, always or never, not `%s`", text), false;
}

/* 1%, or 0.01. */
static bool parse_share(const char *option, const char *text, double *out) {
  char *end;
  double number = strtod(text, &end);
  bool percent = end != text && strcmp(end, "%") == 0;
  if (percent) number /= 100;
  if (end != text && (percent || !*end) && number >= 0 && number < 1) {
    *out = number;
    return true;
  }
  zp_usage_error("%s wants a share from 0 to below 100%%, such as 1%% or 0.01, not `%s`", option, text);
  return false;
}

static bool parse_temperature(const char *option, const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (end != text && !*end && *out > 0 && *out <= 1000) return true;
  return zp_usage_error("%s wants a number above 0 and up to 1000, not `%s`", option, text), false;
}

static bool is_dtype(const char *name) {
  static const char *const names[] = {"f32", "f64", "bf16", "f16"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return zp_usage_error("--dtype is f32, f64, bf16 or f16, not `%s`", name), false;
}

static bool is_pass(const char *name) {
  static const char *const passes[] = {"graph", "shard", "differentiate", "lower", "moves"};
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    if (strcmp(passes[i], name) == 0) return true;
  return zp_usage_error("--dump-after is graph, shard, differentiate, lower or moves, not `%s`", name), false;
}

static bool is_program(zp_run_state *run, const char *word) {
  zp_trainer trainer;
  const zp_software *software;
  if (zp_software_find(word, &trainer, &software)) return true;
  zp_strings words = zp_software_words(run->arena);
  zp_buf list = zp_buf_new(run->arena);
  for (int i = 0; i < words.len; i++) zp_buf_printf(&list, "%s%s", i ? ", " : "", words.data[i]);
  return zp_usage_error("--for names a program, not `%s`; there are %s", word, list.data), false;
}

static bool apply_other(zp_run_state *run, const option_row *row, const char *v) {
  zp_options *o = &run->options;
  int64_t n = 0;
  switch (row->other) {
  case O_GPUS: return parse_devices(run, row->name, v);
  case O_PLAN:
    o->load.plan = v;
    zp_push(run->arena, &o->plan_names, v);
    return true;
  case O_MODEL:
    o->load.model = v;
    zp_push(run->arena, &o->models, v);
    return true;
  case O_FOR: o->program = v; return is_program(run, v);
  case O_TOP:
    if (!parse_within(row->name, v, 0, MOST_TOP, &n)) return false;
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
  case O_TEMPERATURE: return parse_temperature(row->name, v, &o->temperature);
  case O_DTYPE: o->dtype = v; return is_dtype(v);
  case O_RESUME_FROM:
    o->resume = true;
    if (!parse_within(row->name, v, 0, INT64_MAX - 1, &o->resume_from)) return false;
    return o->resume_from++, true;
  case O_COLOR: return parse_color(v, &o->color);
  case O_FORMAT:
    o->message_json = strcmp(v, "json") == 0;
    if (!o->message_json && strcmp(v, "human") != 0)
      return zp_usage_error("--message-format is human or json, not `%s`", v), false;
    return true;
  case O_THREADS:
    if (!parse_count(row->name, v, 1, &n)) return false;
    o->threads = (int)n;
    return true;
  case O_DUMP: o->dump = v; return is_pass(v);
  case O_GAP: o->gap_text = v; return parse_share(row->name, v, &o->gap);
  case O_PROFILE_STEPS: return parse_steps(run, row->name, v);
  }
  return false;
}

static bool apply(zp_run_state *run, const option_row *row, const char *v) {
  void *field = (char *)&run->options + row->offset;
  switch (row->way) {
  case WAY_TEXT: *(const char **)field = v; return true;
  case WAY_LIST: zp_push(run->arena, (zp_strings *)field, v); return true;
  case WAY_FLAG: return *(bool *)field = true;
  case WAY_COUNT: return parse_count(row->name, v, row->least, field);
  case WAY_SIZE: return parse_size(row->name, v, field);
  case WAY_SHARE: return parse_share(row->name, v, field);
  case WAY_WAIT: return parse_seconds(row->name, v, field);
  case WAY_OTHER: break;
  }
  return apply_other(run, row, v);
}

/* May an option be given twice? If two different answers were given, one would be lost. Lists and compare's --plan add
 * up; --color is often in an alias. */
static bool may_repeat(const zp_run_state *run, const option_row *row) {
  if (row->way != WAY_OTHER) return row->way == WAY_LIST;
  return row->other == O_COLOR || row->other == O_FORMAT ||
         ((row->other == O_PLAN || row->other == O_MODEL) && strcmp(run->command, "compare") == 0);
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
    text.type = strchr(row->value, '|') ? "one of these" : *row->value == 'N' ? "whole number" : "text";
  if (row->way == WAY_COUNT) text.range = zp_format(arena, "%d or more", row->least);
  if (row->way == WAY_SHARE) text.range = "from 0 to below 100%";
  if (row->way == WAY_WAIT) text.range = zp_format(arena, "0 to %d", MOST_SECONDS);
  text.verb = strcmp(row->verbs, "*") == 0 ? "plan" : zp_strndup(arena, row->verbs, strcspn(row->verbs, " "));
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
  bool color = zp_screen_of(STDERR_FILENO, (zp_color_choice)run->options.color).color;
  if (run->options.message_json)
    zp_diags_print_json(run->diags, stderr);
  else
    zp_diags_print(run->diags, stderr, color);
  return zp_diags_errors(run->diags) == 0;
}
