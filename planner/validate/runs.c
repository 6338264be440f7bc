/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured runs: header and rows. The columns of the table's kind say where every cell goes; a cell that is
 * not what its column wants makes the row malformed, an empty one leaves the field empty. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/diag.h>
#include "columns.h"

typedef struct reader {
  zp_arena *arena;
  zp_measured_table *table;
  const table_kind *kind;
  int *field_of; /* [column]: index in the record, -1 when the table lacks it */
  int n_fields;
  const char *name;
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
  for (int c = 0; c < r->kind->n_columns; c++) zp_push(r->arena, &titles, r->kind->columns[c].title);
  for (int i = 0; i < header->len; i++) {
    bool known = false;
    for (int c = 0; c < r->kind->n_columns; c++) known |= r->field_of[c] == i;
    if (known) continue;
    const char *near = zp_closest(header->data[i], titles.data, titles.len);
    zp_push(r->arena, &r->table->ignored,
            zp_format(r->arena, "line %d: column %d, `%.*s`, is unknown and not used%s%s%s", line, i + 1, SHOWN_BYTES,
                      header->data[i], near ? "; did you mean `" : "", near ? near : "", near ? "`?" : ""));
  }
}

/* Tables may lack optional columns and have further ones. False when a required one is missing. */
static bool match_header(reader *r, const table_kind *kind, const zp_strings *header) {
  r->kind = kind;
  r->n_fields = header->len;
  r->field_of = ZP_NEW_ARRAY(r->arena, int, kind->n_columns);
  bool all = true;
  for (int c = 0; c < kind->n_columns; c++) {
    r->field_of[c] = -1;
    for (int i = 0; i < header->len; i++)
      if (same_title(header->data[i], kind->columns[c].title)) r->field_of[c] = i;
    all &= r->field_of[c] >= 0 || !kind->columns[c].required;
  }
  return all;
}

/* "1,002" -> "1002", "64 (0)" -> "64", "4096?" -> "4096", "n/a" and "-" -> "". */
static const char *plain_number(zp_arena *arena, const char *text) {
  if (strcmp(text, "n/a") == 0 || strcmp(text, "-") == 0) return "";
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "");
  for (; *text && *text != '(' && *text != '?'; text++)
    if (*text != ',') zp_buf_put(&out, text, 1);
  return out.data;
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
  if (r->kind->loose && c->kind != CELL_TEXT) text = plain_number(r->arena, text);
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
  if (!run->context) run->context = (int)number_after(notes, "cp=");
  if (!run->shape.kv_heads) run->shape.kv_heads = kv_heads_of(notes);
  if (!run->shard) run->shard = (int)number_after(notes, "zero1=");
  if (run->shard < 0 || run->shard == run->data) run->shard = 0;                        /* InternEvo's -1: all */
  if (contains(notes, "GH200 96 GB")) run->gpu = "GH200-96GB", run->gpu_memory_gb = 96; /* whatever `gpu` has for it */
  if (contains(notes, "precision assumed")) run->precision = zp_open_precision(run->source);
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
  run->shape.head_norms = contains(run->model, "Qwen3");
  run->shape.gated =
      llama || run->shape.experts || run->shape.kv_rank || contains(notes, "SwiGLU") || contains(notes, "GeGLU");
  run->shape.rotary =
      llama || run->shape.experts || run->shape.kv_rank || contains(notes, "ALiBi") || contains(notes, "rotary");
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
  static const char *const precision[] = {"bf16", "bfloat16", "fp16",        "float16",   "half",  "fp32",  "float32",
                                          "tf32", "fp8",      "fp8_current", "fp8_block", "mxfp8", "nvfp4", NULL};
  static const char *const dispatcher[] = {"alltoall", "deepep", "hybridep", NULL};
  static const char *const graphs[] = {"none", "gates", "parts", "whole", NULL};
  static const char *const lora_of[] = {"all", "qkv", NULL};
  const char *wrong = check_word(arena, "recompute", run->recompute, recompute);
  if (!wrong) wrong = check_word(arena, "dispatcher", run->dispatcher, dispatcher);
  if (!wrong) wrong = check_word(arena, "cuda_graphs", run->graphs, graphs);
  if (!wrong) wrong = check_word(arena, "lora_of", run->lora_of, lora_of);
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
  if (run->flushes > 1 && run->batch && run->batch % run->flushes != 0)
    return zp_format(arena, "flushes is %d, which does not divide the batch, %lld", run->flushes,
                     (long long)run->batch);
  int64_t passes = run->batch && run->data && run->microbatch ? run->batch / (run->data * run->microbatch) : 0;
  if (run->flushes > 1 && passes && passes % run->flushes != 0)
    return zp_format(arena, "flushes is %d, which does not divide the %lld micro-batches", run->flushes,
                     (long long)passes);
  return NULL;
}

