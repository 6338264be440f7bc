/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured runs: header, columns, rows. One table of columns says where every cell goes; a cell that is not
 * what its column wants makes the row malformed, an empty one leaves the field empty. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/diag.h>
#include "validate_internal.h"

/* UNUSED: known, and said by other columns too. */
typedef enum cell_kind { CELL_TEXT, CELL_INT, CELL_COUNT, CELL_REAL, CELL_BOOL, CELL_UNUSED } cell_kind;

typedef struct column {
  const char *title;
  cell_kind kind; /* INT: int, COUNT: int64_t, both at least 1 unless zero_ok */
  size_t offset;
  double scale; /* REAL: to the field's unit */
  bool zero_ok, required;
  bool fraction_ok; /* a fraction leaves the field empty: sequences a GPU where tensor ranks share them */
  double most;      /* numbers, in the column's unit: beyond it nobody trains, and products of them leave 64 bits */
} column;

#define AT(field) offsetof(zp_measured, field)

static const column published[] = {
    {"id", CELL_TEXT, AT(id), 0, false, true, false, 0},
    {"source", CELL_TEXT, AT(source), 0, false, false, false, 0},
    {"year", CELL_INT, AT(year), 0, false, false, false, 2200},
    {"model", CELL_TEXT, AT(model), 0, false, false, false, 0},
    {"layers", CELL_COUNT, AT(layers), 0, false, false, false, 1e5},
    {"hidden", CELL_COUNT, AT(hidden), 0, false, false, false, 1e6},
    {"heads", CELL_COUNT, AT(heads), 0, false, false, false, 1e6},
    {"ffn", CELL_COUNT, AT(ffn), 0, false, false, false, 1e7},
    {"vocab", CELL_COUNT, AT(vocab), 0, false, false, false, 1e7},
    {"seq", CELL_COUNT, AT(seq), 0, false, false, false, 1e7},
    {"params_b", CELL_REAL, AT(parameters), 1e9, false, false, false, 1e6},
    {"gpu", CELL_TEXT, AT(gpu), 0, false, true, false, 0},
    {"gpu_mem_gb", CELL_REAL, AT(gpu_memory_gb), 1, false, false, false, 4e5},
    {"gpus_per_node", CELL_INT, AT(gpus_per_node), 0, false, false, false, 1e6},
    {"intra_bw_GBps", CELL_REAL, AT(intra_bytes_per_s), 1e9, false, false, false, 1e6},
    {"inter_bw_GBps_per_gpu", CELL_REAL, AT(inter_bytes_per_s), 1e9, false, false, false, 1e6},
    {"collective_bw_GBps_per_gpu", CELL_REAL, AT(collective_bytes_per_s), 1e9, false, false, false, 1e6},
    {"collective_share", CELL_REAL, AT(collective_share), 1, false, false, false, 1},
    {"n_gpus", CELL_INT, AT(gpus), 0, false, true, false, 1e6},
    {"tp", CELL_INT, AT(tensor), 0, false, false, false, 1e6},
    {"pp", CELL_INT, AT(pipeline), 0, false, false, false, 1e6},
    {"dp", CELL_INT, AT(data), 0, false, false, false, 1e6},
    {"interleave_v", CELL_INT, AT(chunks), 0, false, false, false, 1e5},
    {"micro_batch", CELL_COUNT, AT(microbatch), 0, false, false, true, 1e4},
    {"global_batch", CELL_COUNT, AT(batch), 0, false, false, false, 1e8},
    {"precision", CELL_TEXT, AT(precision), 0, false, false, false, 0},
    {"zero_stage", CELL_INT, AT(zero), 0, true, false, false, 3},
    {"recompute", CELL_TEXT, AT(recompute), 0, false, false, false, 0},
    {"seq_parallel", CELL_BOOL, AT(sequence), 0, false, false, false, 1},
    {"offload", CELL_TEXT, AT(offload), 0, false, false, false, 0},
    {"measured_tflops_per_gpu", CELL_REAL, AT(tflops), 1e12, false, false, false, 1e6},
    {"measured_iter_s", CELL_REAL, AT(step_s), 1, false, false, false, 1e7},
    {"measured_mem_gb", CELL_REAL, AT(memory_bytes), 1e9, false, false, false, 4e5},
    {"notes", CELL_TEXT, AT(notes), 0, false, false, false, 0},
};

