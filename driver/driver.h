/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the zplan command: options, what all subcommands share, and one function per subcommand.
 *
 * Data goes to stdout, progress and diagnostics to stderr. */
#ifndef ZPLAN_DRIVER_H
#define ZPLAN_DRIVER_H

#include <zplan/abilities.h>
#include <zplan/answers.h>
#include <zplan/calibration.h>
#include <zplan/page.h>
#include <zplan/proof.h>
#include <zplan/quote.h>
#include <zplan/report.h>
#include <zplan/sema.h>
#include <zplan/status_line.h>
#include <zplan/table.h>
#include <zplan/tokenizer.h>
#include <zplan/trainer.h>

/* Exit statuses; README.md has the table for users. Those of a trainer are the same numbers (rt.h). 6 is kept for runs
 * that miss their prediction. 128 + N: a rank died of signal N, or (130, 143) the command was interrupted. */
enum {
  ZP_EXIT_OK,
  ZP_EXIT_ERROR,             /* in the input or the work; the trainer refused its data, checkpoint or log */
  ZP_EXIT_USAGE,             /* wrong words on the command line, the trainer's included */
  ZP_EXIT_INFEASIBLE,        /* no plan fits */
  ZP_EXIT_DIFFERENT,         /* `fmt --check` or `diff` found a difference */
  ZP_EXIT_TRAINER,           /* the trainer failed: not finite, communication, disk, not as planned */
  ZP_EXIT_BUG = 70,          /* of ours: a plan that is not sound */
  ZP_EXIT_MEMORY = 8,        /* the trainer ran out of memory */
  ZP_EXIT_INTERRUPTED = 130, /* a search ended early; the best plan so far was shown */
  ZP_EXIT_NO_TOOL = 127,     /* mpirun or the trainer cannot be started; the shells' number for that */
};

typedef struct zp_options {
  zp_strings files;            /* positional arguments */
  zp_load_options load;        /* --gpus/--ranks --nodes --cluster --model --plan --set */
  zp_strings set, plan_names;  /* --set; every --plan (load.plan: the last) */
  zp_strings models;           /* every --model (load.model: the last) */
  const char *machine;         /* --machine; NULL: the file's cluster */
  zp_strings machines;         /* every --machine (machine: the last) */
  zp_strings clusters;         /* every --cluster (load.cluster: the last) */
  zp_strings prices;           /* every --price */
  zp_strings counts;           /* every --gpus */
  const char *machine_cluster; /* how its block is called */
  bool json, resume, accept_changes, overwrite, check, check_memory, message_json;
  int color;              /* -1 auto, 0, 1 */
  int top;                /* -1: not given */
  int64_t steps;          /* -1: the file's */
  const char *checkpoint; /* run: --checkpoint; NULL: the file's folder */
  bool no_checkpoint, force, skip_bad;
  int64_t resume_from;   /* with resume: 1 + a checkpoint's step; 0: the last one */
  int64_t device_memory; /* 0: the cluster's */
  int threads;
  const char *wait_warn, *wait_end, *grace; /* seconds, checked; NULL: the trainer's */
  const char *target, *arch;                /* cpu, cuda; sm_NN, host; NULL: the cluster's and its device's */
  const char *tokenizer, *eod, *gpu;
  zp_strings prompts; /* sample: --prompt */
  int64_t tokens, top_k, seed;
  int64_t length, stride;     /* data: tokens of a sample; squad: from window to window; 0: not given */
  int64_t copies;             /* data pairs: how often the texts are read; 0: once */
  bool unmasked;              /* data pairs: masks are left to the trainer */
  const char *field;          /* data jsonl, table: the column of texts; NULL: none */
  zp_strings numbers, labels; /* data jsonl, table: NAME=COLUMN,... */
  int64_t classes;            /* data jsonl, table: labels are below; 0: not given */
  bool pack;                  /* data jsonl, table: whole texts share samples */
  bool documents;             /* which do not see each other */
  double temperature, top_p;  /* 0: greedy; 1: all */
  const char *data;           /* eval */
  bool no_cache;              /* sample */
  bool ema;                   /* sample, eval, export hf: the average of the weights */
  const char *like, *dtype;   /* export hf: whose config.json; f32, f64, bf16, f16; NULL: not said */
  int64_t shard_bytes;        /* export hf: most of one file; 0: not said */
  const char *init;           /* folder of weights; NULL: the train block's, or none */
  const char *adapters;       /* folder of PEFT; likewise */
  const char *output, *log, *html, *front, *trace, *hostfile, *why_not, *dump;
  const char *reference;   /* explain: a page of the reference; NULL: not given */
  bool gpus_auto;          /* --gpus auto */
  int gpus_low, gpus_high; /* --gpus LOW..HIGH; 0: not given */
  bool sensitivity, pareto;
  const char *program;     /* --for; NULL: the plan file's, else zplan */
  const char *calibration; /* file, `kept`, `none`; NULL: $ZPLAN_CALIBRATION, or the command's default */
  const char *gap_text;    /* --gap as given; NULL: the plan block's */
  double gap;              /* the same as a share */
  int64_t search_memory;   /* --search-memory in bytes; 0: the plan block's */
  int64_t seconds;         /* calibrate -t; 0: the default */
  bool profile, sync;
  bool verbose, progress;
  bool once;                            /* watch: one look */
  const char *tensorboard, *prometheus; /* watch: a folder, a file; NULL: none */
  const char *profile_steps;            /* "A..B"; NULL: not given */
  zp_strings trainer_args;              /* after -- */
} zp_options;

