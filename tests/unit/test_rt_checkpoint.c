/* Checkpoints: any layout loads any other's, and everything that can be wrong with the files or the disk ends in one
 * message with nothing half-written. Several ranks are played one after the other, each with an arena of its own. */
#define _XOPEN_SOURCE 700
#include "checkpoint.h"
#include "state.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a small model: tied wte [7, 6] over words, three layers with a fused projection of 5 heads and a gain ---- */

enum { WORDS = 7, WIDTH = 6, HEADS = 5, LAYERS = 3, MAX_STAGES = 2 };

typedef struct layout {
  zpr_program program;
  zpr_stage stage[MAX_STAGES];
  zpr_run run[MAX_STAGES][2];
  zpr_param wte, layer[2];
} layout;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Instances divide over the data ranks, each of which owns a piece of every one with ZeRO. */
static void make_stage(layout *l, int p, int64_t first, int64_t count) {
  const zpr_program *g = &l->program;
  int64_t size = zpk_bytes(g->dtype), gap = 3 * g->data, base = p * g->data;
  int64_t stride = ceil_div(l->layer[1].offset + l->layer[1].elements + 1, g->data) * g->data;
  int64_t embedding = ceil_div(l->wte.elements, g->data) * g->data;
  l->run[p][0] = (zpr_run){
      .segment = "embedding", .count = 1, .base = base, .stride = embedding, .n_params = 1, .params = &l->wte};
  l->run[p][1] = (zpr_run){.segment = "layer",
                           .first = first,
                           .count = count,
                           .base = base + embedding + gap,
                           .stride = stride,
                           .n_params = 2,
                           .params = l->layer};
  int64_t flat = base + embedding + gap + count * stride;
  int64_t shard = g->zero ? flat / g->data : flat;
  l->stage[p] = (zpr_stage){.params = 0,
                            .grads = flat * size,
                            .moment1 = 2 * flat * size,
                            .moment2 = g->optimizer == 2 ? -1 : (2 * flat + shard) * size,
                            .arena_bytes = (2 * flat + 2 * shard) * size,
                            .flat_elements = flat,
                            .shard_elements = shard,
                            .n_runs = 2,
                            .runs = l->run[p]};
}

static layout *make_layout(int tensor, int pipeline, int data, int zero, zpk_dtype dtype) {
  layout *l = calloc(1, sizeof *l);
  l->program = (zpr_program){.name = "toy",
                             .plan_hash = "0",
                             .dtype = dtype,
                             .tensor = tensor,
                             .pipeline = pipeline,
                             .data = data,
                             .zero = zero,
                             .batch = 4,
                             .microbatch = 1,
                             .microbatches = 4 / data,
                             .sequence = 8,
                             .vocabulary = WORDS,
                             .n_inputs = 1,
                             .stages = l->stage,
                             .seed = 11};
  int64_t heads = ceil_div(HEADS, tensor);
  l->wte = (zpr_param){.name = "wte",
                       .rank = 2,
                       .shape = {WORDS, WIDTH},
                       .split_dim = 0,
                       .outer = 1,
                       .units = WORDS,
                       .elements = ceil_div(WORDS, tensor) * WIDTH};
  l->layer[0] = (zpr_param){.name = "h.{}.attn.weight",
                            .rank = 2,
                            .shape = {WIDTH, 3 * HEADS * 2},
                            .split_dim = 1,
                            .outer = 3,
                            .units = HEADS,
                            .elements = WIDTH * 3 * heads * 2};
  l->layer[1] = (zpr_param){.name = "h.{}.ln.gain",
                            .rank = 1,
                            .shape = {WIDTH},
                            .split_dim = -1,
                            .outer = 1,
                            .units = 1,
                            .offset = l->layer[0].elements + 2,
                            .elements = WIDTH};
  make_stage(l, 0, 0, pipeline == 1 ? LAYERS : 1);
  if (pipeline == 2) make_stage(l, 1, 1, LAYERS - 1);
  return l;
}

/* ---- ranks ---- */

static layout *base_layout;
static zpr base; /* a real context of one rank: its communication serves the played ranks */
static char folder[ZPR_PATH];

static int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *ftw) {
  (void)status, (void)flag, (void)ftw;
  return remove(path);
}

