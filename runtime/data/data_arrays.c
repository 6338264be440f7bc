/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs by name: a folder has a file of NumPy for each of them, NAME.npy, whose first dimension are the samples and
 * whose others are those of the input. Numbers may be stored as f4 or f8, or as u1: then 0 to 255 stands for 0 to 1,
 * as torchvision's ToTensor has it. Ids may be i4, i8 or u1. Rows of patches may be stored as the images
 * (data_patches.c). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/zpk_narrow.h>
#include "data.h"
#include "state.h"

enum { HASHED_BLOCK = 4096, BLOCK = 512 /* numbers that are converted together */ };

/* ---- opening ---- */

static bool fits_kind(const zpr_named *input, const zpr_npy *npy) {
  if (npy->kind == 'u' && npy->width == 1) return true;
  return npy->kind == (input->numbers ? 'f' : 'i') && (npy->width == 4 || npy->width == 8);
}

/* "(N, 49, 48)" */
static void shape_text(char text[96], const zpr_named *input) {
  int n = snprintf(text, 96, "(N");
  for (int i = 0; i < input->rank; i++) n += snprintf(text + n, 96 - (size_t)n, ", %lld", (long long)input->shape[i]);
  snprintf(text + n, 96 - (size_t)n, input->rank ? ")" : ",)");
}

static void npy_text(char text[96], const zpr_npy *npy) {
  int n = snprintf(text, 96, "(");
  for (int i = 0; i < npy->rank; i++)
    n += snprintf(text + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)npy->dim[i]);
  snprintf(text + n, 96 - (size_t)n, npy->rank == 1 ? ",)" : ")");
}

static bool fits(const zpr_named *input, const zpr_npy *npy, zpr_patches *patches, const char *path, zpr_error *error) {
  char wanted[96], found[96];
  bool same = npy->rank == input->rank + 1;
  for (int i = 0; same && i < input->rank; i++) same = npy->dim[i + 1] == input->shape[i];
  same |= zpr_patches_fit(input, npy, patches);
  shape_text(wanted, input);
  npy_text(found, npy);
  if (!fits_kind(input, npy))
    zpr_error_set(error, "Z0802", "\"%s\" has elements of type %c%d, `%s` of the model is read from %s", path,
                  npy->kind, npy->width, input->name, input->numbers ? "f4, f8 or u1" : "i4, i8 or u1");
  else if (!same)
    zpr_error_set(error, "Z0802", "\"%s\" has the shape %s, `%s` of the model is read from %s", path, found,
                  input->name, wanted);
  else if (npy->dim[0] == 0)
    zpr_error_set(error, "Z0804", "\"%s\" has no sample", path);
  return !error->code[0];
}

static bool open_one(const zpr_program *p, int input, const char *folder, zpr_npy_files *arrays, zpr_error *error) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.npy", folder, p->named[input].name);
  const zpr_shard *file = zpr_stream_map(&arrays->files, path, error);
  if (!file || !zpr_npy_read(file, &arrays->npy[input], error) ||
      !fits(&p->named[input], &arrays->npy[input], &arrays->patches[input], path, error))
    return false;
  int64_t samples = arrays->npy[input].dim[0];
  if (input > 0 && samples != arrays->samples) {
    zpr_error_set(error, "Z0802", "\"%s\" has %lld samples, %s.npy alongside it has %lld", path, (long long)samples,
                  p->named[0].name, (long long)arrays->samples);
    return false;
  }
  arrays->samples = samples;
  return true;
}

bool zpr_npy_files_open(zpr *c, const char *folder, zpr_npy_files *arrays, zpr_error *error) {
  const zpr_program *p = c->program;
  assert(p->n_named > 0 && folder);
  arrays->npy = zpr_alloc(c, (size_t)p->n_named, sizeof *arrays->npy);
  arrays->patches = zpr_alloc(c, (size_t)p->n_named, sizeof *arrays->patches);
  for (int i = 0; i < p->n_named; i++)
    if (!open_one(p, i, folder, arrays, error)) return false;
  return true;
}

void zpr_npy_files_close(zpr_npy_files *arrays) {
  zpr_stream_close(&arrays->files);
  free(arrays->npy);
  free(arrays->patches);
  *arrays = (zpr_npy_files){0};
}

/* ---- identity ---- */

/* Blocks evenly spread from the first byte to the last, or all of what is not longer. */
static uint64_t hash_array(const zpr_npy *npy, int64_t bytes, uint64_t hash) {
  if (bytes <= HASHED_BLOCK * ZPR_HASHED_BLOCKS) return zpr_hash_bytes(npy->body, bytes, hash);
  for (int64_t k = 0; k < ZPR_HASHED_BLOCKS; k++)
    hash = zpr_hash_bytes(npy->body + zpr_hashed_block(bytes, HASHED_BLOCK, k), HASHED_BLOCK, hash);
  return hash;
}