/* One run of the command. */
typedef struct zp_run_state {
  zp_arena *arena;
  zp_diags *diags;
  zp_options options;
  const char *command;
  char *const *words; /* of the command line, after the verb */
  int n_words;
  zp_json *result;             /* with --json: what the verb made, owned; NULL: nothing */
  bool interrupted;            /* a search was asked to end: with a plan or without, the status is that of SIGINT */
  bool unsound;                /* a plan was not proven: whatever the command returns, its status is ZP_EXIT_BUG */
  const char *default_program; /* that plans are for without --for; NULL: zplan */
  zp_strings narrowed;         /* keys of the plan block that the program limits further */
  const char *weights;         /* map of the weights to start from; NULL: none */
  const char *checkpoints;     /* folder for a run whose file names none; NULL: it names one, or wants none */
  const char *weights_path;    /* its file, where the trainer must be told; NULL: it need not */
  bool machine_said;           /* which machine a file without a cluster is planned for was printed */
  bool quiet;                  /* diagnostics are shown by somebody else, who reads run->diags */
  bool lacking_is_fine;        /* limits that leave nothing which the program has are reported by somebody else */
  const char *given_path;      /* of a host: a file that is read from given_text instead; NULL: none */
  const char *given_text;
} zp_run_state;

/* ---- options.c ---- */
/* Parses argv after the verb. false after printing what is wrong (exit status 2). */
bool zp_parse_options(zp_run_state *run, int argc, char **argv);

/* The words of this command line that another verb takes, for a shell. */
const char *zp_words_for(const zp_run_state *run, const char *verb);

/* ---- outputs.c ---- */
/* Whether no result would be written over an input or another result; false after saying which (exit status 2). */
bool zp_results_are_apart(const zp_run_state *run);
/* `text` with a last line that says that zplan wrote it; comment: what lines of comments begin with, "#" or "<!--". */
const char *zp_mark_output(zp_run_state *run, const char *comment, const char *text);
/* May `text` (NULL: not known yet) take the place of what stands at `path`? false after saying that a person has edited
 * it, or that it is something else. */
bool zp_may_replace(zp_run_state *run, const char *path, const char *text);
/* Writes a page or a trace, and prints its name; false after saying why not. */
bool zp_write_report(zp_run_state *run, const char *path, const char *text);
/* Options for help and completion. */
typedef struct zp_option {
  const char *name, *value, *help; /* value: what follows it, NULL for nothing */
} zp_option;
int zp_option_count(void);
/* What its value is, and a use of it with the first verb that takes it: `plan`, `FILE.dz --gpus 8`. Arena. */
typedef struct zp_flag_text {
  const char *type, *range; /* range: empty, no limit but the type */
  const char *verb, *example;
} zp_flag_text;
zp_flag_text zp_option_text(zp_arena *arena, int index);
zp_option zp_option_at(int index);
bool zp_verb_takes(const char *verb, int index);
/* The first positional argument, which names one of `words`, and takes it off; its index. -1 after saying what is wrong
 * with it (exit status 2). */
