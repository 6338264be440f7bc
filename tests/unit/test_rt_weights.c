/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of parameters on uneven splits, their initial values, and padding. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"

enum { MOST = 512 };

typedef struct fixture {
  zpr c;
  zpr_program program;
  zpr_stage stage;
  zpr_run run;
  double params[MOST];
} fixture;

/* A context of tensor rank t without starting ranks: pieces need nothing else. */
static void make(fixture *f, const zpr_param *param, int tensor, int t) {
  *f = (fixture){.program = {.dtype = ZPK_F64, .tensor = tensor, .seed = 3},
                 .stage = {.flat = {MOST}, .n_runs = 1},
                 .run = {.first = 2, .count = 1, .n_params = 1}};
  f->run.params = param;
  f->run.stride = param->elements;
  f->stage.runs = &f->run;
  f->stage.moment1 = f->stage.moment2 = -1;
  f->c = (zpr){.program = &f->program, .stage = &f->stage, .ranks = 1, .t = t, .arena = (char *)f->params};
  f->c.state = zpr_alloc(&f->c, 1, sizeof *f->c.state);
  zpr_pool_start(&f->c, 2, false);
}

static void drop(fixture *f) {
  zpr_pool_stop(&f->c);
  free(f->c.state);
}

typedef struct cover {
  int global[MOST], local[MOST]; /* times covered by a piece */
  int64_t global_of[MOST];
  int pieces;
} cover;

static void note_piece(void *arg, int64_t local, int64_t global, int64_t count) {
  cover *v = arg;
  v->pieces++;
  for (int64_t i = 0; i < count; i++) {
    v->global[global + i]++;
    v->local[local + i]++;
    v->global_of[local + i] = global + i;
  }
}

/* Fused q,k,v of 5 heads of size 2, model width 3, over 2 ranks: [3 * 5 * 2, 3]. */
static zpr_param qkv(int tensor) {
  int64_t local = (5 + tensor - 1) / tensor;
  return (zpr_param){.name = "h.{}.qkv",
                     .rank = 2,
                     .shape = {30, 3},
                     .split_dim = 0,
                     .outer = 3,
                     .units = 5,
                     .elements = 3 * local * 2 * 3,
                     .init = ZPR_INIT_NORMAL,
                     .init_b = 1};
}

static void check_cover(const zpr_param *(*param)(int tensor), int tensor, int64_t logical) {
  static cover all;
  all = (cover){0};
  for (int t = 0; t < tensor; t++) {
    fixture f;
    make(&f, param(tensor), tensor, t);
    memset(all.local, 0, sizeof all.local);
    zpr_param_pieces(&f.c, &f.run, 0, 0, note_piece, &all);
    for (int i = 0; i < MOST; i++) cr_assert(all.local[i] <= 1);
    drop(&f);
  }
  for (int64_t i = 0; i < MOST; i++) cr_assert_eq(all.global[i], i < logical, "element %d", (int)i);
}

static const zpr_param *qkv_param(int tensor) {
  static zpr_param p;
  p = qkv(tensor);
  return &p;
}

/* Columns of a [4, 7] matrix: pieces are parts of rows. */
static const zpr_param *column_param(int tensor) {
  static zpr_param p;
  p = (zpr_param){.name = "w",
                  .rank = 2,
                  .shape = {4, 7},
                  .split_dim = 1,
                  .outer = 1,
                  .units = 7,
                  .elements = 4 * ((7 + tensor - 1) / tensor),
                  .init = ZPR_INIT_UNIFORM,
                  .init_a = 1,
                  .init_b = 2};
  return &p;
}

/* Those columns in shares of 8, which are more than any rank needs. */
static const zpr_param *padded_param(int tensor) {
  static zpr_param p;
  p = *column_param(tensor);
  p.elements = 4 * 8;
  return &p;
}

Test(weights, every_logical_element_is_on_one_rank) {
  for (int tensor = 1; tensor <= 8; tensor++) {
    check_cover(qkv_param, tensor, 90);
    check_cover(column_param, tensor, 28);
    check_cover(padded_param, tensor, 28);
  }
}

Test(weights, places_of_padded_columns) {
  fixture f;
  cover v = {0};
  make(&f, padded_param(1), 1, 0);
  zpr_param_pieces(&f.c, &f.run, 0, 0, note_piece, &v);
  cr_assert_eq(v.pieces, 4); /* rows */
  for (int i = 0; i < 32; i++) {
    cr_expect_eq(v.local[i], i % 8 < 7, "element %d", i);
    if (i % 8 < 7) cr_expect_eq(v.global_of[i], i / 8 * 7 + i % 8, "element %d", i);
  }
  for (int i = 0; i < MOST; i++) f.params[i] = 99;
  zpr_init_weights(&f.c, NULL, NULL);
  for (int i = 7; i < 32; i += 8) cr_expect_eq(f.params[i], 0, "element %d", i);
  drop(&f);
}

Test(weights, places_of_uneven_heads) {
  fixture f;
  cover v = {0};
  make(&f, qkv_param(2), 2, 1); /* heads 3 and 4, and one of padding */
  zpr_param_pieces(&f.c, &f.run, 0, 0, note_piece, &v);
  cr_assert_eq(v.pieces, 3);
  cr_assert_eq(v.global_of[0], 3 * 6);
  cr_assert_eq(v.global_of[18], 30 + 3 * 6); /* k: local block of 3 heads * 6 elements */
  cr_assert_eq(v.local[12], 0);              /* padding */
  drop(&f);
}

Test(weights, whole_parameters_are_one_piece) {
  fixture f;
  cover v = {0};
  make(&f, qkv_param(1), 1, 0);
  zpr_param_pieces(&f.c, &f.run, 0, 0, note_piece, &v);
  cr_assert_eq(v.pieces, 1);
  drop(&f);
}

Test(weights, initial_values_do_not_depend_on_the_split) {
  static double whole[MOST];
  fixture f;
  make(&f, qkv_param(1), 1, 0);
  f.stage.grads = 0; /* shares the buffer: zeroed before the values are written */
  zpr_init_weights(&f.c, NULL, NULL);
  memcpy(whole, f.params, sizeof whole);
  cr_assert_neq(whole[0], whole[1]);
  cr_assert_eq(whole[90], 0);
  drop(&f);
  for (int t = 0; t < 2; t++) {
    cover v = {0};
    make(&f, qkv_param(2), 2, t);
    for (int i = 0; i < MOST; i++) f.params[i] = 99;
    zpr_init_weights(&f.c, NULL, NULL);
    zpr_param_pieces(&f.c, &f.run, 0, 0, note_piece, &v);
    for (int i = 0; i < 54; i++)
      cr_assert_eq(f.params[i], v.local[i] ? whole[v.global_of[i]] : 0, "rank %d, element %d", t, i);
    drop(&f);
  }
}

Test(weights, names_of_instances) {
  char buf[64];
  cr_assert_str_eq(zpr_instance_name(buf, sizeof buf, "h.{}.mlp.weight", 12), "h.12.mlp.weight");
  cr_assert_str_eq(zpr_instance_name(buf, sizeof buf, "wte", 12), "wte");
}
