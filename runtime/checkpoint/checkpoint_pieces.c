/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors a checkpoint has, which ranks write what of them, and the transfer between arena and file.
 *
 * Files hold logical tensors, so a rank's part of one is a list of pieces (zpr_param_pieces). Who writes:
 *   parameters        replica 0 (all replicas have all of them), of the first stage that holds a tied parameter; with
 *                     ZeRO 3 every replica its own shards, which may begin and end inside a tensor;
 *   statistics        of Adafactor: tensor rank 0 of the first of these, all of a tensor;
 *   optimizer state   the same, but every replica its own shards from ZeRO 1 on; of shards that have copies the first
 *                     shard group alone;
 *   in both           tensor rank 0 alone where the tensor is not split. Of experts that are spread over expert groups
 *                     a replica is such a group: its ranks write their own experts;
 *   after a delayed update parameters are those that the host has, as the state is; the device's, which the next step
 *   computes with, are a file of their own;
 *   errors            of 1-bit Adam: replica d those that it has as a worker, under the number d, and those of the
 *                     elements that it averages, or with ZeRO 1 owns.
 * Everybody reads what it holds, of errors its own. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "adafactor.h"
#include "checkpoint.h"
#include "one_bit.h"
#include "optimizer.h"
#include "device.h"
#include "param_home.h"
#include "state_home.h"
#include "offloaded.h"
#include "state.h"

const char *const zpr_file_name[ZPR_FILES] = {"model.safetensors", "optimizer.safetensors", "errors.safetensors",
                                              "stale_weights.safetensors"};

/* 1-bit Adam leaves nothing out before its variance freezes. */
bool zpr_has_file(const zpr *c, int file) {
  if (file == ZPR_ERRORS) return zpr_is_one_bit(c->program) && c->frozen_steps > 0;
  return file != ZPR_STALE || zpr_is_behind(c);
}

/* A kind of value that is kept for every element of every parameter: where, and as what in which file. */
typedef struct array {
  const char *suffix, *of_matrix; /* of_matrix: of state of an orthogonal matrix; NULL: it has none */
  /* parameters; those that a delayed update has made; optimizer state by element, Adafactor's statistics, errors of
   * 1-bit Adam */
  enum { PARAMS, NEXT_PARAMS, STATE, STATISTICS, ERRORS } where;
  zpr_array state;
  enum { ROWS, COLS, ALL } of; /* statistics: of a matrix by row or column, of a vector all */
  zpr_error_side side;
  bool sharded; /* this rank has its shards only */
  int replica;  /* 1 + the replica that has it and moves it; 0: all have it */
} array;

/* With room for a name after it. The list is the caller's to free. */
typedef struct array_list {
  int n;
  array *array;
  char (*suffix)[32];
} array_list;

static void list_errors(zpr *c, array_list *list) {
  list->n = c->program->data + 1;
  list->array = zpr_alloc(c, (size_t)list->n + 1, sizeof *list->array);
  list->suffix = zpr_alloc(c, (size_t)list->n, sizeof *list->suffix);
  for (int d = 0; d < c->program->data; d++) {
    snprintf(list->suffix[d], sizeof *list->suffix, ".worker_error.%d", d);
    list->array[d] = (array){.suffix = list->suffix[d], .where = ERRORS, .side = ZPR_WORKER, .replica = 1 + d};
  }
  bool owner = zpr_shards_state(c->program);
  if (owner && zpk_is_narrow(c->program->dtype)) list->n--; /* what its master copy has more than the weights */
  list->array[c->program->data] =
      (array){.suffix = owner ? ".owner_error" : ".server_error", .where = ERRORS, .side = ZPR_SERVER, .sharded = true};
  array fresh = {.suffix = ".exp_avg_sq_fresh", .where = STATE, .state = ZPR_FRESH, .sharded = owner};
  if (zpr_state_arrays(c->program) >> ZPR_FRESH & 1) list->array[list->n++] = fresh;
}