int zp_take_format(zp_run_state *run, const char *const *words, int count);
/* -o: prints `text` there, or to standard output. comment: what its lines of comments begin with; NULL: it has none. */
bool zp_put_output(zp_run_state *run, const char *text, const char *comment);
/* Says on stderr why there is no plan, then, after searches for it, what would fit; the latter. */
zp_relaxations zp_print_no_plan(zp_run_state *run, const zp_plan *plan);
/* A plan file, where --json and -o ask for it. Takes the document; exit status. */
int zp_write_plan(zp_run_state *run, zp_json *json);
/* Prints the diagnostics gathered so far to stderr in the chosen form; true when there was no error. */
bool zp_flush_diags(zp_run_state *run);
/* "zplan: ..." on stderr; returns ZP_EXIT_USAGE. */
int zp_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What it said last in this thread, without "zplan: "; NULL: nothing, or it was forgotten. */
const char *zp_last_usage_error(void);
void zp_forget_usage_error(void);
/* foreign_words.c. What other tools call a verb, an option ("num_gpus"): the word here, "--gpus N"; NULL: not known. */
const char *zp_foreign_verb(const char *word);
const char *zp_near_foreign_verb(const char *word); /* here, of such a verb that is spelt nearly so */
const char *zp_foreign_option(const char *key);
/* vocabulary.c. Refuses a tokenizer of more tokens than the model has, and notes one of many less. */
bool zp_tokenizer_fits(zp_run_state *run, const char *path, const zp_tokenizer *tokenizer, const zp_model *model);

/* ---- backend/measure.c ---- */
/* Processes that ran in the last minute; 0: not known. Are they so many that measurements suffer? */
double zp_machine_load(void);
bool zp_is_busy(double load);
/* Says so on stderr when other work keeps the processors busy: what is measured now is too slow. */
void zp_warn_busy(void);
/* Starts a measuring program (argv, ends with NULL) and gathers the rows that it prints. Its exit status, 128 + N when
 * signal N ended it; no rows are kept unless it is 0. A signal that interrupts it ends this process, too; it is ended
 * when it takes much longer than `seconds`. */
int zp_run_measuring(zp_arena *arena, const char *const *argv, double seconds, zp_calibration *c);
/* This machine and day, without rows. */
zp_calibration zp_no_measurements(zp_arena *arena);
typedef enum zp_measuring {
  ZP_MEASURED_ALL,
  ZP_MEASURED_NO_MPI,
  ZP_MEASURED_NO_LINKS,
  ZP_MEASURED_NOTHING
} zp_measuring;
/* Measures kernels and messages for about so long, and the disk of a folder (NULL: none). NO_MPI: there is none; the
 * last two: a program failed, which was reported and printed. */
zp_measuring zp_measure_cores(zp_run_state *run, double seconds, const char *folder, zp_calibration *c);
void zp_measure_gpu(zp_run_state *run, double seconds, zp_calibration *c);
/* ---- calibration.c ---- */
/* Rates by --calibration or $ZPLAN_CALIBRATION (a file, `kept`, `none`), or those that the plan file carries. plan:
 * NULL for a .dz file. false after saying why not. */
bool zp_calibrate_by_word(zp_run_state *run, zp_spec *spec, const zp_json *plan);
/* Says that `what` cannot be used, and why; false. */
bool zp_cannot_calibrate(zp_run_state *run, const char *what, const char *error);
/* run and bench without words that name other rates. */
bool zp_wants_measured_rates(const zp_run_state *run, const zp_spec *spec);
/* ---- backend/kept_calibration.c ---- */
/* The kept rates of this machine. false after saying why not. */
bool zp_use_kept_calibration(zp_run_state *run, zp_spec *spec);
/* run and bench of a .dz file without such words: rates of this machine, kept or measured and kept, for a CPU cluster.
 * What cannot be measured stays the library's; false where no trainer can be generated. */