static const column vtrain[] = {
    {"Parameters (billion)", CELL_UNUSED, 0, 0, false, false, false, 0},
    {"# GPUs", CELL_INT, AT(gpus), 0, false, true, false, 1e6},
    {"global batch", CELL_COUNT, AT(batch), 0, false, true, false, 1e8},
    {"micro batch", CELL_COUNT, AT(microbatch), 0, false, true, false, 1e4},
    {"hidden size", CELL_COUNT, AT(hidden), 0, false, true, false, 1e6},
    {"attention heads", CELL_COUNT, AT(heads), 0, false, true, false, 1e6},
    {"# layers", CELL_COUNT, AT(layers), 0, false, true, false, 1e5},
    {"sequence length", CELL_COUNT, AT(seq), 0, false, true, false, 1e7},
    {"tensor parallelism", CELL_INT, AT(tensor), 0, false, true, false, 1e6},
    {"data parallelism", CELL_INT, AT(data), 0, false, true, false, 1e6},
    {"pipeline parallelism", CELL_INT, AT(pipeline), 0, false, true, false, 1e6},
    {"iteration time (ms)", CELL_REAL, AT(step_s), 1e-3, false, true, false, 1e10},
};

typedef struct reader {
  zp_arena *arena;
  zp_measured_table *table;
  const column *columns;
  int n_columns;
  int *field_of; /* [column]: index in the record, -1 when the table lacks it */
  int n_fields;
  const char *name;
  bool vtrain;
} reader;

/* Titles are the same whatever their case and the blanks around them. */
static bool same_title(const char *cell, const char *title) {
  while (isspace((unsigned char)*cell)) cell++;
  for (; *title && tolower((unsigned char)*cell) == tolower((unsigned char)*title); title++) cell++;
  while (isspace((unsigned char)*cell)) cell++;
  return *title == '\0' && *cell == '\0';
}

/* Where the header says the same title twice; -1: nowhere. */
static int repeated_title(const zp_strings *header) {
  for (int i = 0; i < header->len; i++)
    for (int k = 0; k < i && *header->data[i]; k++)
      if (same_title(header->data[i], header->data[k])) return i;
  return -1;
}

enum { SHOWN_BYTES = 80 }; /* of a title: whatever a damaged table holds, the message is one line */

/* What no column of ours is called: the table may have more than we read, and may have misspelt what we would. */
static void note_ignored(reader *r, const zp_strings *header, int line) {
  zp_strings titles = {0};
  for (int c = 0; c < r->n_columns; c++) zp_push(r->arena, &titles, r->columns[c].title);
  for (int i = 0; i < header->len; i++) {
    bool known = false;
    for (int c = 0; c < r->n_columns; c++) known |= r->field_of[c] == i;
    if (known) continue;
    const char *near = zp_closest(header->data[i], titles.data, titles.len);
    zp_push(r->arena, &r->table->ignored,
            zp_format(r->arena, "line %d: column %d, `%.*s`, is unknown and not used%s%s%s", line, i + 1, SHOWN_BYTES,
                      header->data[i], near ? "; did you mean `" : "", near ? near : "", near ? "`?" : ""));
  }
}

/* Tables may lack optional columns and have further ones. False when a required one is missing. */
static bool match_header(reader *r, const column *columns, int n, const zp_strings *header) {
  r->columns = columns;
  r->n_columns = n;
  r->n_fields = header->len;
  r->field_of = ZP_NEW_ARRAY(r->arena, int, n);
  bool all = true;
  for (int c = 0; c < n; c++) {
    r->field_of[c] = -1;
    for (int i = 0; i < header->len; i++)
      if (same_title(header->data[i], columns[c].title)) r->field_of[c] = i;
    all &= r->field_of[c] >= 0 || !columns[c].required;
  }
  return all;
}

static bool parse_number(const char *text, double *value) {
  char *end;
  if (text[strspn(text, " \t0123456789+-.eE")]) return false; /* nor hexadecimal, nor nan */
  *value = strtod(text, &end);
  while (isspace((unsigned char)*end)) end++;
  return end != text && *end == '\0' && isfinite(*value);
}

