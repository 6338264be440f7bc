/* SPDX-License-Identifier: Apache-2.0 */
/* zplan new: a .dz file to start from, whole in itself. Nothing is ever written over. */
#include "machines.h"
#include "new_file.h"

#include <zplan/buf.h>
#include <zplan/known_models.h>
#include <zplan/path.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(zp_run_state *run, zp_diag_code code, const char *what, const char *help) {
  zp_diag *d = zp_report(run->diags, code, ZP_NO_SPAN, "%s", what);
  if (help) zp_diag_help(d, "%s", help);
  zp_flush_diags(run);
  return ZP_EXIT_ERROR;
}

/* ---- names ---- */

/* "texts/my book.txt" -> "my book", and as a word of the language "my_book". */
static const char *stem_of(zp_arena *arena, const char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  const char *whole = zp_strndup(arena, path, n), *slash = strrchr(whole, '/'), *base = slash ? slash + 1 : whole;
  const char *dot = strrchr(base, '.');
  return dot && dot > base ? zp_strndup(arena, base, (size_t)(dot - base)) : base;
}

static const char *word_of(zp_arena *arena, const char *name) {
  char *word = zp_strdup(arena, name);
  for (char *c = word; *c; c++) *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
  return isalpha((unsigned char)*word) ? word : zp_format(arena, "m_%s", word);
}

static const char *output_of(const zp_run_state *run, const char *stem) {
  return run->options.output ? run->options.output : zp_format(run->arena, "%s.dz", stem);
}

/* A path as the new file has it: relative to its folder, which is the current one unless -o names another. */
static const char *seen_from_file(const zp_run_state *run, const char *path) {
  bool elsewhere = run->options.output && strchr(run->options.output, '/');
  char *whole = elsewhere && path[0] != '/' ? realpath(path, NULL) : NULL;
  const char *seen = whole ? zp_strdup(run->arena, whole) : path;
  free(whole);
  return seen;
}

/* As a text of the language, and as a word of a shell. */
static const char *quoted(const zp_run_state *run, const char *path) { return zp_quote_json(run->arena, path); }
static const char *shell(const zp_run_state *run, const char *path) { return zp_quote_shell(run->arena, path); }

/* ---- writing ---- */

static bool is_sound(zp_run_state *run, const char *path, const char *text) {
  zp_source_text source = {.path = path, .text = text, .len = strlen(text)};
  zp_load_options options = run->options.load;
  options.model = options.cluster = NULL;
  options.machine = NULL;
  options.gpus = options.nodes = 0;
  options.model_only = true;
  zp_load(run->arena, run->diags, path, &source, 1, &options);
  return zp_flush_diags(run);
}

static bool write_all(int file, const char *text) {
  for (size_t left = strlen(text); left > 0;) {
    ssize_t n = write(file, text, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text += n;
    left -= (size_t)n;
  }
  return true;
}

static int write_new(zp_run_state *run, const char *path, const char *text) {
  if (!is_sound(run, path, text)) return ZP_EXIT_ERROR;
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file < 0 && errno == EEXIST)
    return refuse(run, ZP_Z0641,
                  zp_format(run->arena, "%s is there already, and `zplan new` writes over nothing", path),
                  "name another file with -o");
  bool good = file >= 0 && write_all(file, text);
  int why = errno;
  if (file >= 0 && close(file) != 0 && good) good = false, why = errno;
  if (good) return ZP_EXIT_OK;
  if (file >= 0) unlink(path);
  return refuse(run, ZP_Z0641, zp_format(run->arena, "cannot write %s: %s", path, strerror(why)), NULL);
}

