/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of checkpoints share: a small model in any layout, whose ranks are played one after the other, each
 * with an arena of its own, and a folder that goes away. */
#ifndef CHECKPOINT_TESTING_H
#define CHECKPOINT_TESTING_H

#include "checkpoint.h"
#include "state.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a small model: tied wte [7, 6] over words, three layers with a fused projection of 5 heads and a gain ---- */

enum { WORDS = 7, WIDTH = 6, HEADS = 5, LAYERS = 3, MAX_STAGES = 2 };

typedef struct layout {
  zpr_program program;
  zpr_stage stage[MAX_STAGES];
  zpr_run run[MAX_STAGES][2];
  zpr_param wte, layer[2];
} layout;

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Instances divide over the data ranks, each of which owns a piece of every one with ZeRO. */
static inline void make_stage(layout *l, int p, int64_t first, int64_t count) {
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
                            .flat = {flat},
                            .shard = {shard},
                            .n_runs = 2,
                            .runs = l->run[p]};
}

static inline layout *make_layout(int tensor, int pipeline, int data, int zero, zpk_dtype dtype) {
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

static inline int remove_entry(const char *path, const struct stat *status, int flag, struct FTW *ftw) {
  (void)status, (void)flag, (void)ftw;
  return remove(path);
}

static inline void setup(void) {
  int argc = 1;
  char *arguments[] = {"test", NULL}, **argv = arguments;
  base_layout = make_layout(1, 1, 1, 0, ZPK_F64);
  zpr_open(&base, &base_layout->program, &(zpr_options){.threads = 1}, &argc, &argv);
  zpr_path(folder, "%s/zplan_checkpoint_XXXXXX", P_tmpdir);
  cr_assert(mkdtemp(folder));
}

static inline void teardown(void) {
  nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  zpr_close(&base);
  free(base_layout);
}

static inline zpr play(const layout *l, int p, int d, int t) {
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
static inline double value_of(const char *name, int kind, int64_t e) {
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

static inline void visit_element(visit *v, int kind, int64_t at, int64_t local, int64_t global) {
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

static inline void visit_piece(void *arg, int64_t local, int64_t global, int64_t count) {
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
static inline visit visit_rank(zpr *c, bool check) {
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

static inline void each_rank(const layout *l, void (*fn)(zpr *c, void *arg), void *arg) {
  const zpr_program *g = &l->program;
  for (int p = 0; p < g->pipeline; p++)
    for (int d = 0; d < g->data; d++)
      for (int t = 0; t < g->tensor; t++) {
        zpr c = play(l, p, d, t);
        fn(&c, arg);
        free(c.arena);
      }
}

static inline void write_rank(zpr *c, void *arg) {
  zpr_error error = {0};
  visit_rank(c, false);
  cr_assert(zpr_save_write(c, arg, &error), "%s", error.text);
}

static inline void save_all(const layout *l, int64_t step) {
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

static inline void load_rank(zpr *c, void *arg) {
  cr_expect_eq(zpr_checkpoint_load(c, folder), *(int64_t *)arg);
  visit v = visit_rank(c, true);
  const zpr_program *g = c->program;
  cr_expect_eq(v.wrong, 0, "tensor %d x pipeline %d x data %d zero %d, rank p %d d %d t %d: %d of %d wrong", g->tensor,
               g->pipeline, g->data, g->zero, c->p, c->d, c->t, (int)v.wrong, (int)v.seen);
}

static const int layouts[][4] = {{1, 1, 1, 0}, {2, 2, 2, 1}, {3, 1, 1, 0}, {1, 2, 2, 0},
                                 {2, 1, 4, 1}, {5, 2, 1, 1}, {4, 2, 4, 1}, {7, 1, 2, 0}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static inline void every_layout_loads(zpk_dtype dtype, int from) {
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

/* The bytes of the file do not depend on the layout that wrote it. */
static inline char *file_bytes(const char *name, size_t *bytes) {
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

/* ---- folders ---- */

static inline bool exists(const char *name) {
  char path[ZPR_PATH];
  return access(zpr_path(path, "%s/%s", folder, name), F_OK) == 0;
}

/* Entries that begin with a dot or end in .tmp: what must never stay. */
static inline int leftovers(const char *dir) {
  int n = 0;
  DIR *entries = opendir(dir);
  if (!entries) return 0;
  for (struct dirent *e; (e = readdir(entries));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      n += e->d_name[0] == '.' || strstr(e->d_name, ".tmp");
  closedir(entries);
  return n;
}

#endif