static void setup(void) {
  int argc = 1;
  char *arguments[] = {"test", NULL}, **argv = arguments;
  base_layout = make_layout(1, 1, 1, 0, ZPK_F64);
  zpr_open(&base, &base_layout->program, &(zpr_options){.threads = 1}, &argc, &argv);
  zpr_path(folder, "%s/zplan_checkpoint_XXXXXX", P_tmpdir);
  cr_assert(mkdtemp(folder));
}

static void teardown(void) {
  nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  zpr_close(&base);
  free(base_layout);
}

static zpr play(const layout *l, int p, int d, int t) {
  zpr c = base;
  c.program = &l->program;
  c.stage = &l->stage[p];
  c.p = p;
  c.d = d;
  c.t = t;
  c.arena = calloc(1, (size_t)c.stage->arena_bytes);
  return c;
}

/* What element e of array `kind` (0 parameter, 1 and 2 moments) of a tensor is: exact in f32. */
static double value_of(const char *name, int kind, int64_t e) {
  int sum = 0;
  for (const char *s = name; *s; s++) sum = sum * 7 % 97 + *s;
  return kind * 100000 + sum * 200 + (double)e + 0.25;
}

typedef struct visit {
  zpr *c;
  char name[64];
  bool check;
  int64_t low, high, stored; /* what the rank has the moments of: elements, and where they stand */
  int64_t seen, wrong;
} visit;

static void visit_element(visit *v, int kind, int64_t at, int64_t local, int64_t global) {
  char *x = zpr_at(v->c, at);
  double want = value_of(v->name, kind, global);
  bool f64 = v->c->program->dtype == ZPK_F64;
  v->seen++;
  if (v->check)
    v->wrong += (f64 ? ((double *)x)[local] : (double)((float *)x)[local]) != want;
  else if (f64)
    ((double *)x)[local] = want;
  else
    ((float *)x)[local] = (float)want;
}

static void visit_piece(void *arg, int64_t local, int64_t global, int64_t count) {
  visit *v = arg;
  const zpr_stage *stage = v->c->stage;
  for (int64_t i = 0; i < count; i++) {
    visit_element(v, 0, stage->params, local + i, global + i);
    if (local + i < v->low || local + i >= v->high) continue;
    visit_element(v, 1, stage->moment1, v->stored + local + i - v->low, global + i);
    if (stage->moment2 >= 0) visit_element(v, 2, stage->moment2, v->stored + local + i - v->low, global + i);
  }
}

/* Fills (checks) every logical element that this rank holds. */
static visit visit_rank(zpr *c, bool check) {
  visit v = {.c = c, .check = check};
  for (int r = 0; r < c->stage->n_runs; r++)
    for (int64_t i = 0; i < c->stage->runs[r].count; i++)
      for (int k = 0; k < c->stage->runs[r].n_params; k++) {
        const zpr_run *run = &c->stage->runs[r];
        int64_t begin = run->base + i * run->stride, owners = c->program->zero ? c->program->data : 1;
        v.low = begin + (c->program->zero ? c->d : 0) * (run->stride / owners);
        v.high = v.low + run->stride / owners;
        v.stored = begin / owners;
        zpr_instance_name(v.name, sizeof v.name, run->params[k].name, run->first + i);
        zpr_param_pieces(c, run, i, k, visit_piece, &v);
      }
  return v;
}

static void each_rank(const layout *l, void (*fn)(zpr *c, void *arg), void *arg) {
  const zpr_program *g = &l->program;
  for (int p = 0; p < g->pipeline; p++)
    for (int d = 0; d < g->data; d++)
      for (int t = 0; t < g->tensor; t++) {
        zpr c = play(l, p, d, t);
        fn(&c, arg);
        free(c.arena);
      }
}

static void write_rank(zpr *c, void *arg) {
  zpr_error error = {0};
  visit_rank(c, false);
  cr_assert(zpr_save_write(c, arg, &error), "%s", error.text);
}

static void save_all(const layout *l, int64_t step) {
  zpr first = play(l, 0, 0, 0);
  zpr_save save;
  zpr_error error = {0};
  zpr_save_open(&first, &save, folder, step, 0, 4711);
  cr_assert(zpr_save_begin(&save, &error), "%s", error.text);
  each_rank(l, write_rank, &save);
  cr_assert(zpr_save_publish(&first, &save, &error), "%s", error.text);
  zpr_save_close(&save);
  free(first.arena);
}