uint64_t zpr_npy_files_hash(const zpr *c, const zpr_npy_files *arrays, int64_t samples) {
  const zpr_program *p = c->program;
  assert(arrays->npy && samples >= 0 && samples <= arrays->samples);
  uint64_t hash = ZPR_HASH_START;
  for (int i = 0; i < p->n_named; i++) {
    const zpr_npy *npy = &arrays->npy[i];
    char kind[2] = {npy->kind, (char)('0' + npy->width)};
    hash = zpr_hash_bytes(p->named[i].name, (int64_t)strlen(p->named[i].name) + 1, hash);
    hash = zpr_hash_bytes(npy->dim + 1, (int64_t)sizeof *npy->dim * (npy->rank - 1), hash);
    hash = hash_array(npy, samples * p->named[i].elements * npy->width, zpr_hash_bytes(kind, 2, hash));
  }
  return hash;
}

/* ---- places ---- */

static int64_t bytes_of(const zpr_program *p, int input) {
  int64_t elements = p->microbatch * p->named[input].elements;
  if (!p->named[input].numbers) return elements * (int64_t)sizeof(int32_t);
  int64_t bytes = elements * zpk_bytes(p->dtype);
  return (bytes + ZPR_INPUT_ALIGN - 1) / ZPR_INPUT_ALIGN * ZPR_INPUT_ALIGN;
}

bool zpr_has_named(const zpr *c, int input) { return !(c->stage->lacks_numbers && c->program->named[input].numbers); }

int64_t zpr_named_at(const zpr *c, int input, int64_t mb) {
  const zpr_program *p = c->program;
  assert(input >= 0 && input <= p->n_named && mb >= 0 && mb <= p->microbatches);
  int64_t before = 0;
  for (int i = 0; i < input; i++)
    if (zpr_has_named(c, i)) before += bytes_of(p, i) * p->microbatches;
  return input < p->n_named ? before + mb * bytes_of(p, input) : before;
}

/* ---- loading ---- */

static void put_number(zpk_dtype dtype, void *to, int64_t at, double x) {
  switch (dtype) {
  case ZPK_F64: ((double *)to)[at] = x; break;
  case ZPK_BF16: ((uint16_t *)to)[at] = zpk_round_bf16((float)x); break;
  case ZPK_F16: ((uint16_t *)to)[at] = zpk_round_f16((float)x); break;
  default: ((float *)to)[at] = (float)x;
  }
}

static double number_at(const zpr_npy *npy, int64_t i) {
  double x;
  float narrow;
  if (npy->width == 1) return (double)npy->body[i] / 255;
  if (npy->width == 8) return memcpy(&x, npy->body + i * 8, sizeof x), x; /* nothing in the file is aligned */
  return memcpy(&narrow, npy->body + i * 4, sizeof narrow), narrow;
}

/* n numbers of the file, each `stride` after the one before. */
static void read_run(const zpr_npy *npy, int64_t from, int64_t stride, int64_t n, float *to) {
  const unsigned char *body = npy->body + from * npy->width;
  if (npy->width == 1)
    for (int64_t i = 0; i < n; i++) to[i] = (float)body[i * stride] / 255;
  else
    for (int64_t i = 0; i < n; i++) to[i] = (float)number_at(npy, from + i * stride);
}

/* Elements first .. first + n - 1 of a sample that begins at element `sample` of the file. */
static void read_block(const zpr_npy *npy, const zpr_patches *patches, int64_t sample, int64_t first, int64_t n,
                       float *to) {
  if (!patches->side) {
    read_run(npy, sample + first, 1, n, to);
    return;
  }
  int64_t stride = patches->channels_first ? 1 : patches->channels, run;
  for (int64_t i = 0; i < n; i += run) { /* rows of patches */
    run = patches->side - (first + i) % patches->side;
    if (run > n - i) run = n - i;
    read_run(npy, sample + zpr_patch_element(patches, first + i), stride, run, to + i);
  }
}

static void read_wide(const zpr_npy *npy, const zpr_patches *patches, int64_t sample, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] = number_at(npy, sample + (patches->side ? zpr_patch_element(patches, i) : i));
}