static void next(const zp_run_state *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void next(const zp_run_state *run, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_say_line(stdout, "next: %s", zp_vformat(run->arena, format, args));
  va_end(args);
}

/* ---- own text ---- */

enum { SAMPLE = 128, WIDTH = 128, LAYERS = 4, HEADS = 4, BATCH = 16, STEPS = 500, LEAST_BYTES = 4096 };

static const char text_file[] =
    "# %s -- a small GPT that learns to write on from the bytes of a text.\n"
    "#\n"
    "#   zplan run %s                     on the CPU cores of this machine, one rank; --ranks 2: two\n"
    "#   zplan sample out/%s --prompt \"The \"\n"
    "#   zplan %s --machine dgx-h100      the same model planned for another machine\n"
    "#\n"
    "# Larger: d, layers and heads (which divide d), S for a longer memory, steps for a longer training.\n"
    "use std.nn\nuse std.models\n\n"
    "model %s(V = 256, S = %d, d = %d, layers = %d, heads = %d) {\n"
    "  input tokens: i32[B, S]  # bytes\n"
    "  input labels: i32[B, S]  # the same, one further\n\n"
    "  param wte: [V, d] ~ normal(std = 0.02)\n"
    "  param wpe: [S, d] ~ normal(std = 0.02)\n\n"
    "  x = embedding(tokens, wte) + wpe\n"
    "  repeat h in 0..layers {\n"
    "    x = gpt2_layer(x, heads = heads, ff = 4 * d, residual_std = 0.02 / sqrt(2 * layers))\n"
    "  }\n"
    "  ln_f   = layer_norm(x)\n"
    "  logits = matmul(ln_f, transpose(wte))\n"
    "  output loss = cross_entropy(logits, labels)\n"
    "}\n\n"
    "train {\n"
    "  model     = %s\n"
    "  data      = %s\n"
    "  batch     = %d  # samples a step\n"
    "  steps     = %d\n"
    "  precision = \"fp32\"\n"
    "  optimizer = adamw(lr = 1e-3, betas = [0.9, 0.95], weight_decay = 0.1)\n"
    "  schedule  = cosine(warmup = 20, min_lr = 1e-4)\n"
    "  clip      = 1.0\n\n"
    "  checkpoint { dir = \"out/%s\"  every = 100  keep = 2 }\n"
    "  log        { jsonl = \"out/%s/log.jsonl\"  every = 1 }\n"
    "}\n";

/* -1 after saying what is wrong. */
static int64_t size_of_text(zp_run_state *run, const char *path) {
  struct stat st;
  char begin[512];
  FILE *file = fopen(path, "r");
  if (!file || fstat(fileno(file), &st) != 0) {
    if (file) fclose(file);
    return refuse(run, ZP_Z0801, zp_format(run->arena, "cannot read `%s`: %s", path, strerror(errno)), NULL), -1;
  }
  size_t n = S_ISREG(st.st_mode) ? fread(begin, 1, sizeof begin, file) : 0;
  fclose(file);
  if (S_ISDIR(st.st_mode))
    return refuse(run, ZP_Z0801, zp_format(run->arena, "`%s` is a folder, not a text", path),
                  "name its files, or for published weights: zplan new fine-tune FOLDER"),
           -1;
  if (!S_ISREG(st.st_mode)) return refuse(run, ZP_Z0801, zp_format(run->arena, "`%s` is no file", path), NULL), -1;
  if (memchr(begin, '\0', n))
    return refuse(run, ZP_Z0801, zp_format(run->arena, "`%s` is no text: it has zero bytes", path),
                  "token files are data = tokens(\"FILE.bin\") in a file of your own"),
           -1;
  return st.st_size;
}

/* text("a"), or a mixture of several by their sizes. */
static const char *texts_as_data(zp_run_state *run, int first) {
  const zp_strings *files = &run->options.files;
  int64_t sizes[ZP_MOST_SOURCES], all = 0;
  int n = files->len - first;
  if (n > ZP_MOST_SOURCES) {
    refuse(run, ZP_Z0801, zp_format(run->arena, "%d texts: at most %d are mixed", n, ZP_MOST_SOURCES),
           "put them into one: cat *.txt > all.txt");
    return NULL;
  }
  for (int i = 0; i < n; i++) {
    sizes[i] = size_of_text(run, files->data[first + i]);
    if (sizes[i] < 0) return NULL;
    all += sizes[i];
  }
  if (all < LEAST_BYTES) {
    refuse(run, ZP_Z0801, zp_format(run->arena, "%lld bytes of text are too few to learn from", (long long)all),
           "a book has some 500,000");
    return NULL;
  }
  zp_buf out = zp_buf_new(run->arena);
  zp_buf_puts(&out, n > 1 ? "mix(" : "");
  for (int i = 0; i < n; i++) {
    const char *name = quoted(run, seen_from_file(run, files->data[first + i]));
    double share = (double)sizes[i] / (double)all;
    if (n == 1)
      zp_buf_printf(&out, "text(%s, order = \"shuffled\")", name);
    else
      zp_buf_printf(&out, "%s%.3g * text(%s, order = \"shuffled\")", i ? ",\n                  " : "",
                    share > 0.001 ? share : 0.001, name);
  }
  zp_buf_puts(&out, n > 1 ? ")" : "");
  return out.data;
}

static int new_text(zp_run_state *run) {
  const zp_strings *files = &run->options.files;
  if (files->len < 1) return zp_usage_error("`zplan new text` wants a text file: zplan new text book.txt");
  const char *data = texts_as_data(run, 0);
  if (!data) return ZP_EXIT_ERROR;
  const char *path = output_of(run, stem_of(run->arena, files->data[0])), *name = stem_of(run->arena, path),
             *word = word_of(run->arena, name), *base = stem_of(run->arena, path);
  const char *file = zp_format(run->arena, "%s.dz", base);
  const char *text = zp_format(run->arena, text_file, file, file, word, file, word, SAMPLE, WIDTH, LAYERS, HEADS, word,
                               data, BATCH, STEPS, word, word);
  int status = write_new(run, path, text);
  if (status != ZP_EXIT_OK) return status;
  zp_say_lines(stdout, "%s: a GPT of %d layers on the bytes of %d text%s, %d steps\n", path, LAYERS, files->len,
               files->len == 1 ? "" : "s", STEPS);
  next(run, "zplan run %s", shell(run, path));
  next(run, "zplan sample out/%s --prompt \"The \"", word);
  return ZP_EXIT_OK;
}

/* ---- published weights ---- */

enum { TUNED_SAMPLE = 512, TUNED_BATCH = 16, TUNED_STEPS = 1000 };

static const char tuned_train[] = "train {\n"
                                  "  model     = %s\n"
                                  "  init      = weights(%s)\n"
                                  "  data      = %s\n"
                                  "  batch     = %d  # samples a step\n"
                                  "  steps     = %d\n"
                                  "  precision = \"%s\"\n"
                                  "%s"
                                  "  optimizer = adamw(lr = 2e-5, weight_decay = 0.01)\n"
                                  "  schedule  = cosine(warmup = 50, min_lr = 2e-6)\n"
                                  "  clip      = 1.0\n\n"
                                  "  checkpoint { dir = \"out/%s\"  every = 250  keep = 2 }\n"
                                  "  log        { jsonl = \"out/%s/log.jsonl\"  every = 1 }\n"
                                  "}\n";

static bool is_there(zp_run_state *run, const char *folder, const char *name) {
  return access(zp_format(run->arena, "%s/%s", folder, name), R_OK) == 0;
}

/* The model of the folder's config.json; NULL after saying what is wrong. */
static const zp_imported *model_of_folder(zp_run_state *run, const char *folder, const char *word) {
  const char *path = zp_format(run->arena, "%s/config.json", folder), *error = NULL;
  struct stat st;
  if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode)) {
    refuse(run, ZP_Z0683, zp_format(run->arena, "`%s` is a file", folder),
           "name the folder that has config.json and *.safetensors");
    return NULL;
  }
  size_t len;
  const char *json = zp_read_file(run->arena, path, &len, &error);
  if (!json) {
    refuse(run, ZP_Z0683, error,
           "the folder is one that transformers saved, on this machine: config.json and *.safetensors; nothing is "
           "downloaded");
    return NULL;
  }
  if (!is_there(run, folder, "model.safetensors") && !is_there(run, folder, "model.safetensors.index.json")) {
    refuse(run, ZP_Z0683, zp_format(run->arena, "`%s` has no model.safetensors, nor an index of such files", folder),
           "download the whole repository; weights in pytorch_model.bin: save them anew with "
           "model.save_pretrained(FOLDER)");
    return NULL;
  }
  const zp_imported *imported = zp_import_hf_model(run->arena, run->diags, path, json, len, word);
  return zp_flush_diags(run) ? imported : NULL;
}