bool zp_calibrate_here(zp_run_state *run, zp_spec *spec);

/* ---- places.c: the folder of the running binary, or of libzplan, and the folders that belong to it. Arena. ---- */
const char *zp_program_dir(zp_arena *arena);
const char *zp_library_dir(zp_arena *arena);
zp_toolchain zp_find_toolchain(zp_arena *arena);
/* A program in $PATH; NULL: it is not there. */
const char *zp_find_tool(zp_arena *arena, const char *tool);

/* ---- version.c ---- */
const char *zp_version(void); /* "0.2.0" */
/* "zplan 0.2.0 commit f3be6841d2c7". Arena. */
const char *zp_version_line(zp_arena *arena);
/* That line and the libraries that zplan was built with, on stdout. */
void zp_print_version(zp_arena *arena);
/* ---- doctor.c ---- */
typedef struct zp_finding {
  const char *what, *found, *needed_for; /* found NULL: it is not here */
} zp_finding;
typedef ZP_VEC(zp_finding) zp_findings;
typedef struct zp_purpose {
  const char *name, *missing, *remedy; /* missing NULL: ready */
} zp_purpose;
/* What `zplan doctor` found; arena is set. */
typedef struct zp_doctor {
  zp_arena *arena;
  const char *version;
  zp_findings built_with, found;
  zp_strings warnings;
  ZP_VEC(zp_purpose) purposes;
} zp_doctor;
void zp_doctor_row(zp_doctor *doctor, const char *what, const char *found, const char *needed_for);
void zp_doctor_purpose(zp_doctor *doctor, const char *name, const char *missing, const char *remedy);
void zp_show_doctor(zp_run_state *run, const zp_doctor *doctor);
void zp_doctor_begin(zp_doctor *doctor);   /* version.c: the version, and what zplan was built with */
void zp_doctor_machine(zp_doctor *doctor); /* version.c: cores and memory */
/* ---- version.c ---- */
/* Are there verbs that generate, run and measure trainers (backend/), or does plan_only/ say that there are none? */
extern const bool zp_has_backend;

/* ---- verbs.c ---- */
typedef struct zp_verb {
  const char *name;
  int (*run)(zp_run_state *run); /* NULL: this is libzplan, which does not have it */
  const char *arguments, *does;
  bool has_document; /* --json prints one of its own; else envelope.c's */
} zp_verb;
int zp_verb_count(void);
const zp_verb *zp_verb_at(int index);
/* NULL when there is none of that name. */
const zp_verb *zp_find_verb(const char *name);
/* What the numbers mean that the command ends with. */
extern const char zp_exit_statuses[];

/* ---- carry_out.c ---- */
/* Parses run->words, runs the verb; the exit status. */
int zp_carry_out(zp_run_state *run, const zp_verb *verb);

/* ---- reference.c ---- */
/* What a key, an operation, a verb or a flag (with or without dashes) is. NULL: there is no such word. Arena. */
const char *zp_explain_word(zp_arena *arena, const char *word);
zp_strings zp_explain_words(zp_arena *arena);
/* A page of the reference on stdout; exit status. */
int zp_print_reference(zp_run_state *run, const char *page);

/* ---- envelope.c: --json ---- */
bool zp_asks_for_json(int argc, char *const *argv);
/* Standard output is kept until the end, which prints the one document. false: it cannot be. */
bool zp_envelope_begin(const zp_verb *verb);
void zp_envelope_end(zp_run_state *run, const zp_verb *verb, int status);
/* The one document: text is what the verb printed. Arena, or text. */
const char *zp_envelope_text(zp_run_state *run, const zp_verb *verb, int status, const char *text);
/* What was reported, wrong words included. Owned by the caller. */
zp_json *zp_envelope_messages(zp_run_state *run);
/* What the verb made. Nothing without --json. */
void zp_result_text(zp_run_state *run, const char *key, const char *value);
/* What the verb made, as an object that is filled. Requires --json. */
zp_json *zp_result_object(zp_run_state *run);

/* ---- settings.c ---- */
/* options.set becomes `earlier` without what `later` has too, then `later`. */
void zp_lay_settings_over(zp_run_state *run, const zp_strings *earlier, const zp_strings *later);
/* "tensor=8, zero in [1, 2]", cut at commas outside of brackets, laid over options.set as wishes. false: there are
 * none. */
