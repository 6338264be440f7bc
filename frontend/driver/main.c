/* The zplan command: finds the verb and hands over. `zplan FILE ...` without a verb plans. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct verb {
  const char *name;
  int (*run)(zp_run_state *run);
  const char *arguments, *does;
} verb;

static const verb verbs[] = {
    {"plan", zp_cmd_plan,
     "FILE.dz [--gpus N|auto|LOW..HIGH] [-o PLAN.json] [--top K] [--sensitivity] [--pareto] [--json]",
     "search the best plan (the default verb)"},
    {"check", zp_cmd_check, "FILE.dz [--json]", "shapes, parameter count, lints"},
    {"build", zp_cmd_build, "FILE.dz|PLAN.json [--ranks N] [-o DIR]",
     "generate and compile the trainer, print its path"},
    {"run", zp_cmd_run, "FILE.dz|PLAN.json [--ranks N] [--steps N] [--resume] [--log F.jsonl]",
     "build if stale, then train"},
    {"report", zp_cmd_report, "PLAN.json [--log F.jsonl] [--html F] [--trace F]",
     "tables, HTML and Chrome trace of a plan"},
    {"explain", zp_cmd_explain, "CODE | FILE.dz|PLAN.json [--why-not 'tensor=8, zero=1']",
     "an error code, or why a plan is best"},
    {"verify", zp_cmd_verify, "PLAN.json", "prove a plan file, independently of the search"},
    {"validate", zp_cmd_validate, "RUNS.csv... [--json]", "predict a table of measured runs, print the errors"},
    {"calibrate", zp_cmd_calibrate, "[-o FILE.json] [-t SECONDS]", "measure this machine for --calibration"},
    {"bench", zp_cmd_bench, "FILE.dz [--ranks N] [--top K] [--steps S] [--json]",
     "run the best plans, predicted beside measured"},
    {"data", zp_cmd_data, "FILES... -o TOKENS.bin", "text files to byte tokens"},
    {"fmt", zp_cmd_fmt, "FILE.dz... [--check]", "canonical layout"},
    {"doctor", zp_cmd_doctor, "", "what was found on this machine"},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const char *const later[] = {"import", "export", "completion", "compare", "diff"};

static void print_help(FILE *out) {
  fprintf(out, "zplan: plans, generates and runs the parallel training of large models\n\n");
  for (int i = 0; i < N_VERBS; i++)
    fprintf(out, "  zplan %-9s %s\n                  %s\n", verbs[i].name, verbs[i].arguments, verbs[i].does);
  fprintf(
      out,
      "\nCommon options:\n"
      "  --gpus N, --ranks N    devices to use (default: the cluster block; build and run: 1 rank)\n"
      "  --gpus auto            plan only: the fewest devices that fit, and the next sizes\n"
      "  --gpus LOW..HIGH       plan only: a table of sizes; with --pareto the front over all of them\n"
      "  --nodes N              nodes of the cluster\n"
      "  --cluster/--model/--plan NAME   which block of the file\n"
      "  --set KEY=VALUE        override a plan constraint or a train setting (tensor<=8, steps=50, model.layers=3)\n"
      "  --device-memory SIZE   budget of one device, e.g. 4GiB\n"
      "  --calibration FILE     measurements of `zplan calibrate` for CPU clusters (also $ZPLAN_CALIBRATION)\n"
      "  --gap SHARE            stop searching when no plan is faster by more than this (1%%, 0.01; default 0)\n"
      "  --sensitivity          plan only: the best plan on a machine with one rate changed\n"
      "  --pareto               plan only: step time against memory, devices and price\n"
      "  --color auto|always|never, --message-format human|json\n"
      "  zplan --version, zplan --help\n"
      "\nExit status: 0 done, 1 error, 2 usage, 3 no feasible plan, 4 fmt found a difference, 5 the trainer failed\n");
}

static int print_version(void) {
  printf("zplan %s\n", ZPLAN_VERSION);
  return ZP_EXIT_OK;
}

static const verb *find_verb(const char *word) {
  for (int i = 0; i < N_VERBS; i++)
    if (strcmp(verbs[i].name, word) == 0) return &verbs[i];
  return NULL;
}

/* A first word that is neither a verb nor a file. */
static int unknown_verb(const char *word) {
  const char *names[N_VERBS];
  for (int i = 0; i < N_VERBS; i++) names[i] = verbs[i].name;
  for (size_t i = 0; i < sizeof later / sizeof *later; i++)
    if (strcmp(later[i], word) == 0) return zp_usage_error("`zplan %s` is not built in this version", word);
  const char *near = zp_closest(word, names, N_VERBS);
  if (near) return zp_usage_error("unknown command `%s`; did you mean `%s`?", word, near);
  return zp_usage_error("`%s` is neither a command nor a .dz file; see zplan --help", word);
}

static bool is_file_word(const char *word) {
  size_t n = strlen(word);
  return word[0] == '-' || (n > 3 && strcmp(word + n - 3, ".dz") == 0) || strchr(word, '/') || strchr(word, '.');
}

static bool asks_for_help(int argc, char **argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  return false;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    print_help(stderr);
    return ZP_EXIT_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    print_help(stdout);
    return ZP_EXIT_OK;
  }
  if (strcmp(argv[1], "--version") == 0) return print_version();
  const verb *v = find_verb(argv[1]);
  int first = v ? 2 : 1;
  if (!v && !is_file_word(argv[1])) return unknown_verb(argv[1]);
  if (!v) v = &verbs[0];
  if (asks_for_help(argc - first, argv + first)) {
    print_help(stdout);
    return ZP_EXIT_OK;
  }
  zp_run_state run = {.arena = zp_arena_new("command"), .command = v->name};
  run.diags = zp_diags_new(run.arena);
  int status = ZP_EXIT_USAGE;
  if (zp_parse_options(&run, argc - first, argv + first)) status = v->run(&run);
  zp_arena_free(run.arena);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "zplan: cannot write to standard output\n");
    if (status == ZP_EXIT_OK) status = ZP_EXIT_ERROR;
  }
  return status;
}