static array_list arrays_of(zpr *c, int file) {
  array_list list = {0};
  if (file == ZPR_ERRORS) {
    list_errors(c, &list);
    return list;
  }
  list.array = zpr_alloc(c, ZPR_ARRAYS + ALL + 1, sizeof *list.array);
  if (file == ZPR_MODEL || file == ZPR_STALE) {
    list.array[list.n++] = (array){.suffix = "", .where = PARAMS, .sharded = zpr_shards_params(c->program)};
    if (file == ZPR_MODEL && zpr_is_behind(c))
      list.array[0] = (array){.suffix = "", .where = NEXT_PARAMS, .sharded = zpr_shards_state(c->program)};
    return list;
  }
  const zpr_optimizer_row *row = zpr_optimizer_of(c->program);
  array state = {.where = STATE, .state = ZPR_WEIGHTS, .suffix = ".master", .of_matrix = ".master"};
  state.sharded = zpr_shards_state(c->program);
  if (zpk_is_narrow(c->program->dtype)) list.array[list.n++] = state;
  for (int i = 0; i < ZPK_MOMENTS; i++) {
    if (!(zpr_kept(c->program) >> i & 1)) continue;
    state.state = (zpr_array)(ZPR_MOMENTS_FROM + i);
    state.suffix = row->moment[i];
    state.of_matrix = row->moment_of_matrix[i];
    list.array[list.n++] = state;
  }
  state.state = ZPR_AVERAGE;
  state.suffix = state.of_matrix = ".ema";
  if (c->program->ema > 0) list.array[list.n++] = state;
  static const char *const of[] = {[ROWS] = ".exp_avg_sq_row", [COLS] = ".exp_avg_sq_col", [ALL] = ".exp_avg_sq"};
  for (int i = 0; i <= ALL && row->has_statistics; i++)
    list.array[list.n++] = (array){.where = STATISTICS, .of = i, .suffix = of[i]};
  return list;
}

static bool has_array(const array *a, const zpr_param *param) {
  if (a->where == STATISTICS) return (a->of == ALL) == (param->rank < 2);
  return !param->orthogonal || a->where != STATE || a->of_matrix;
}

static const char *suffix_of(const array *a, const zpr_param *param) {
  return param->orthogonal && a->where == STATE ? a->of_matrix : a->suffix;
}

/* The tensor that the parameter's array is: its own shape, or without the last or the last but one dimension. */
static zpr_param tensor_of(const array *a, const zpr_param *param) {
  zpr_param tensor = *param;
  if (a->where != STATISTICS || a->of == ALL) return tensor;
  if (a->of == COLS) tensor.shape[param->rank - 2] = param->shape[param->rank - 1];
  tensor.rank--;
  return tensor;
}

/* Frozen parameters have values alone. */
static bool has(int file, const zpr_run *run) { return file == ZPR_MODEL || zpr_is_trained(run->kind); }

static void free_arrays(array_list *list) {
  free(list->array);
  free(list->suffix);
}

static void tensor_name(char name[ZPR_TENSOR_NAME], const zpr_run *run, int64_t i, int k, const char *suffix) {
  zpr_instance_name(name, ZPR_TENSOR_NAME, run->params[k].name, run->first + i);
  size_t used = strlen(name);
  snprintf(name + used, ZPR_TENSOR_NAME - used, "%s", suffix);
}

static int64_t local_start(const zpr_run *run, int64_t i, int k) {
  return run->base + i * run->stride + run->params[k].offset;
}

/* State is kept in what is computed in. */
static zpk_dtype dtype_of(const zpr *c, const array *a) {
  if (a->where == ERRORS) return ZPK_F32;
  bool params = a->where == PARAMS || a->where == NEXT_PARAMS;
  return !params && zpk_is_narrow(c->program->dtype) ? ZPK_F32 : c->program->dtype;
}