bool zp_add_wishes(zp_run_state *run, const char *text);

/* ---- proof.c ---- */
/* Is the plan sound? Otherwise says what is not, and sets run->unsound. */
bool zp_prove_plan(zp_run_state *run, const zp_plan *plan);
/* Is the plan that the decisions of a plan file give sound? Decisions that break a rule are the file's, and are
 * reported; otherwise as zp_prove_plan. */
bool zp_prove_plan_file(zp_run_state *run, const char *path, const zp_plan *plan);
/* Takes alternatives that are not sound out of the plan, and says so. */
void zp_prove_alternatives(zp_run_state *run, zp_plan *plan);
/* ---- program.c: the program that a plan is for ---- */
/* Sets what the cluster runs by --for, the plan file's word or the default, and limits the plan block to what it has.
 * false after saying what does not go together. */
bool zp_choose_program(zp_run_state *run, zp_spec *spec, bool from_plan);

/* ---- load.c ---- */
/* The spec of options.files[0], a .dz file or the sources inside a plan file. *json: the parsed plan file or NULL
 * (owned by the caller). NULL after printing diagnostics. */
zp_spec *zp_load_input(zp_run_state *run, zp_json **json);
/* Ranks that a plan of this spec is for. fallback: when neither --ranks nor the file's plan says (0: the whole
 * cluster). */
int zp_rank_count(const zp_run_state *run, const zp_spec *spec, int fallback);
/* The plan of a file: searched for a .dz, rebuilt from its decisions for a plan file. NULL after printing diagnostics;
 * plan->feasible may be false. */
zp_plan *zp_obtain_plan(zp_run_state *run, int fallback_ranks);
/* Also gives the plan file that it was rebuilt from, owned by the caller; NULL: it was searched, or there is none. */
zp_plan *zp_obtain_plan_and_file(zp_run_state *run, int fallback_ranks, zp_json **file);
/* A search that found nothing before its memory ran out has no answer, neither a plan nor that there is none: NULL
 * after saying so. Else the plan. */
zp_plan *zp_refuse_stopped(zp_run_state *run, zp_plan *plan);
/* Obtains the plan of another file than options.files[0]. Returns the exit status, 0 with a feasible *plan. What is
 * wrong is printed. */
int zp_obtain_plan_of(zp_run_state *run, const char *path, const zp_plan **plan);
/* A search that found nothing before its memory ran out has no answer, neither a plan nor that there is none: NULL
 * after saying so. Else the plan. */
zp_plan *zp_refuse_stopped(zp_run_state *run, zp_plan *plan);
/* The terms of the plan block that the command line chooses in its .dz file; false where no such file can be read, or
 * not twice. */
bool zp_peek_terms(zp_run_state *run, zp_terms *terms);
/* Says that the cluster cannot grow to the devices that --gpus names. */
void zp_refuse_devices(zp_run_state *run, const zp_spec *spec, int most);
/* By its name, or because it begins as JSON does and no .dz file can. */
bool zp_is_plan_file(const zp_run_state *run, const char *path);
/* Lowers and prices one choice without searching. NULL with *error. */
zp_plan *zp_plan_of_choice(zp_arena *arena, const zp_spec *spec, const zp_choice *choice, int devices,
                           const char **error);
/* The plan of a file's decisions, on the nodes in its order. spec: as the file's sources say. NULL with *error. */
zp_plan *zp_plan_of_file(zp_arena *arena, const zp_spec *spec, const zp_json *json, const char **error);

/* ---- backend/hosts.c ---- */
/* Where the plan has its nodes in another order than the written one: a hostfile in `dir` with the lines of --hostfile
 * in that order, which takes its place. False after saying what is wrong. */
bool zp_arrange_hosts(zp_run_state *run, const zp_plan *plan, const char *dir);