/* What the training runs on: --machine, or this machine. */
static const zp_cluster *cluster_of_run(zp_run_state *run, const char **block, const char **word) {
  *block = run->options.machine ? zp_machine_block(run, run->options.machine, 1, word) : NULL;
  const char *here;
  return zp_cluster_of_block(run, *block ? *block : zp_this_machine(run, &here, NULL));
}

static const char *notes_of(zp_arena *arena, const zp_imported *imported) {
  zp_buf out = zp_buf_new(arena);
  for (int i = 0; i < imported->notes.len; i++) zp_buf_printf(&out, "# note: %s\n", imported->notes.data[i]);
  zp_buf_puts(&out, "");
  return out.data ? out.data : "";
}

/* How its texts become what the model reads; NULL: the folder has no tokenizer. */
static const char *tokenizer_of(zp_run_state *run, const char *folder) {
  static const char *const names[] = {"tokenizer.json", "vocab.txt"};
  for (int i = 0; i < 2; i++)
    if (is_there(run, folder, names[i])) return zp_format(run->arena, "%s/%s", folder, names[i]);
  return NULL;
}

static int new_fine_tune(zp_run_state *run) {
  const zp_strings *files = &run->options.files;
  if (files->len < 1) return zp_usage_error("`zplan new fine-tune` wants a folder with config.json and *.safetensors");
  const char *folder = files->data[0], *slash = strrchr(folder, '/');
  while (slash && !slash[1] && slash > folder) { /* "gpt2/" is gpt2 */
    folder = zp_strndup(run->arena, folder, (size_t)(slash - folder));
    slash = strrchr(folder, '/');
  }
  const char *base = slash ? slash + 1 : folder, *path = output_of(run, base),
             *word = word_of(run->arena, stem_of(run->arena, path)), *block, *machine;
  const zp_imported *imported = model_of_folder(run, folder, word);
  const zp_model *model = imported ? zp_model_of_text(run, imported->text) : NULL;
  const zp_cluster *cluster = model ? cluster_of_run(run, &block, &machine) : NULL;
  if (!cluster) return zp_flush_diags(run), ZP_EXIT_ERROR;
  for (int i = 1; i < files->len; i++)
    if (size_of_text(run, files->data[i]) < 0) return ZP_EXIT_ERROR;
  bool arrays = zp_hf_takes_arrays(imported);
  const char *stem = stem_of(run->arena, path), *dropout = "", *call = word,
             *data = arrays ? "arrays(\"data\")  # a file of NumPy for every input"
                            : zp_format(run->arena, "tokens(%s, order = \"shuffled\")",
                                        quoted(run, zp_format(run->arena, "%s.bin", stem)));
  if (zp_hf_dropout(imported) > 0) dropout = zp_format(run->arena, "  dropout   = %g\n", zp_hf_dropout(imported));
  if (!arrays && model->sequence > TUNED_SAMPLE) call = zp_format(run->arena, "%s(S = %d)", word, TUNED_SAMPLE);
  const char *tokenizer = tokenizer_of(run, folder);
  zp_buf texts = zp_buf_new(run->arena);
  for (int i = 1; i < files->len; i++) zp_buf_printf(&texts, "%s ", shell(run, files->data[i]));
  const char *tokens = zp_format(
      run->arena, "zplan data %s-o %s --tokenizer %s", files->len > 1 ? texts.data : "TEXT ",
      shell(run,
            zp_format(run->arena, "%s.bin",
                      path[0] == '-'
                          ? stem
                          : zp_strndup(run->arena, path,
                                       strlen(path) -
                                           (strlen(path) > 3 && strcmp(path + strlen(path) - 3, ".dz") == 0 ? 3 : 0)))),
      tokenizer ? shell(run, tokenizer) : "tokenizer.json");
  zp_buf text = zp_buf_new(run->arena);
  zp_buf_printf(&text, "# %s.dz -- the weights of %s, trained further.\n#\n", stem, base);
  if (!arrays) zp_buf_printf(&text, "#   %s\n", tokens);
  zp_buf_printf(&text, "#   zplan run %s.dz\n#   zplan export hf out/%s -o %s-tuned --like %s\n", stem, word, base,
                folder);
  zp_buf_printf(&text, "%s%s\n", notes_of(run->arena, imported), imported->text);
  if (block) zp_buf_printf(&text, "cluster %s {\n%s}\n\n", machine, block);
  zp_buf_printf(&text, tuned_train, call, quoted(run, seen_from_file(run, folder)), data, TUNED_BATCH, TUNED_STEPS,
                zp_precision_of(cluster), dropout, word, word);
  int status = write_new(run, path, text.data);
  if (status != ZP_EXIT_OK) return status;
  zp_say_lines(stdout, "%s: %s of %s parameters, from the weights in %s\n", path, zp_hf_type(imported),
               zp_show_count(run->arena, (double)zp_model_parameters(model)), folder);
  if (!tokenizer && !arrays)
    zp_say_lines(stdout, "%s has no tokenizer.json: make the token file with the one that the model was trained with\n",
                 folder);
  if (arrays)
    zp_say_lines(stdout,
                 "the model reads arrays: data/NAME.npy for each of its inputs (`zplan data squad`, `pairs`, `jsonl`, "
                 "`table`)\n");
  else
    next(run, "%s", tokens);
  next(run, "zplan run %s", shell(run, path));
  return ZP_EXIT_OK;
}