/* Stores one cell. NULL when it is sound, else what is wrong. */
static const char *store(reader *r, zp_measured *run, const column *c, const char *text) {
  char *field = (char *)run + c->offset;
  double value = 0;
  if (c->kind == CELL_UNUSED) return NULL;
  if (*text == '\0') return c->required ? zp_format(r->arena, "%s is empty", c->title) : NULL;
  if (c->kind == CELL_TEXT) {
    *(const char **)field = zp_strdup(r->arena, text);
    return NULL;
  }
  if (!parse_number(text, &value)) return zp_format(r->arena, "%s is `%s`, not a number", c->title, text);
  bool whole = c->kind != CELL_REAL;
  if (c->fraction_ok && value > 0 && value != floor(value)) return NULL;
  if (whole && value != floor(value)) return zp_format(r->arena, "%s is %s, not a whole number", c->title, text);
  if (value < 0 || (value == 0 && !c->zero_ok && c->kind != CELL_BOOL))
    return zp_format(r->arena, "%s is %s, out of range", c->title, text);
  if (value > c->most) return zp_format(r->arena, "%s is %s, above %.0f", c->title, text, c->most);
  switch (c->kind) {
  case CELL_INT: *(int *)field = (int)value; break;
  case CELL_COUNT: *(int64_t *)field = (int64_t)value; break;
  case CELL_REAL: *(double *)field = value * c->scale; break;
  case CELL_BOOL: *(bool *)field = value != 0; break;
  case CELL_TEXT:
  case CELL_UNUSED: break;
  }
  return NULL;
}

/* "oneflow_DP_16x1x1" -> "oneflow_". Prefixes of two words have a digit in the second: sc21_t1_, ds_3d_. */
static const char *family_of(zp_arena *arena, const char *id) {
  static const char *const two_words[] = {"sc21_t1_", "sc21_t2_",  "meg_jan21_", "meg_base_",   "ds_lowbw_", "ds_tut_",
                                          "ds_3d_",   "ds_claim_", "ds_bert_",   "mcore_h100_", "tt_h200_"};
  for (size_t i = 0; i < sizeof two_words / sizeof *two_words; i++)
    if (strncmp(id, two_words[i], strlen(two_words[i])) == 0) return two_words[i];
  size_t n = strcspn(id, "_");
  return zp_strndup(arena, id, id[n] ? n + 1 : n);
}

static bool contains(const char *text, const char *words) { return text && strstr(text, words); }

/* "cp=4" in the notes is 4; 0 when absent. */
static int64_t number_after(const char *notes, const char *key) {
  const char *at = notes ? strstr(notes, key) : NULL;
  return at ? strtoll(at + strlen(key), NULL, 10) : 0;
}

/* "GQA 8 KV heads": the number before the words. */
static int64_t kv_heads_of(const char *notes) {
  const char *at = notes ? strstr(notes, " KV heads") : NULL;
  if (!at) return 0;
  while (at > notes && isdigit((unsigned char)at[-1])) at--;
  return strtoll(at, NULL, 10);
}

/* "measured all_reduce on 4 nodes 15-42 Gb/s": size / time of an all-reduce over the GPUs of so many nodes; the upper
 * end is the undisturbed rate. Bus bandwidth is 2 (n - 1) / n times that, shared by the GPUs of a node. */
static double measured_all_reduce(const zp_measured *run) {
  const char *at = run->notes ? strstr(run->notes, "measured all_reduce on ") : NULL;
  int nodes;
  double low, high;
  if (!at || run->gpus_per_node < 1) return 0;
  if (sscanf(at, "measured all_reduce on %d nodes %lf-%lf Gb/s", &nodes, &low, &high) != 3) return 0;
  double ranks = (double)nodes * run->gpus_per_node;
  return high * 1e9 / 8 * 2 * (ranks - 1) / ranks / run->gpus_per_node;
}

/* Bytes of a printed "GB". nanotron divides by 2^30 (src/nanotron/helpers.py). BigScience's "GB" are thousands of the
 * MiB that nvidia-smi prints (chronicles-prequel.md: "2GB is cuda kernels" for 1573 MiB; a run of "80GB" on boards of
 * 81,251 MiB, which are less than 80 GiB; opened). */
static double printed_gigabyte(const zp_measured *run) {
  if (contains(run->notes, "memory in GiB") || contains(run->source, "nanotron")) return 1073741824.0;
  return contains(run->source, "chronicles-prequel") ? 1000 * 1048576.0 : 1e9;
}

