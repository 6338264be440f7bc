/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs by name: NumPy files and what is wrong with them, samples in order and where they stand, identity, made-up
 * inputs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "state.h"
#include "folder_testing.h"
#include "narrow_testing.h"

enum { SAMPLES = 5, S = 2, PIXELS = 3, CLASSES = 4 };

TestSuite(data_arrays, .init = make_folder);

/* As numpy.save does: version 1.0, the header filled up with blanks to a multiple of 64. */
static void write_npy(const char *name, const char *dictionary, const void *body, size_t bytes) {
  char path[128], header[256];
  snprintf(path, sizeof path, "%s/%s.npy", folder, name);
  int length = (int)strlen(dictionary) + 1, padding = (64 - (10 + length) % 64) % 64, all = length + padding;
  snprintf(header, sizeof header, "%s%*s\n", dictionary, padding, "");
  FILE *f = fopen(path, "wb");
  cr_assert(f && fwrite("\x93NUMPY\x01\x00", 1, 8, f) == 8);
  fputc(all & 0xff, f);
  fputc(all >> 8, f);
  cr_assert(fwrite(header, 1, (size_t)all, f) == (size_t)all);
  cr_assert(fwrite(body, 1, bytes, f) == bytes && fclose(f) == 0);
}

/* Number k of sample n is n + k / 8, which every dtype has. */
static float pixel(int n, int k) { return (float)n + (float)k / 8; }

static void write_images(const char *name, int samples) {
  float body[16 * S * PIXELS];
  char dictionary[96];
  for (int i = 0; i < samples * S * PIXELS; i++) body[i] = pixel(i / (S * PIXELS), i % (S * PIXELS));
  snprintf(dictionary, sizeof dictionary, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 2, 3), }", samples);
  write_npy(name, dictionary, body, sizeof *body * (size_t)(samples * S * PIXELS));
}

static void write_labels(const int64_t *labels, int samples) {
  char dictionary[96];
  snprintf(dictionary, sizeof dictionary, "{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }", samples);
  write_npy("labels", dictionary, labels, sizeof *labels * (size_t)samples);
}

static const int64_t some_labels[] = {3, 0, 1, -1, 2, 1, 0, 3};

static const zpr_named inputs[] = {
    {.name = "images", .rank = 2, .shape = {S, PIXELS}, .elements = S * PIXELS, .numbers = true},
    {.name = "labels", .shape = {1}, .elements = 1, .least = -1, .limit = CLASSES, .labels = true}};

typedef struct loader {
  zpr c;
  zpr_program program;
  zpr_stage stage;
} loader;

/* Batch 4 in two micro-batches: two blocks of numbers, each rounded up, then four labels. */
static void open_loader(loader *l, zpk_dtype dtype) {
  *l = (loader){.stage = {.arena_bytes = 2 * ZPR_INPUT_ALIGN + 4 * 4},
                .program = {.name = "loader",
                            .dtype = dtype,
                            .tensor = 1,
                            .pipeline = 1,
                            .data = 1,
                            .batch = 4,
                            .microbatch = 2,
                            .microbatches = 2,
                            .sequence = S,
                            .vocabulary = CLASSES,
                            .n_named = 2,
                            .named = inputs}};
  l->program.stages = &l->stage;
  int argc = 0;
  char **argv = NULL;
  zpr_open(&l->c, &l->program, &zpr_default_options, &argc, &argv);
}

static void expect_sample(loader *l, int place, int sample) {
  const void *numbers = zpr_numbers(&l->c, 0, place / 2);
  for (int k = 0; k < S * PIXELS; k++)
    cr_expect_eq(get_as(l->program.dtype, numbers, place % 2 * S * PIXELS + k), pixel(sample, k),
                 "number %d of sample %d", k, sample);
  cr_expect_eq(zpr_input(&l->c, 1, place / 2)[place % 2], some_labels[sample]);
}

/* What stands for none in the file is none, though it were a class. */
Test(data_arrays, labels_with_another_mark_for_none) {
  loader l;
  write_images("images", SAMPLES);
  write_labels(some_labels, SAMPLES);
  open_loader(&l, ZPK_F32);
  zpr_named recoded[2] = {inputs[0], inputs[1]};
  recoded[1].recoded = true, recoded[1].none = some_labels[0];
  l.program.named = recoded;
  zpr_source source = {.kind = ZPR_NPY, .path = folder};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  int counted = 0;
  for (int i = 0; i < 4; i++) {
    int32_t want = some_labels[i] == some_labels[0] ? -1 : (int32_t)some_labels[i];
    cr_expect_eq(zpr_input(&l.c, 1, i / 2)[i % 2], want, "label %d", i);
    counted += want >= 0;
  }
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / counted, 1e-15);
  zpr_data_close(data);
  zpr_close(&l.c);
}