/* ---- a plan for a machine ---- */

/* MODEL on MACHINE, or as --model and --machine say. */
static bool read_names(zp_run_state *run, const char **model, const char **machine) {
  const zp_options *o = &run->options;
  const zp_strings *f = &o->files;
  *model = f->len > 0 ? f->data[0] : o->load.model;
  *machine = f->len == 3 && strcmp(f->data[1], "on") == 0 ? f->data[2] : f->len == 2 ? f->data[1] : o->machine;
  bool twice = (f->len > 0 && o->load.model) || (f->len > 1 && o->machine);
  if (*model && *machine && !twice && f->len <= 3 && (f->len < 3 || strcmp(f->data[1], "on") == 0)) return true;
  return zp_usage_error("`zplan new plan` wants a model and a machine: zplan new plan llama3-8b on dgx-h100 --gpus 64"),
         false;
}

static int new_plan(zp_run_state *run) {
  const char *name, *machine, *word;
  if (!read_names(run, &name, &machine)) return ZP_EXIT_USAGE;
  const zp_known_model *known = zp_find_known_model(name);
  if (!known) return zp_refuse_model(run, name);
  int64_t gpus = run->options.load.gpus, per_node = zp_machine_devices(run, machine);
  int64_t nodes = gpus && per_node ? (gpus + per_node - 1) / per_node : 1;
  const char *block = zp_machine_block(run, machine, nodes, &word);
  if (!block) return ZP_EXIT_USAGE;
  const zp_cluster *cluster = zp_cluster_of_block(run, block);
  const zp_imported *imported = cluster ? zp_import_known_model(run->arena, run->diags, known) : NULL;
  const zp_model *model = imported ? zp_model_of_text(run, imported->text) : NULL;
  if (!model) return zp_flush_diags(run), ZP_EXIT_ERROR;
  const char *path = output_of(run, known->name), *stem = stem_of(run->arena, path);
  const char *size = gpus ? zp_format(run->arena, " --gpus %lld", (long long)gpus) : "";
  zp_buf text = zp_buf_new(run->arena);
  zp_buf_printf(&text, "# %s.dz -- %s: %s parameters (%s%s%s), on %s.\n#\n", stem, known->name,
                zp_show_count(run->arena, (double)zp_model_parameters(model)), known->hub, *known->hub ? "; " : "",
                known->source, machine);
  zp_buf_printf(&text,
                "#   zplan %s.dz%s                 the best plan\n"
                "#   zplan %s.dz --gpus auto          the fewest devices that it fits on\n"
                "#   zplan explain %s.dz --why-not 'tensor=8'\n",
                stem, size, stem, stem);
  zp_buf_printf(&text, "%s%s\ncluster %s {\n%s}\n\n", notes_of(run->arena, imported), imported->text, word, block);
  zp_buf_puts(&text, zp_pretraining_block(run, imported, model, zp_precision_of(cluster)));
  int status = write_new(run, path, text.data);
  if (status != ZP_EXIT_OK) return status;
  zp_say_lines(stdout, "%s: %s, %s parameters, on %lld x %s\n", path, known->name,
               zp_show_count(run->arena, (double)zp_model_parameters(model)),
               gpus ? (long long)gpus : (long long)cluster->ranks, cluster->node.device.name);
  next(run, "zplan %s%s", shell(run, path), size);
  return ZP_EXIT_OK;
}

/* ---- the command ---- */

int zp_cmd_new(zp_run_state *run) {
  static const char *const words[] = {"text", "fine-tune", "plan"};
  if (run->options.files.len == 0 && run->options.load.model) return new_plan(run);
  switch (zp_take_format(run, words, sizeof words / sizeof *words)) {
  case 0: return new_text(run);
  case 1: return new_fine_tune(run);
  case 2: return new_plan(run);
  }
  return ZP_EXIT_USAGE;
}