/* What a gate takes of what there is. */
static const char *check_gate(zp_arena *arena, const zp_measured *run) {
  long long experts = run->shape.experts, top_k = run->shape.top_k, groups = run->shape.expert_groups,
            top_groups = run->shape.top_groups;
  if (!experts) return NULL;
  if (top_k > experts) return zp_format(arena, "top_k is %lld of %lld experts", top_k, experts);
  if (groups && experts % groups != 0)
    return zp_format(arena, "expert_groups is %lld, which does not divide the %lld experts", groups, experts);
  if (top_groups && !groups) return "top_groups without expert_groups";
  if (top_groups > groups) return zp_format(arena, "top_groups is %lld of %lld groups", top_groups, groups);
  if (top_groups && top_k > experts / groups * top_groups)
    return zp_format(arena, "top_k is %lld of the %lld experts of top_groups", top_k, experts / groups * top_groups);
  if (run->shape.layers && run->shape.dense_layers > run->shape.layers)
    return zp_format(arena, "dense_layers is %lld of %lld layers", (long long)run->shape.dense_layers,
                     (long long)run->shape.layers);
  return NULL;
}

/* Experts lie on data and context ranks, parameters are sharded over data ranks. */
static const char *check_groups(zp_arena *arena, const zp_measured *run) {
  int context = run->context > 0 ? run->context : 1;
  if (run->expert > 1 && !run->shape.experts && !run->shape.unlike)
    return zp_format(arena, "ep is %d, and the model has no experts", run->expert);
  if (run->shape.experts && run->expert > 1 && run->shape.experts % run->expert != 0)
    return zp_format(arena, "ep is %d, which does not divide the %lld experts", run->expert,
                     (long long)run->shape.experts);
  if (run->shape.experts && !run->shape.top_k && !run->shape.unlike) return "experts without top_k";
  if (run->shape.experts && !run->shape.expert_ffn && !run->shape.unlike) return "experts without expert_ffn";
  bool columns =
      run->shape.q_rank && run->shape.head && run->shape.rotary_head && run->shape.rotary_head < run->shape.head;
  if (run->shape.kv_rank && !run->shape.unlike && !columns)
    return "kv_rank without q_rank, or without the columns of a head, head_dim, and fewer of them for rotary_dim";
  if (run->shard > 1 && run->data && (int64_t)run->data * context % run->shard != 0)
    return zp_format(arena, "shard_group is %d, which does not divide %lld data ranks", run->shard,
                     (long long)run->data * context);
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
  if (!wrong) wrong = check_groups(r->arena, run);
  if (!wrong) wrong = check_gate(r->arena, run);
  if (!wrong) wrong = check_collectives(run);
  if (!wrong) wrong = zp_run_contradiction(r->arena, run);
  if (!wrong) wrong = check_chunks(r->arena, run);
  return wrong ? wrong : check_id(r, run);
}

static const char *read_run(reader *r, const zp_strings *fields, zp_measured *run) {
  if (fields->len != r->n_fields)
    return zp_format(r->arena, "%d fields where the header has %d", fields->len, r->n_fields);
  for (int c = 0; c < r->kind->n_columns; c++) {
    if (r->field_of[c] < 0) continue;
    const char *wrong = store(r, run, &r->kind->columns[c], fields->data[r->field_of[c]]);
    if (wrong) return wrong;
    if (r->kind->columns[c].offset == offsetof(zp_measured, sequence))
      run->sequence_said = *fields->data[r->field_of[c]] != '\0';
  }
  if (r->kind->fill) {
    r->kind->fill(r->arena, run, r->name);
  } else {
    run->family = family_of(r->arena, run->id);
    read_notes(run);
  }
  if (run->step_s <= 0 && run->tokens_per_s > 0)
    run->step_s = (double)(run->batch * run->seq) / (run->tokens_per_s * run->gpus);
  return check_run(r, run);
}

/* NULL with *error when this is no table that we know. */
static zp_measured_table *read_header(reader *r, const zp_strings *header, int line, const char **error) {
  int twice = repeated_title(header);
  if (twice >= 0) {
    *error = zp_format(r->arena, "line %d: two columns are called `%s`", line, header->data[twice]);
    return NULL;
  }
  int k = 0;
  while (k < ZP_TABLE_KINDS && !match_header(r, &zp_table_kinds[k], header)) k++;
  if (k == ZP_TABLE_KINDS) {
    bool other = header->len == 1 && strpbrk(header->data[0], ";\t");
    *error =
        zp_format(r->arena,
                  "the header has neither the columns of published runs (id, gpu, n_gpus, ...) nor those of vTrain, "
                  "Megatron-Bridge, AutoModel or SimuMax%s",
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