static void load_rank(zpr *c, void *arg) {
  cr_expect_eq(zpr_checkpoint_load(c, folder), *(int64_t *)arg);
  visit v = visit_rank(c, true);
  const zpr_program *g = c->program;
  cr_expect_eq(v.wrong, 0, "tensor %d x pipeline %d x data %d zero %d, rank p %d d %d t %d: %d of %d wrong", g->tensor,
               g->pipeline, g->data, g->zero, c->p, c->d, c->t, (int)v.wrong, (int)v.seen);
}

static const int layouts[][4] = {{1, 1, 1, 0}, {2, 2, 2, 1}, {3, 1, 1, 0}, {1, 2, 2, 0},
                                 {2, 1, 4, 1}, {5, 2, 1, 1}, {4, 2, 4, 1}, {7, 1, 2, 0}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void every_layout_loads(zpk_dtype dtype, int from) {
  const int *w = layouts[from];
  layout *writer = make_layout(w[0], w[1], w[2], w[3], dtype);
  int64_t step = 100 + from;
  save_all(writer, step);
  for (int i = 0; i < LAYOUTS; i++) {
    layout *reader = make_layout(layouts[i][0], layouts[i][1], layouts[i][2], layouts[i][3], dtype);
    each_rank(reader, load_rank, &step);
    free(reader);
  }
  free(writer);
}

TestSuite(rt_checkpoint, .init = setup, .fini = teardown);

Test(rt_checkpoint, any_layout_loads_any_other) {
  for (int from = 0; from < LAYOUTS; from++) every_layout_loads(ZPK_F64, from);
  every_layout_loads(ZPK_F32, 1);
}

/* The bytes of the file do not depend on the layout that wrote it. */
static char *file_bytes(const char *name, size_t *bytes) {
  char path[ZPR_PATH];
  FILE *in = fopen(zpr_path(path, "%s/%s", folder, name), "rb");
  cr_assert(in, "%s", path);
  fseek(in, 0, SEEK_END);
  *bytes = (size_t)ftell(in);
  rewind(in);
  char *text = malloc(*bytes + 1);
  cr_assert_eq(fread(text, 1, *bytes, in), *bytes);
  text[*bytes] = 0;
  fclose(in);
  return text;
}

Test(rt_checkpoint, files_are_the_same_for_all_layouts) {
  for (int i = 0; i < LAYOUTS; i++) {
    layout *l = make_layout(layouts[i][0], layouts[i][1], layouts[i][2], layouts[i][3], ZPK_F32);
    save_all(l, i);
    free(l);
  }
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
  for (int f = 0; f < 2; f++)
    for (int i = 1; i < LAYOUTS; i++) {
      char path[64];
      size_t bytes, other_bytes;
      snprintf(path, sizeof path, "step_000000/%s", names[f]);
      char *text = file_bytes(path, &bytes);
      snprintf(path, sizeof path, "step_%06d/%s", i, names[f]);
      char *other = file_bytes(path, &other_bytes);
      cr_expect(bytes == other_bytes && memcmp(text, other, bytes) == 0, "layout %d, %s", i, names[f]);
      free(text);
      free(other);
    }
}

Test(rt_checkpoint, header_is_what_other_readers_expect) {
  layout *l = make_layout(2, 1, 1, 0, ZPK_F32);
  size_t bytes;
  save_all(l, 7);
  char *text = file_bytes("step_000007/model.safetensors", &bytes);
  uint64_t header = (unsigned char)text[0] | (uint64_t)(unsigned char)text[1] << 8;
  static const char start[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"h.0.attn.weight\":{\"dtype\":\"F32\",\"shape\":[6,30],"
      "\"data_offsets\":[0,720]},\"h.0.ln.gain\":{\"dtype\":\"F32\",\"shape\":[6],"
      "\"data_offsets\":[720,744]},";
  cr_expect(memcmp(text + 8, start, strlen(start)) == 0);
  cr_expect_eq(header % 8, 0);
  cr_expect_eq(bytes, 8 + header + 4 * (LAYERS * (180 + 6) + 42));
  float element; /* row 2, column 13 of h.0.attn.weight, row-major */
  memcpy(&element, text + 8 + header + 4 * (2 * 30 + 13), 4);
  cr_expect_eq(element, (float)value_of("h.0.attn.weight", 0, 2 * 30 + 13));
  free(text);
  free(l);
}

Test(rt_checkpoint, sgd_has_one_moment) {
  layout *l = make_layout(2, 1, 2, 1, ZPK_F64);
  int64_t step = 3;
  size_t bytes;
  l->program.optimizer = 2;
  l->program.momentum = 0.9; /* without it there is none */
  make_stage(l, 0, 0, LAYERS);
  save_all(l, step);
  char *text = file_bytes("step_000003/optimizer.safetensors", &bytes);
  cr_expect(strstr(text + 8, "\"wte.momentum_buffer\"") && !strstr(text + 8, "exp_avg"));
  each_rank(l, load_rank, &step);
  free(text);
  free(l);
}

/* ---- folders ---- */

static bool exists(const char *name) {
  char path[ZPR_PATH];
  return access(zpr_path(path, "%s/%s", folder, name), F_OK) == 0;
}

/* Entries that begin with a dot or end in .tmp: what must never stay. */
static int leftovers(const char *dir) {
  int n = 0;
  DIR *entries = opendir(dir);
  if (!entries) return 0;
  for (struct dirent *e; (e = readdir(entries));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      n += e->d_name[0] == '.' || strstr(e->d_name, ".tmp");
  closedir(entries);
  return n;
}

Test(rt_checkpoint, keeps_the_newest_and_names_the_latest) {
  size_t bytes;
  for (int64_t step = 10; step <= 50; step += 10) zpr_checkpoint_save(&base, folder, step, 2);
  cr_expect(!exists("step_000010") && !exists("step_000030") && exists("step_000040") && exists("step_000050"));
  char *latest = file_bytes("latest", &bytes);
  cr_expect_str_eq(latest, "step_000050\n");
  free(latest);
  cr_expect_eq(leftovers(folder), 0);
  zpr_checkpoint_save(&base, folder, 50, 2); /* again: replaced */
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 50);
  zpr_checkpoint_save(&base, folder, 20, 1); /* resumed from an older one: later steps stay, latest counts */
  cr_expect(exists("step_000050"));
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 20);
}

Test(rt_checkpoint, incomplete_folders_do_not_count) {
  char path[ZPR_PATH];
  cr_expect_eq(zpr_checkpoint_load(&base, folder), -1);
  cr_expect_eq(zpr_checkpoint_load(&base, zpr_path(path, "%s/nowhere", folder)), -1);
  zpr_checkpoint_save(&base, folder, 5, 0);
  mkdir(zpr_path(path, "%s/step_000009", folder), 0777);
  mkdir(zpr_path(path, "%s/.step_000011.tmp-1", folder), 0777);
  unlink(zpr_path(path, "%s/latest", folder));
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 5);
  zpr_checkpoint_save(&base, folder, 6, 0);
  cr_expect_eq(leftovers(folder), 0);
}