Test(data_arrays, samples_in_order_in_every_dtype) {
  write_images("images", SAMPLES);
  write_labels(some_labels, SAMPLES);
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++) {
    loader l;
    open_loader(&l, (zpk_dtype)dtype);
    zpr_source source = {.kind = ZPR_NPY, .path = folder};
    zpr_data *data = zpr_data_open(&l.c, &source);
    cr_expect_eq(zpr_data_windows(data), SAMPLES);
    zpr_data_load(&l.c, data, 0);
    for (int i = 0; i < 4; i++) expect_sample(&l, i, i);
    cr_expect_float_eq(l.c.token_weight[0], 1.0 / 3, 1e-15, "one of four has no label");
    zpr_data_load(&l.c, data, 4); /* 4, and around */
    for (int i = 0; i < 4; i++) expect_sample(&l, i, (4 + i) % SAMPLES);
    cr_expect_float_eq(l.c.token_weight[0], 1.0 / 4, 1e-15);
    zpr_data_close(data);
    zpr_close(&l.c);
  }
}

/* Samples after the end have no labels, and count in no mean; where no label says so, only whole batches come once. */
Test(data_arrays, samples_come_once) {
  loader l;
  write_images("images", SAMPLES);
  write_labels(some_labels, SAMPLES);
  open_loader(&l, ZPK_F32);
  zpr_source source = {.kind = ZPR_NPY, .path = folder};
  zpr_data *data = zpr_data_open(&l.c, &source);
  cr_expect_eq(zpr_data_once(data, 4), 4);
  cr_expect_eq(zpr_data_once(data, 12), SAMPLES);
  cr_expect(zpr_data_end(data, SAMPLES));
  cr_expect_not(zpr_data_end(data, SAMPLES));
  zpr_data_load(&l.c, data, 0);
  cr_expect_eq(zpr_data_labels(data, 0), 3);
  zpr_data_load(&l.c, data, 4);
  cr_expect_eq(zpr_data_labels(data, 0), 1);
  cr_expect_eq(l.c.token_weight[0], 1);
  for (int i = 0; i < 4; i++) cr_expect_eq(zpr_input(&l.c, 1, i / 2)[i % 2], i == 0 ? some_labels[4] : -1);
  const zpr_loss losses[] = {{.name = "a", .weight = 1, .labels = 1, .lengths = -1},
                             {.name = "b", .weight = 1, .labels = -1, .lengths = -1, .rows = 2}};
  l.program.losses = losses;
  l.program.n_losses = 2;
  cr_expect_eq(zpr_data_once(data, 12), 4);
  zpr_data_close(data);
  write_images("images", 3);
  write_labels(some_labels, 3);
  data = zpr_data_open(&l.c, &source);
  cr_expect_eq(zpr_data_once(data, 12), 0);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* Two losses of which one has no label: it weighs nothing. Without any the run ends. */
Test(data_arrays, a_loss_without_labels) {
  static const int64_t none[] = {-1, -1, -1, -1, 2};
  static const zpr_named two[] = {
      {.name = "labels", .shape = {1}, .elements = 1, .least = -1, .limit = CLASSES, .labels = true},
      {.name = "others", .shape = {1}, .elements = 1, .least = -1, .limit = CLASSES, .labels = true}};
  const zpr_loss losses[] = {{.name = "a", .weight = 1, .labels = 0, .lengths = -1},
                             {.name = "b", .weight = 1, .labels = 1, .lengths = -1}};
  loader l;
  write_labels(some_labels, SAMPLES);
  write_npy("others", "{'descr': '<i8', 'fortran_order': False, 'shape': (5,), }", none, sizeof none);
  open_loader(&l, ZPK_F32);
  l.program.named = two;
  l.program.losses = losses;
  l.program.n_losses = 2;
  zpr_source source = {.kind = ZPR_NPY, .path = folder};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  cr_expect_eq(zpr_data_labels(data, 0), 3);
  cr_expect_eq(zpr_data_labels(data, 1), 0);
  cr_expect_eq(l.c.token_weight[1], 0);
  zpr_data_load(&l.c, data, 4);
  cr_expect_eq(zpr_data_labels(data, 1), 1, "4, and around");
  zpr_data_close(data);
  zpr_close(&l.c);
}

static void load_without_labels(bool training) {
  static const int64_t none[] = {-1, -1, -1, -1};
  loader l;
  write_images("images", 4);
  write_labels(none, 4);
  open_loader(&l, ZPK_F32);
  l.c.training = training;
  zpr_source source = {.kind = ZPR_NPY, .path = folder};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  const zpr_error *error = &l.c.state->data_error;
  cr_expect_str_eq(error->code, training ? "Z0803" : "", "%s", error->text);
  cr_expect(!training || strstr(error->text, "samples 0 to 3"), "%s", error->text);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* A validation may look at samples without any. */
Test(data_arrays, a_validation_without_labels) { load_without_labels(false); }

/* The batch is kept as one that cannot be trained, for all ranks to agree on. */
Test(data_arrays, a_step_without_labels) { load_without_labels(true); }

Test(data_arrays, bytes_stand_for_0_to_1_and_labels_may_be_narrow) {
  unsigned char images[SAMPLES * S * PIXELS], labels[SAMPLES] = {3, 0, 1, 2, 2};
  loader l;
  for (int i = 0; i < SAMPLES * S * PIXELS; i++) images[i] = (unsigned char)(i * 8);
  write_npy("images", "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 2, 3), }", images, sizeof images);
  write_npy("labels", "{'shape': (5,), 'fortran_order': False, 'descr': '|u1'}", labels, sizeof labels);
  open_loader(&l, ZPK_F64);
  zpr_data *data = zpr_data_open(&l.c, &(zpr_source){.kind = ZPR_NPY, .path = folder});
  zpr_data_load(&l.c, data, 1);
  for (int k = 0; k < S * PIXELS; k++)
    cr_expect_eq(((const double *)zpr_numbers(&l.c, 0, 0))[k], (double)(S * PIXELS + k) * 8 / 255);
  for (int i = 0; i < 4; i++) cr_expect_eq(zpr_input(&l.c, 1, i / 2)[i % 2], labels[1 + i]);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* ---- images as patches ---- */

/* Pixel (y, x) of channel c is a number of its own; the model reads [S, 3 * 2 * 2] of images of 4 x 6. */
static int color(int64_t y, int64_t x, int64_t c) { return (int)(100 * c + 10 * y + x); }

static double stored(zpk_dtype dtype, int byte) {
  if (dtype == ZPK_F64) return (double)byte / 255;
  float x = (float)byte / 255;
  return dtype == ZPK_F32 ? (double)x : wide_of(dtype, narrow_of(dtype, (double)x));
}

static void check_patches(zpk_dtype dtype, bool channels_first, bool transposed) {
  enum { H = 4, W = 6, C = 3, SIDE = 2, N = 2 };
  static const zpr_named rows[] = {
      {.name = "images", .rank = 2, .shape = {6, 12}, .elements = 72, .numbers = true},
      {.name = "labels", .shape = {1}, .elements = 1, .least = -1, .limit = CLASSES, .labels = true}};
  unsigned char body[N * H * W * C];
  char dictionary[96];
  int64_t height = transposed ? W : H, width = transposed ? H : W;
  loader l;
  for (int64_t i = 0; i < N * H * W * C; i++) {
    int64_t in = i % (H * W * C);
    int64_t c = channels_first ? in / (H * W) : in % C, yx = channels_first ? in % (H * W) : in / C;
    body[i] = (unsigned char)(color(yx / width, yx % width, c) % 256);
  }
  snprintf(dictionary, sizeof dictionary, "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d, %d), }", N,
           channels_first ? C : (int)height, channels_first ? (int)height : (int)width,
           channels_first ? (int)width : C);
  write_npy("images", dictionary, body, sizeof body);
  write_labels(some_labels, N);
  open_loader(&l, dtype);
  zpr_close(&l.c);
  l.program.named = rows;
  l.stage.arena_bytes = 2 * 5 * ZPR_INPUT_ALIGN + 4 * 4; /* two samples of 72 doubles are 1,152 bytes */
  int argc = 0;
  char **argv = NULL;
  zpr_open(&l.c, &l.program, &zpr_default_options, &argc, &argv);
  zpr_data *data = zpr_data_open(&l.c, &(zpr_source){.kind = ZPR_NPY, .path = folder});
  zpr_data_load(&l.c, data, 0);
  const void *numbers = zpr_numbers(&l.c, 0, 0);
  for (int64_t i = 0; i < 72; i++) {
    int64_t patch = i / 12, c = i % 12 / 4, y = patch / (width / SIDE) * SIDE + i % 4 / 2;
    int64_t x = patch % (width / SIDE) * SIDE + i % 2;
    cr_expect_eq(get_as(dtype, numbers, i), stored(dtype, color(y, x, c) % 256), "element %d", (int)i);
    cr_expect_eq(get_as(dtype, numbers, 72 + i), get_as(dtype, numbers, i), "both images are alike");
  }
  zpr_data_close(data);
  zpr_close(&l.c);
}

Test(data_arrays, images_are_cut_into_patches) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (int i = 0; i < 4; i++) check_patches((zpk_dtype)dtype, i % 2, i / 2);
}

Test(data_arrays, shuffled_epoch_shows_every_sample_once) {
  loader l;
  int seen[8] = {0};
  write_images("images", 8);
  write_labels(some_labels, 8);
  open_loader(&l, ZPK_F32);
  zpr_source source = {.kind = ZPR_NPY, .path = folder, .seed = 5, .shuffled = true};
  zpr_data *data = zpr_data_open(&l.c, &source);
  for (int64_t step = 0; step < 2; step++) {
    zpr_data_load(&l.c, data, 4 * step);
    for (int i = 0; i < 4; i++) {
      int sample = (int)((const float *)zpr_numbers(&l.c, 0, i / 2))[i % 2 * S * PIXELS];
      expect_sample(&l, i, sample);
      seen[sample]++;
    }
  }
  for (int n = 0; n < 8; n++) cr_expect_eq(seen[n], 1, "sample %d seen %d times", n, seen[n]);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* Both made from the seed and the number of the sample alone; the label is in its range and shows in the numbers. */
Test(data_arrays, made_up_inputs) {
  loader l;
  double mean[CLASSES][S * PIXELS] = {{0}};
  int count[CLASSES] = {0};
  open_loader(&l, ZPK_F32);
  zpr_data *data = zpr_data_open(&l.c, &(zpr_source){.kind = ZPR_SYNTHETIC, .seed = 3});
  for (int64_t step = 0; step < 200; step++) {
    zpr_data_load(&l.c, data, 4 * step);
    for (int i = 0; i < 4; i++) {
      int32_t label = zpr_input(&l.c, 1, i / 2)[i % 2];
      cr_assert(label >= 0 && label < CLASSES);
      count[label]++;
      for (int k = 0; k < S * PIXELS; k++)
        mean[label][k] += ((const float *)zpr_numbers(&l.c, 0, i / 2))[i % 2 * S * PIXELS + k];
    }
  }
  for (int a = 0; a < CLASSES; a++) {
    cr_assert_gt(count[a], 100);
    for (int b = 0; b < a; b++) {
      double apart = 0;
      for (int k = 0; k < S * PIXELS; k++) apart = fmax(apart, fabs(mean[a][k] / count[a] - mean[b][k] / count[b]));
      cr_expect_gt(apart, 0.3, "patterns of labels %d and %d", a, b); /* noise of such a mean: about 0.04 */
    }
  }
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / 4, 1e-15);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* ---- identity ---- */

static zpr_data_identity identity(loader *l, const zpr_data_identity *earlier, bool begins) {
  zpr_data *data = zpr_data_open(&l->c, &(zpr_source){.kind = ZPR_NPY, .path = folder});
  zpr_data_identity id = zpr_data_identify(data);
  if (earlier) cr_expect_eq(zpr_data_begins_with(data, earlier), begins);
  zpr_data_close(data);
  return id;
}

Test(data_arrays, a_run_knows_its_arrays_again) {
  loader l;
  int64_t other[] = {3, 0, 1, -1, 1};
  open_loader(&l, ZPK_F32);
  write_images("images", SAMPLES);
  write_labels(some_labels, SAMPLES);
  zpr_data_identity first = identity(&l, NULL, false);
  cr_expect_eq(first.tokens, SAMPLES);
  identity(&l, &first, true);
  write_images("images", 7);
  write_labels(some_labels, 7);
  zpr_data_identity longer = identity(&l, &first, true);
  cr_expect_neq(longer.hash, first.hash);
  write_images("images", SAMPLES);
  write_labels(other, SAMPLES);
  identity(&l, &first, false);
  zpr_close(&l.c);
}

/* ---- what is refused ---- */

static void expect_error(const char *code, const char *words) {
  loader l;
  zpr_npy_files arrays = {0};
  zpr_error error = {0};
  open_loader(&l, ZPK_F32);
  cr_expect_not(zpr_npy_files_open(&l.c, folder, &arrays, &error));
  cr_expect_str_eq(error.code, code, "%s %s", error.code, error.text);
  cr_expect(strstr(error.text, words) != NULL, "\"%s\" does not say \"%s\"", error.text, words);
  zpr_npy_files_close(&arrays);
  zpr_close(&l.c);
}

Test(data_arrays, files_that_do_not_fit_the_model) {
  float body[128] = {0};
  static const struct {
    const char *dictionary;
    size_t bytes;
    const char *code, *words;
  } bad[] = {
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (5, 2, 3), }", 120, "Z0802", "Fortran order"},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (5, 2, 3), }", 120, "Z0802", "'>f4'"},
      {"{'descr': '<f2', 'fortran_order': False, 'shape': (5, 2, 3), }", 60, "Z0802", "type f2"},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (5, 2, 3), }", 120, "Z0802", "type i4"},
      {"{'descr': '<c8', 'fortran_order': False, 'shape': (5, 2, 3), }", 240, "Z0802", "'<c8'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3, 2), }", 120, "Z0802", "(5, 3, 2)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 6), }", 120, "Z0802", "is read from (N, 2, 3)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 3), }", 116, "Z0802", "truncated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 3), }", 124, "Z0802", "damaged"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2000000000, 2000000000, 2000000000), }", 120, "Z0802",
       "truncated"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2, 3), }", 0, "Z0804", "no sample"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 1, 4), }", 160, "Z0802", "(5, 2, 1, 4)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3, 2, 3), }", 360, "Z0802", "(5, 3, 2, 3)"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 3", 120, "Z0802", "is not a NumPy file"},
      {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (5, 2, 3), }", 120, "Z0802", "is not a NumPy file"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,), }", 20, "Z0802", "is not a NumPy file"},
      {"{'descr': '<f4', 'shape': (5, 2, 3), }", 120, "Z0802", "is not a NumPy file"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-5, 2, 3), }", 120, "Z0802", "is not a NumPy file"},
  };
  write_labels(some_labels, SAMPLES);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_npy("images", bad[i].dictionary, body, bad[i].bytes);
    expect_error(bad[i].code, bad[i].words);
  }
}