/* What the notes column and the model's name say in words. */
static void read_notes(zp_measured *run) {
  const char *notes = run->notes;
  if (!run->collective_bytes_per_s && !run->collective_share) run->collective_bytes_per_s = measured_all_reduce(run);
  run->context = (int)number_after(notes, "cp=");
  run->kv_heads = kv_heads_of(notes);
  run->memory_bytes *= printed_gigabyte(run) / 1e9;
  run->memory_reserved = contains(notes, "reserved");
  run->compiled = contains(notes, "torch.compile");
  run->interleaved = contains(notes, "interleaved") && !contains(notes, "before the interleaved") &&
                     !contains(notes, "not interleaved");
  run->serial = contains(notes, "no overlap of collectives");
  run->fits = contains(notes, "fit=0") ? 0 : contains(notes, "fit=1") ? 1 : -1;
  /* ZeRO-100B is stage 2 with activation partitioning, arXiv 1910.02054 section 6 */
  run->partitions =
      contains(notes, "activation partitioning") || (run->zero > 0 && contains(run->source, "1910.02054"));
  run->tflops_hardware = !contains(notes, "flops=MODEL");
  bool llama = contains(run->model, "Llama") || contains(run->model, "LLaMA");
  run->gated = llama || contains(notes, "SwiGLU") || contains(notes, "GeGLU");
  run->rotary = llama || contains(notes, "ALiBi") || contains(notes, "rotary");
}

/* Facts of the vTrain tables that are no columns (measured/README.md, section 4). */
static void fill_vtrain(const reader *r, zp_measured *run) {
  run->id = zp_format(r->arena, "%s_%d", r->name, run->line);
  run->family = r->name;
  run->source = "vTrain (VIA-Research/vTrain), Megatron-DeepSpeed";
  run->year = 2022;
  run->gpu = "A100-SXM4-80GB";
  run->gpus_per_node = 8;
  run->intra_bytes_per_s = 300e9;
  run->inter_bytes_per_s = 12.5e9;
  run->chunks = 1;
  run->precision = "fp16";
  run->offload = "none";
  run->recompute = "full";
  run->sequence_said = true;
  run->zero = 0;
  run->fits = -1;
}

/* Words that a cell may hold, ended by NULL; the empty cell is always sound. */
static const char *check_word(zp_arena *arena, const char *title, const char *cell, const char *const *words) {
  zp_buf list = zp_buf_new(arena);
  for (int i = 0; cell && words[i]; i++) {
    if (strcmp(cell, words[i]) == 0) return NULL;
    zp_buf_printf(&list, "%s%s", i ? ", " : "", words[i]);
  }
  return cell ? zp_format(arena, "%s is `%s`, not one of %s", title, cell, list.data) : NULL;
}

static const char *check_words(zp_arena *arena, const zp_measured *run) {
  static const char *const recompute[] = {"full", "selective", "none", NULL};
  static const char *const offload[] = {"none", "opt_cpu", "opt_param_cpu", "nvme", NULL};
  static const char *const precision[] = {"bf16", "bfloat16", "fp16", "float16", "half",
                                          "fp32", "float32",  "fp8",  NULL}; /* fp8 is known and not predicted */
  const char *wrong = check_word(arena, "recompute", run->recompute, recompute);
  if (!wrong) wrong = check_word(arena, "offload", run->offload, offload);
  return wrong ? wrong : check_word(arena, "precision", run->precision, precision);
}

static const char *check_degrees(zp_arena *arena, const zp_measured *run) {
  int context = run->context > 0 ? run->context : 1;
  if (run->tensor && run->pipeline && run->data &&
      (int64_t)run->tensor * run->pipeline * run->data * context != run->gpus)
    return zp_format(arena, "%d x %d x %d tensor, pipeline and data ranks are not %d GPUs", run->tensor, run->pipeline,
                     run->data, run->gpus);
  if (run->batch && run->data && run->microbatch && run->batch % (run->data * run->microbatch) != 0)
    return zp_format(arena, "batch %lld does not divide over %d data ranks and micro-batch %lld", (long long)run->batch,
                     run->data, (long long)run->microbatch);
  return NULL;
}