/* ---- target.c ---- */
/* Is the spec one that a trainer can be generated for, on what --target and --arch say? Reports why not. */
bool zp_can_generate(zp_run_state *run, const zp_spec *spec);
/* Where the plan is for zplan's own trainer: warns of what the model has that zp_can_generate will refuse. */
void zp_warn_ungenerated(zp_run_state *run, const zp_spec *spec);
/* zp_find_toolchain with the architecture of a GPU cluster. Requires: zp_can_generate. */
zp_toolchain zp_target_toolchain(zp_run_state *run, const zp_spec *spec);
/* backend/infer_spec.c: whether the options of sample and eval say what to run on; else it has said what is wrong. */
bool zp_inference_options(const zp_run_state *run);
/* The trained model on ranks that share every layer, in f32, or f64 if it was trained so. NULL after saying why. */
zp_spec *zp_inference_spec(zp_run_state *run, const zp_spec *trained, int batch, int ranks);

/* ---- screens.c ---- */
/* A page for a file that text goes to. label: where the texts of fields begin. */
zp_page zp_page_for(const zp_run_state *run, FILE *out, int label);
/* Work that may take long begins: stderr says so, on a terminal and with --progress, until zp_status_end. what:
 * "searching". */
void zp_begin_work(const zp_run_state *run, const char *what);
/* zp_search, which Ctrl-C ends with the best plan so far: run->interrupted then. */
zp_plan *zp_search_patiently(zp_run_state *run, const zp_spec *spec, int devices, const zp_search_options *options);
/* Prints lines that are wrapped where they are wider than the screen. */
void zp_print_lines(const zp_run_state *run, FILE *out, const char *lines);

/* ---- show_plan.c ---- */
/* A feasible plan on standard output: the first screen, with --verbose all that is known. searched: by this command,
 * so that hints which take further searches, and the next command, are part of it. log: of a run, which is compared;
 * NULL: none. */
void zp_show_plan(zp_run_state *run, const zp_plan *plan, bool searched, const char *log);

/* ---- show_answers.c, answers_json.c: results of <zplan/answers.h> as text and as JSON (owned by the caller) ---- */
/* "16 x 50 x 1  zero 0  mb 1  1f1b  full": one cell of a table. Arena. */
const char *zp_show_choice(zp_arena *arena, const zp_choice *choice);
/* For a cell that may be folded: "zero 0" stays on one line. Arena. */
const char *zp_show_choice_cell(zp_arena *arena, const zp_choice *choice);
/* Sizes as a table, row by row, and what follows it. base: the first size that fits. */
zp_table zp_sizes_table(const zp_spec *spec);
void zp_add_size(zp_arena *arena, zp_table *table, const zp_spec *spec, const zp_size *size, const zp_size *base);
void zp_show_sizes_legend(zp_page *page, const zp_table *sizes);
void zp_show_fewest(zp_page *page, const zp_spec *spec, const zp_fewest *fewest);
void zp_show_why_not(zp_page *page, const char *wish, const zp_why_not *answer);
void zp_show_sensitivity(zp_page *page, const zp_plan *plan, const zp_sensitivities *all);
void zp_show_pareto(zp_page *page, const zp_spec *spec, const zp_pareto *front);
zp_json *zp_choice_json(const zp_choice *choice);
zp_json *zp_sizes_json(const zp_sizes *sizes);
zp_json *zp_fewest_json(const zp_fewest *fewest);
zp_json *zp_why_not_json(const zp_why_not *answer);
zp_json *zp_sensitivity_json(const zp_plan *plan, const zp_sensitivities *all);
/* The explanation of a plan that memory is short for. */
zp_json *zp_miss_json(const zp_miss *miss);
zp_json *zp_relaxations_json(const zp_relaxations *all);
/* Why a plan makes little of its devices, and what would help. */
zp_json *zp_poor_use_json(const zp_plan *plan, const zp_poor_use *poor);
zp_json *zp_pareto_json(const zp_pareto *front);
/* Prints and frees. */
void zp_print_json(zp_arena *arena, zp_json *json);

/* ---- backend/purposes.c ---- */
/* Every thing that people do with zplan: ready, or what is missing and how it comes here. */
void zp_find_purposes(zp_doctor *doctor, const zp_toolchain *tools);

/* ---- machines.c ---- */
/* --machine and its --price into options.load, where one is named: of several plan chooses (purchase.h), and compare
 * takes one after another. false after saying what is wrong (exit status 2). */