Test(data_arrays, a_folder_lacks_a_file_or_has_another_number_of_samples) {
  expect_error("Z0801", "images.npy");
  write_images("images", SAMPLES);
  expect_error("Z0801", "labels.npy");
  write_labels(some_labels, SAMPLES - 1);
  expect_error("Z0802", "has 4 samples, images.npy alongside it has 5");
}

/* Kept for the end of the step, at which all ranks leave. */
static void refuses(const int64_t labels[4]) {
  loader l;
  write_images("images", 4);
  write_labels(labels, 4);
  open_loader(&l, ZPK_F32);
  zpr_data *data = zpr_data_open(&l.c, &(zpr_source){.kind = ZPR_NPY, .path = folder});
  zpr_data_load(&l.c, data, 0);
  cr_expect_str_eq(l.c.state->data_error.code, "Z0803");
  cr_expect(strstr(l.c.state->data_error.text, folder), "the file: %s", l.c.state->data_error.text);
  const int32_t *label = zpr_input(&l.c, 1, 0);
  for (int i = 0; i < 4; i++) cr_expect(label[i] >= -1 && label[i] < CLASSES, "what kernels read: %d", (int)label[i]);
  zpr_data_close(data);
  zpr_close(&l.c);
}

Test(data_arrays, label_out_of_range) { refuses((int64_t[]){0, 1, CLASSES, 2}); }
Test(data_arrays, label_below_none) { refuses((int64_t[]){0, -2, 1, 2}); }
Test(data_arrays, label_beyond_32_bits) { refuses((int64_t[]){0, INT64_C(1) << 32, 1, 2}); }
Test(data_arrays, no_label_at_all) { refuses((int64_t[]){-1, -1, -1, -1}); }