static const char *check_collectives(const zp_measured *run) {
  bool twice = run->collective_share > 0 && run->collective_bytes_per_s > 0;
  return twice ? "collective_share and collective_bw_GBps_per_gpu say the same thing: give one" : NULL;
}

static const char *check_chunks(zp_arena *arena, const zp_measured *run) {
  if (run->chunks > 1 && run->pipeline == 1)
    return zp_format(arena, "interleave_v is %d, and pp 1 leaves no stages to interleave", run->chunks);
  if (run->chunks == 1 && run->pipeline > 1 && run->interleaved)
    return "interleave_v is 1, and notes say that the schedule was interleaved";
  return NULL;
}

/* The rows before this one. */
static const char *check_id(const reader *r, const zp_measured *run) {
  for (int i = 0; i < r->table->runs.len; i++)
    if (strcmp(r->table->runs.data[i].id, run->id) == 0)
      return zp_format(r->arena, "id `%s` is that of line %d too", run->id, r->table->runs.data[i].line);
  return NULL;
}

static const char *check_run(const reader *r, const zp_measured *run) {
  const char *wrong = check_words(r->arena, run);
  if (!wrong) wrong = check_degrees(r->arena, run);
  if (!wrong) wrong = check_collectives(run);
  if (!wrong) wrong = zp_run_contradiction(r->arena, run);
  if (!wrong) wrong = check_chunks(r->arena, run);
  return wrong ? wrong : check_id(r, run);
}

static const char *read_run(reader *r, const zp_strings *fields, zp_measured *run) {
  if (fields->len != r->n_fields)
    return zp_format(r->arena, "%d fields where the header has %d", fields->len, r->n_fields);
  for (int c = 0; c < r->n_columns; c++) {
    if (r->field_of[c] < 0) continue;
    const char *wrong = store(r, run, &r->columns[c], fields->data[r->field_of[c]]);
    if (wrong) return wrong;
    if (r->columns[c].offset == AT(sequence)) run->sequence_said = *fields->data[r->field_of[c]] != '\0';
  }
  if (r->vtrain) {
    fill_vtrain(r, run);
    return check_run(r, run);
  }
  run->family = family_of(r->arena, run->id);
  read_notes(run);
  return check_run(r, run);
}

/* NULL with *error when this is no table that we know. */
static zp_measured_table *read_header(reader *r, const zp_strings *header, int line, const char **error) {
  int twice = repeated_title(header);
  if (twice >= 0) {
    *error = zp_format(r->arena, "line %d: two columns are called `%s`", line, header->data[twice]);
    return NULL;
  }
  r->vtrain = match_header(r, vtrain, sizeof vtrain / sizeof *vtrain, header);
  if (!r->vtrain && !match_header(r, published, sizeof published / sizeof *published, header)) {
    bool other = header->len == 1 && strpbrk(header->data[0], ";\t");
    *error = zp_format(r->arena,
                       "the header has neither the columns of published runs (id, gpu, n_gpus, ...) nor vTrain's%s",
                       other ? "; fields are separated by commas" : "");
    return NULL;
  }
  r->table = ZP_NEW(r->arena, zp_measured_table);
  note_ignored(r, header, line);
  return r->table;
}

zp_measured_table *zp_measured_read(zp_arena *arena, const char *text, size_t len, const char *name,
                                    const char **error) {
  assert((text || len == 0) && name && error);
  zp_csv csv = {.text = text, .len = len, .line = 1};
  if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) csv.at = 3; /* byte order mark */
  reader r = {.arena = arena, .name = name};
  zp_strings fields = {0};
  int line;
  if (!zp_csv_next(arena, &csv, &fields, &line)) return *error = "the table is empty", NULL;
  if (csv.wrong) return *error = zp_format(arena, "line %d: %s", line, csv.wrong), NULL;
  if (!read_header(&r, &fields, line, error)) return NULL;
  while (zp_csv_next(arena, &csv, &fields, &line)) {
    zp_measured run = {.line = line, .zero = -1, .fits = -1};
    const char *wrong = csv.wrong ? csv.wrong : read_run(&r, &fields, &run);
    if (wrong)
      zp_push(arena, &r.table->malformed, zp_format(arena, "line %d: %s", line, wrong));
    else
      zp_push(arena, &r.table->runs, run);
  }
  if (r.table->runs.len + r.table->malformed.len == 0) return *error = "the table has a header and no rows", NULL;
  return r.table;
}