bool zp_choose_machine(zp_run_state *run);
/* purchase.c: --price of a machine or cluster as a setting; name NULL: the file's own. */
bool zp_lay_price(zp_run_state *run, const char *name);
/* Is every --price dollars, of a machine or cluster that the command line names? One of another would change nothing.
 * false after saying what is wrong (exit status 2). */
bool zp_check_prices(zp_run_state *run);
/* For zp_load_options.machine_here, of a zp_run_state: says on stderr which machine was taken. */
const zp_machine_text *zp_machine_of_file(void *run);
/* ---- catalogue.c ---- */
/* --model names published models where no file is given: they become options.files. false after saying what is wrong
 * (exit status 2). */
bool zp_take_known_models(zp_run_state *run);
/* The file of a published model, as zp_take_known_models put its name among the files. NULL: it is none. */
const zp_source_text *zp_known_model_file(zp_run_state *run, const char *name);

/* ---- this_host.c ---- */
int zp_host_cores(void);     /* that this process may run on */
int64_t zp_host_bytes(void); /* memory of this machine, or of the container */
/* The number after "KEY:" or "KEY " at the start of a line of a file; -1: there is none. */
int64_t zp_number_in(const char *path, const char *key);

/* ---- backend/host.c ---- */
/* Whether this machine's memory holds the ranks of a plan; false after saying why not. Warns where they share cores. */
bool zp_host_holds(zp_run_state *run, const zp_plan *plan);

/* ---- find_data.c ---- */
/* Data of a plan file that is not alongside its model is looked for alongside the plan. false, when a trainer is to be
 * started here and now, after saying where data was looked for in vain. */
bool zp_find_data(zp_run_state *run, const char *file, bool is_plan, zp_spec *spec);
/* Data at a path, in order, as a training had it: a folder of arrays, token files, lines or a text; what was masked or
 * cut out is. */
zp_data zp_data_at(const zp_spec *trained, const char *path);
/* The vocabulary of such data whose whole words are masked: where the model says it, or where the training of this
 * checkpoint had it. false after saying that it is at neither place. */
bool zp_find_words(zp_run_state *run, const char *checkpoint, zp_data *data);

/* ---- backend/cmd_build.c: what verbs that build share ---- */
/* A feasible plan that a trainer can be generated for, its weights found. NULL after saying why not, with the exit
 * status. */
zp_plan *zp_plan_to_build(zp_run_state *run, int *status);
/* The trainer's binary in its folder, which *lock keeps (trainer.h). target: what it is built for, maybe another copy
 * of the plan's spec. NULL after saying why not. */
const char *zp_build_trainer(zp_run_state *run, const zp_plan *plan, const zp_spec *target, const char *folder,
                             int *lock);

/* ---- backend/show_run.c: on stderr ---- */
/* What a run will do, before it is built. Requires zp_choose_checkpoints. */
void zp_show_run(const zp_run_state *run, const zp_plan *plan);
/* After it: how to go on, and to look at what was measured. status: of the command. */
void zp_show_run_end(const zp_run_state *run, const zp_plan *plan, int status);

/* ---- backend/keep.c ---- */
/* Where a run keeps its last state when its file does not say: sets run->checkpoints. */
void zp_choose_checkpoints(zp_run_state *run, const zp_spec *spec);

/* ---- backend/initial.c ---- */
/* Maps the weights that a trainer starts from, where there are some. false after saying why they are not those of the
 * model. */
bool zp_find_weights(zp_run_state *run, const zp_spec *spec);
/* Writes that map into the trainer's folder, which is there. false after saying why it cannot. */
bool zp_write_weights(zp_run_state *run);

/* ---- cmd_export_hf.c ---- */
struct zp_weight_folder;
/* The spec of the plan in a checkpoint's folder, or of `file`. NULL after saying why not. */
const zp_spec *zp_spec_of_checkpoint(zp_run_state *run, const struct zp_weight_folder *checkpoint, const char *file);
int zp_export_hf(zp_run_state *run);
/* import megatron: a launch of another program as a .dz file; with -o also whether it fits, its step, and what would be
 * better. Exit status. */