void zpr_file_tensors(zpr *c, int file, zpr_tensors *list) {
  array_list arrays = arrays_of(c, file);
  char name[ZPR_TENSOR_NAME];
  for (int p = 0; p < c->program->pipeline; p++)
    for (int r = 0; r < c->program->stages[p].n_runs; r++) {
      const zpr_run *run = &c->program->stages[p].runs[r];
      for (int64_t i = 0; i < run->count && has(file, run); i++)
        for (int k = 0; k < run->n_params; k++)
          for (int a = 0; a < arrays.n; a++) {
            if (!has_array(&arrays.array[a], &run->params[k])) continue;
            tensor_name(name, run, i, k, suffix_of(&arrays.array[a], &run->params[k]));
            zpr_param tensor = tensor_of(&arrays.array[a], &run->params[k]);
            zpr_tensors_add(c, list, name, dtype_of(c, &arrays.array[a]), &tensor, p, local_start(run, i, k));
          }
    }
  free_arrays(&arrays);
}

/* ---- transfer ---- */

typedef struct transfer {
  zpr *c;
  bool write, failed;
  int fd;
  const char *path;
  zpr_error *error;
  int64_t element_bytes;
  const array *array;
  int64_t begin, end, stored;    /* elements of the flat buffers; the first of them among those that are here */
  int64_t file_offset;           /* of the tensor's first element */
  uint64_t *sums, *sum, *summed; /* written: of the file; of the tensor; all bytes */
} transfer;

static bool move_bytes(const transfer *t, char *memory, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    ssize_t done =
        t->write ? pwrite(t->fd, memory, (size_t)bytes, offset) : pread(t->fd, memory, (size_t)bytes, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const char *why = done == 0 ? "it is shorter than expected" : strerror(errno);
      zpr_error_set(t->error, t->write ? "Z0811" : "Z0812", "could not %s checkpoint file \"%s\": %s",
                    t->write ? "write" : "read", t->path, why);
      return false;
    }
    memory += done;
    offset += done;
    bytes -= done;
  }
  return true;
}

static char *open_window(const transfer *t, int64_t stored, int64_t *count) {
  switch (t->array->where) {
  case PARAMS: return zpr_params_open(t->c, stored, count, t->write);
  case NEXT_PARAMS: assert(t->write); return (char *)(uintptr_t)zpr_next_weights(t->c, stored, count);
  case STATE: return zpr_state_open(t->c, t->array->state, stored, count, t->write);
  case STATISTICS:
    return zpr_window_open(t->c, (char *)zpr_at(t->c, t->c->stage->statistics) + stored * t->element_bytes,
                           *count * t->element_bytes, t->write);
  case ERRORS: return zpr_error_open(t->c, t->array->side, stored, count, t->write);
  }
  return NULL;
}

static void close_window(const transfer *t, int64_t stored) {
  switch (t->array->where) {
  case PARAMS: zpr_params_close(t->c); break;
  case NEXT_PARAMS: break;
  case STATE: zpr_state_close(t->c); break;
  case STATISTICS: zpr_window_close(t->c); break;
  case ERRORS: zpr_error_close(t->c, t->array->side, stored); break;
  }
}

/* The part of a piece that lies in this rank's range of the flat buffers. */
static void move_piece(void *arg, int64_t local, int64_t global, int64_t count) {
  transfer *t = arg;
  int64_t begin = local > t->begin ? local : t->begin, end = local + count < t->end ? local + count : t->end;
  if (t->failed || begin >= end) return;
  int64_t most = zpr_window_bytes(t->c) / t->element_bytes, size = t->element_bytes;
  for (int64_t at = begin, n; at < end && !t->failed; at += n) {
    int64_t stored = t->stored + at - t->begin;
    n = end - at < most ? end - at : most;
    char *window = open_window(t, stored, &n);
    int64_t first = global + at - local;
    if (t->write) *t->sum += zpr_piece_sum(window, first, n, size), *t->summed += (uint64_t)(n * size);
    t->failed = !move_bytes(t, window, n * size, t->file_offset + first * size);
    close_window(t, stored);
  }
}

static bool writes(zpr *c, const array *a, const zpr_tensor *tensor, const zpr_run *run, int k, int64_t local) {
  const zpr_param *param = &run->params[k];
  if (tensor->stage != c->p || tensor->local != local) return false;
  if ((param->split_dim < 0 || a->where == STATISTICS) && c->t != 0) return false;
  zpr_part part = zpr_part_of(c, run->kind);
  return a->replica > 0 || (!part.copied && (a->sharded || part.place == 0));
}