Test(rt_checkpoint, missing_folders_are_made) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, zpr_path(path, "%s/a/b/c", folder), 1, 1);
  cr_expect_eq(zpr_checkpoint_load(&base, path), 1);
}

/* ---- trouble ---- */

/* Runs fn in a child; its standard error, and that it ended with status 1. */
static void expect_error(void (*fn)(void), const char *what, const char *code, const char *part) {
  int pipe_ends[2], status;
  char text[2048];
  size_t used = 0;
  cr_assert_eq(pipe(pipe_ends), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], 2);
    close(pipe_ends[0]);
    fn();
    _exit(0);
  }
  close(pipe_ends[1]);
  for (ssize_t got; (got = read(pipe_ends[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
  close(pipe_ends[0]);
  text[used] = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s: status %x, %s", what, (unsigned)status, text);
  cr_expect(strstr(text, code) && strstr(text, part), "%s: \"%s\" has no %s or \"%s\"", what, text, code, part);
  cr_expect(strncmp(text, "error[", 6) == 0 && !strstr(text + 1, "error["), "%s: one message: %s", what, text);
}

static void load_base(void) { zpr_checkpoint_load(&base, folder); }

/* Opens a file of checkpoint 1 and writes `bytes` of text at `at` (negative: from the end). */
static void overwrite(const char *name, long at, const char *text, size_t bytes) {
  char path[ZPR_PATH];
  FILE *f = fopen(zpr_path(path, "%s/step_000001/%s", folder, name), "r+b");
  cr_assert(f);
  fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
  fwrite(text, 1, bytes, f);
  fclose(f);
}

/* Makes sizes and checksums of the manifest fit the files again, so that what stands in them is looked at. */
static void renew_manifest(void) {
  char path[ZPR_PATH];
  zpr_error error = {0};
  cr_assert(zpr_manifest_write(&base, zpr_path(path, "%s/step_000001", folder), 1, &error));
}

Test(rt_checkpoint, damaged_files) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, folder, 1, 0);
  overwrite("optimizer.safetensors", -3, "!", 1);
  expect_error(load_base, "flipped byte", "Z0812", "checksum");
  renew_manifest();
  overwrite("model.safetensors", 9, "}", 1);
  expect_error(load_base, "flipped byte of the header", "Z0812", "checksum");
  renew_manifest();
  expect_error(load_base, "bad header", "Z0812", "not a list of tensors");
  zpr_checkpoint_save(&base, folder, 1, 0);
  overwrite("model.safetensors", 0, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
  renew_manifest();
  expect_error(load_base, "huge header", "Z0812", "out of range");
  zpr_checkpoint_save(&base, folder, 1, 0);
  cr_assert_eq(truncate(zpr_path(path, "%s/step_000001/model.safetensors", folder), 1000), 0);
  expect_error(load_base, "truncated", "Z0812", "1000 bytes");
  renew_manifest();
  expect_error(load_base, "truncated with a fitting manifest", "Z0812", "not what its header says");
  zpr_checkpoint_save(&base, folder, 1, 0);
  size_t bytes;
  char *text = file_bytes("step_000001/model.safetensors", &bytes);
  overwrite("model.safetensors", strstr(text + 8, "[6,30]") - text, "[6,31]", 6);
  free(text);
  renew_manifest();
  expect_error(load_base, "shape against length", "Z0812", "does not fit its shape");
  unlink(path);
  expect_error(load_base, "missing file", "Z0812", "model.safetensors");
  zpr_checkpoint_save(&base, folder, 1, 0);
  overwrite("manifest.json", 0, "[", 1);
  expect_error(load_base, "bad manifest", "Z0812", "manifest");
}

/* The manifest, with `was` in it replaced by as many bytes. */
static void alter_manifest(const char *was, const char *by) {
  size_t bytes;
  char *text = file_bytes("step_000001/manifest.json", &bytes), *at = strstr(text, was);
  cr_assert(at && strlen(was) == strlen(by), "%s", was);
  overwrite("manifest.json", at - text, by, strlen(by));
  free(text);
}

/* Each would be divided by, or multiplied beyond 64 bits, when the place in the data is worked out. */
Test(rt_checkpoint, manifests_that_no_run_can_have_written) {
  static const char *const altered[][2] = {
      {"\"sequence\": 8", "\"saquence\": 8"}, {"\"sequence\": 8", "\"sequence\": 0"}, {"\"samples\":", "\"simples\":"}};
  for (size_t i = 0; i < sizeof altered / sizeof *altered; i++) {
    zpr_checkpoint_save(&base, folder, 1, 0);
    alter_manifest(altered[i][0], altered[i][1]);
    expect_error(load_base, altered[i][1], "Z0812", "not the manifest of a checkpoint");
  }
  base.samples = INT64_MAX / 16;
  zpr_checkpoint_save(&base, folder, 1, 0);
  base.samples = 0;
  expect_error(load_base, "tokens beyond 64 bits", "Z0812", "not the manifest of a checkpoint");
}

static layout *foreign;
static void load_foreign(void) {
  zpr c = play(foreign, 0, 0, 0);
  zpr_checkpoint_load(&c, folder);
}

Test(rt_checkpoint, foreign_checkpoints) {
  zpr_checkpoint_save(&base, folder, 1, 0);
  foreign = make_layout(1, 1, 1, 0, ZPK_F32);
  expect_error(load_foreign, "other dtype", "Z0813", "as F64, this program trains in F32");
  free(foreign);
  foreign = make_layout(1, 1, 1, 0, ZPK_F64);
  foreign->layer[1].name = "h.{}.norm.gain";
  expect_error(load_foreign, "other name", "Z0813", "\"h.0.ln.gain\", which this model does not have");
  foreign->layer[1].name = "h.{}.bias";
  expect_error(load_foreign, "other name", "Z0813", "no tensor \"h.0.bias\"");
  foreign->layer[1].name = "h.{}.ln.gain";
  foreign->run[0][1].count = 2;
  expect_error(load_foreign, "fewer layers", "Z0813", "\"h.2.attn.weight\", which this model does not have");
  foreign->run[0][1].count = LAYERS;
  foreign->wte.shape[1] = 4;
  expect_error(load_foreign, "other shape", "Z0813", "\"wte\" of shape [7, 6], this model has [7, 4]");
  foreign->wte.shape[1] = WIDTH;
  foreign->program.optimizer = 2;
  foreign->stage[0].moment2 = -1;
  expect_error(load_foreign, "other optimizer", "Z0813", ".exp_avg");
  free(foreign);
}

static void save_below_a_file(void) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, zpr_path(path, "%s/file/checkpoints", folder), 1, 0);
}