/* A sample, in blocks that are rounded together. */
static void read_numbers(zpk_dtype dtype, const zpr_named *input, const zpr_npy *npy, const zpr_patches *patches,
                         int64_t sample, void *to, int64_t to_at) {
  float block[BLOCK];
  if (dtype == ZPK_F64) {
    read_wide(npy, patches, sample, input->elements, (double *)to + to_at);
    return;
  }
  for (int64_t first = 0; first < input->elements; first += BLOCK) {
    int64_t n = input->elements - first < BLOCK ? input->elements - first : BLOCK, at = to_at + first;
    float *read = dtype == ZPK_F32 ? (float *)to + at : block;
    if (npy->width == 4 && !patches->side)
      memcpy(read, npy->body + (sample + first) * 4, (size_t)n * sizeof *read);
    else
      read_block(npy, patches, sample, first, n, read);
    if (dtype != ZPK_F32) zpk_round(dtype, block, (uint16_t *)to + at, n);
  }
}

static int64_t id_at(const zpr_npy *npy, int64_t i) {
  int64_t wide;
  int32_t id;
  if (npy->width == 1) return npy->body[i];
  if (npy->width == 8) return memcpy(&wide, npy->body + i * 8, sizeof wide), wide;
  return memcpy(&id, npy->body + i * 4, sizeof id), id;
}

static bool read_ids(const zpr_named *input, const zpr_npy *npy, const char *path, int64_t window, int32_t *to,
                     zpr_error *error) {
  for (int64_t i = 0; i < input->elements; i++) {
    int64_t id = id_at(npy, window * input->elements + i);
    if (input->recoded && id == input->none) {
      to[i] = -1;
      continue;
    }
    if (id < input->least || id >= input->limit) {
      zpr_error_set(error, "Z0803", "\"%s\" has %lld in sample %lld, `%s` of the model goes from %lld to %lld", path,
                    (long long)id, (long long)window, input->name, (long long)input->least,
                    (long long)input->limit - 1);
      return false;
    }
    to[i] = (int32_t)id;
  }
  return true;
}

/* Numbers of documents ascend, and what is after the last one has -1. */
static bool check_documents(const zpr_named *input, const int32_t *id, const char *path, int64_t window,
                            zpr_error *error) {
  if (id[0] < 0) {
    zpr_error_set(error, "Z0803", "\"%s\" has no document in sample %lld", path, (long long)window);
    return false;
  }
  for (int64_t i = 1; i < input->elements; i++) {
    if (id[i] < 0 || (id[i - 1] >= 0 && id[i] >= id[i - 1])) continue;
    zpr_error_set(
        error, "Z0803",
        "\"%s\" has %d after %d in sample %lld: numbers of documents ascend, and -1 stands after the last one", path,
        (int)id[i], (int)id[i - 1], (long long)window);
    return false;
  }
  return true;
}

bool zpr_named_read(const zpr *c, const zpr_npy_files *arrays, int input, int64_t window, void *to, int64_t at,
                    zpr_error *error) {
  const zpr_named *a = &c->program->named[input];
  const zpr_npy *npy = &arrays->npy[input];
  assert(window >= 0 && window < arrays->samples);
  const char *path = arrays->files.shards[input].path;
  int32_t *ids = (int32_t *)to + at;
  if (!a->numbers)
    return read_ids(a, npy, path, window, ids, error) &&
           (!a->documents || check_documents(a, ids, path, window, error));
  read_numbers(c->program->dtype, a, npy, &arrays->patches[input], window * a->elements, to, at);
  return true;
}

/* ---- made-up inputs ---- */

/* Streams of the random numbers, far from the small numbers that a model's dropout uses. */
enum { LABELS = 0x5D48, NOISE, PATTERNS };

static int64_t made_up_label(const zpr_named *input, uint64_t seed, uint64_t n) {
  return (int64_t)(zpk_philox_uniform(seed, 0, n, LABELS, 0, 0) * (double)input->limit);
}

/* Noise of a sample and a pattern of its label, each from -1 to 1: so the label can be learned. Patterns are the same
 * for every seed, and so in training and validation. */
void zpr_named_make_up(const zpr *c, uint64_t seed, uint64_t n, int input, void *to, int64_t at) {
  const zpr_program *p = c->program;
  const zpr_named *a = &p->named[input], *labels = a->labels ? a : NULL;
  for (int i = 0; i < p->n_named && !labels; i++)
    if (p->named[i].labels) labels = &p->named[i];
  assert(!labels || labels->elements == 1);
  int64_t label = labels ? made_up_label(labels, seed, n) : 0; /* without any: one pattern */
  if (!a->numbers) {
    ((int32_t *)to)[at] = (int32_t)label;
    return;
  }
  for (int64_t i = 0; i < a->elements; i++) {
    double noise = zpk_philox_uniform(seed, 0, n, NOISE, (uint64_t)input, (uint64_t)i);
    double pattern = zpk_philox_uniform(0, 0, (uint64_t)label, PATTERNS, (uint64_t)input, (uint64_t)i);
    put_number(p->dtype, to, at + i, 2 * noise - 1 + 2 * pattern - 1);
  }
}