/* The elements that this rank has of an array, of an instance of a run or more of its neighbours. What is whole stands
 * as the flat buffers do; of a server's errors a rank has those of its part, or of what it owns. */
static zpr_slice held(zpr *c, int file, const array *a, const zpr_run *run, int64_t i) {
  int64_t part = zpr_flat_elements(c->stage) / c->program->data;
  if (!a->sharded) return (zpr_slice){0, zpr_all_elements(c->stage), 0};
  return file == ZPR_ERRORS && !zpr_shards_state(c->program) ? (zpr_slice){c->d * part, (c->d + 1) * part, 0}
                                                             : zpr_slice_of(c, run, i);
}

/* All of them stand together on every rank. */
static void move_statistics(zpr *c, const array *a, const zpr_run *run, int64_t i, int k, transfer *t) {
  zpr_statistics has = zpr_statistics_of(&run->params[k]);
  t->begin = 0;
  t->end = a->of == ROWS ? has.rows : has.cols;
  t->stored = zpr_statistics_at(c, run, i, k) + (a->of == COLS ? has.rows : 0);
  move_piece(t, 0, 0, t->end);
}

static void move_instance(zpr *c, int file, const zpr_tensors *list, const array *a, const zpr_run *run, int64_t i,
                          transfer *t) {
  char name[ZPR_TENSOR_NAME];
  const array on_device = {.suffix = "", .where = PARAMS, .sharded = zpr_shards_params(c->program)};
  if (a->where == NEXT_PARAMS && run->kind == ZPR_KIND_FROZEN) a = &on_device;
  zpr_slice part = held(c, file, a, run, i);
  t->begin = part.begin;
  t->end = part.end;
  t->stored = part.stored;
  t->array = a;
  for (int k = 0; k < run->n_params && !t->failed; k++) {
    if (!has_array(a, &run->params[k])) continue;
    tensor_name(name, run, i, k, suffix_of(a, &run->params[k]));
    const zpr_tensor *tensor = zpr_tensors_find(list, name);
    if (t->write && !writes(c, a, tensor, run, k, local_start(run, i, k))) continue;
    t->file_offset = list->data_start + tensor->begin;
    if (t->write) t->sum = &t->sums[1 + (tensor - list->tensor)];
    if (a->where == STATISTICS)
      move_statistics(c, a, run, i, k, t);
    else
      zpr_param_pieces(c, run, i, k, move_piece, t);
  }
}

static bool move_all(zpr *c, int file, const zpr_tensors *list, transfer *t) {
  array_list arrays = arrays_of(c, file);
  for (int n = 0; n < arrays.n; n++) {
    const array *a = &arrays.array[n];
    if (a->replica > 0 && a->replica != 1 + c->d) continue;
    t->element_bytes = zpk_bytes(dtype_of(c, a));
    for (int r = 0; r < c->stage->n_runs; r++)
      for (int64_t i = 0; i < c->stage->runs[r].count && has(file, &c->stage->runs[r]); i++)
        move_instance(c, file, list, a, &c->stage->runs[r], i, t);
  }
  zpr_state_flush(c);
  zpr_offloaded_flush(c);
  free_arrays(&arrays);
  return !t->failed;
}

bool zpr_write_pieces(zpr *c, int file, const zpr_tensors *list, int fd, const char *path, uint64_t *sums,
                      zpr_error *error) {
  transfer t = {.c = c, .write = true, .fd = fd, .path = path, .error = error, .sums = sums};
  t.summed = &sums[zpr_piece_count(list) - 1];
  return move_all(c, file, list, &t);
}

bool zpr_read_pieces(zpr *c, int file, const zpr_tensors *list, int fd, const char *path, zpr_error *error) {
  return move_all(c, file, list, &(transfer){.c = c, .fd = fd, .path = path, .error = error});
}