static void save_with_little_room(void) {
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){3000, 3000});
  zpr_checkpoint_save(&base, folder, 2, 0);
}

Test(rt_checkpoint, folders_that_cannot_be_written) {
  char path[ZPR_PATH];
  FILE *file = fopen(zpr_path(path, "%s/file", folder), "w");
  cr_assert(file);
  fclose(file);
  expect_error(save_below_a_file, "a file in the way", "Z0811", "Not a directory");
  unlink(path);
  zpr_checkpoint_save(&base, folder, 1, 0);
  expect_error(save_with_little_room, "no room", "Z0811", "File too large");
  cr_expect_eq(leftovers(folder), 0, "nothing half-written remains");
  cr_expect(!exists("step_000002"));
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 1);
}

/* ---- the reader of JSON ---- */

static bool accepts(const char *text) {
  zpr_json j = zpr_json_open(text, strlen(text));
  zpr_json_skip(&j);
  return zpr_json_done(&j);
}

Test(rt_json, accepts_and_refuses) {
  static const char *const good[] = {"{}", "[]", " [1, 2.5e-3, -7, true, null] ",
                                     "{\"a\": {\"b\": [[], {}]}, \"c\": \"\\u0041\\n\"}"};
  static const char *const bad[] = {"",      "{",     "[",     "[1,]",     "{\"a\":1,}", "{\"a\" 1}",
                                    "{a:1}", "[1 2]", "\"abc", "\"\\q\"",  "\"\\u00",    "nul",
                                    "[}",    "{]",    "{} x",  "\"a\nb\"", "[,1]"};
  char deep[101] = "";
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) cr_expect(accepts(good[i]), "%s", good[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect(!accepts(bad[i]), "%s", bad[i]);
  for (int i = 0; i < 50; i++) deep[i] = '[', deep[99 - i] = ']';
  cr_expect(!accepts(deep), "deeper than the limit");
}

Test(rt_json, integers) {
  static const struct {
    const char *text;
    bool good;
    int64_t value;
  } cases[] = {{"0", true, 0},
               {"9223372036854775807", true, INT64_MAX},
               {"9223372036854775808", false, 0},
               {"99999999999999999999", false, 0},
               {"-1", false, 0},
               {"1.5", false, 0},
               {"1e3", false, 0},
               {"007", false, 0},
               {"", false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t value = -1;
    zpr_json j = zpr_json_open(cases[i].text, strlen(cases[i].text));
    bool good = zpr_json_int(&j, &value) && zpr_json_done(&j);
    cr_expect_eq(good, cases[i].good, "%s", cases[i].text);
    if (good) cr_expect_eq(value, cases[i].value);
  }
}

/* Hundreds of damaged headers: each is read or refused, and the sanitizers watch. */
Test(rt_checkpoint, damaged_headers_never_crash) {
  char path[ZPR_PATH];
  size_t bytes;
  int refused = 0;
  zpr_checkpoint_save(&base, folder, 1, 0);
  char *text = file_bytes("step_000001/model.safetensors", &bytes);
  zpr_path(path, "%s/step_000001/model.safetensors", folder);
  static const char alphabet[] = "{}[]\",:0123456789\\ue-+x";
  for (uint64_t round = 0; round < 600; round++) {
    char *copy = malloc(bytes);
    memcpy(copy, text, bytes);
    for (uint64_t k = 0; k <= round % 3; k++) {
      uint64_t draw = (uint64_t)(zpk_philox_uniform(1, 2, 3, 4, round % 65536, k + round * 4) * 4294967296.0);
      copy[draw % 7 ? 8 + draw / 64 % 900 : draw / 64 % 8] = alphabet[draw % (sizeof alphabet - 1)];
    }
    FILE *out = fopen(path, "wb");
    cr_assert(out && fwrite(copy, 1, bytes, out) == bytes);
    fclose(out);
    zpr_tensors list = {0};
    zpr_error error = {0};
    bool good = zpr_tensors_read(&list, path, &error);
    cr_assert_eq(good, error.code[0] == 0);
    refused += !good;
    zpr_tensors_free(&list);
    free(copy);
  }
  cr_expect_gt(refused, 300);
  free(text);
}