int zp_import_launch(zp_run_state *run, const char *format);
int zp_export_peft(zp_run_state *run);

/* ---- backend/mpirun.c ---- */
/* Appends the words that start `ranks` ranks of the program that comes next, on the machines of hostfile or (NULL) on
 * this one, and sets what mpirun finds in the environment, until zp_end_mpirun, which is called when it has ended.
 * false after saying why this machine's launcher cannot start them. */
bool zp_push_mpirun(zp_run_state *run, zp_strings *argv, int ranks, const char *hostfile);
void zp_end_mpirun(void);

/* ---- backend/session.c ---- */
/* A new folder PARENT/zplan-mpi-XXXXXX (path in the arena) for one start of mpirun; NULL: it cannot be made. It counts
 * as in use until this process and those that it starts meanwhile have ended, or zp_session_close removes it. */
const char *zp_session_open(zp_arena *arena, const char *parent);
void zp_session_close(void); /* all of them */
/* Removes what runs that were killed have left: such folders of this user in PARENT whose processes are gone. */
void zp_session_sweep(zp_arena *arena, const char *parent);
/* Removes Open MPI's own files in the folder of shared memory: of this user and machine, mapped by no process. */
void zp_segments_sweep(zp_arena *arena, const char *parent);

/* ---- backend/descendants.c ---- */
void zp_adopt_orphans(void);
/* SIGCONT to those of this process that are stopped, SIGKILL to all; how many there were. */
int zp_continue_descendants(void);
int zp_kill_descendants(void);
/* Waits until all have ended; after a while they are killed. */
void zp_end_descendants(void);

/* ---- backend/waits.c ---- */
typedef struct zp_wait_line {
  int rank, peer; /* peer -1: none is named */
  const char *text;
} zp_wait_line;
typedef ZP_VEC(zp_wait_line) zp_wait_lines;
typedef struct zp_waits {
  zp_wait_lines lines; /* that came together and are not shown yet */
  int64_t first_ms;
  int silent; /* a rank that others wait for and that says nothing, as shown last; -1: not known */
} zp_waits;
/* Keeps a line, with its end, by which a rank says that it waits; false: it is another one. */
bool zp_waits_take(zp_arena *arena, zp_waits *waits, const char *line, int64_t now_ms);
/* Shows what has come together, as soon as that is over, or at once. */
void zp_waits_show(zp_waits *waits, int64_t now_ms, bool at_once);

/* ---- backend/launch.c ---- */
/* Starts a trainer with the options' words and waits; the exit status of the command. quiet: what it prints on stdout
 * is dropped. */
int zp_launch_trainer(zp_run_state *run, const char *binary, int ranks, bool quiet);

/* ---- subcommands: return the exit status ---- */
int zp_cmd_plan(zp_run_state *run);
int zp_cmd_check(zp_run_state *run);
int zp_cmd_build(zp_run_state *run);
int zp_cmd_run(zp_run_state *run);
int zp_cmd_report(zp_run_state *run);
int zp_cmd_explain(zp_run_state *run);
int zp_cmd_verify(zp_run_state *run);
int zp_cmd_validate(zp_run_state *run);
int zp_cmd_data(zp_run_state *run);
int zp_cmd_fmt(zp_run_state *run);
int zp_cmd_lsp(zp_run_state *run);
int zp_cmd_watch(zp_run_state *run);
int zp_cmd_doctor(zp_run_state *run);
int zp_cmd_calibrate(zp_run_state *run);
int zp_cmd_bench(zp_run_state *run);
int zp_cmd_diff(zp_run_state *run);
int zp_cmd_compare(zp_run_state *run);
int zp_cmd_completion(zp_run_state *run);
int zp_cmd_export(zp_run_state *run);
int zp_cmd_import(zp_run_state *run);
int zp_cmd_new(zp_run_state *run);
int zp_cmd_models(zp_run_state *run);
int zp_cmd_machines(zp_run_state *run);
int zp_cmd_sample(zp_run_state *run);
int zp_cmd_eval(zp_run_state *run);

/* Default folder of a generated tree: "gpt2.zplan" alongside where the command runs. Arena. */
const char *zp_tree_dir(zp_run_state *run);

#endif
