/* Which tensors a checkpoint has, which ranks write what of them, and the transfer between arena and file.
 *
 * Files hold logical tensors, so a rank's part of one is a list of pieces (zpr_param_pieces). Who writes:
 *   parameters        replica 0 (all replicas have all of them), of the first stage that holds a tied parameter; with
 *                     ZeRO 3 every replica its own shards, which may begin and end inside a tensor;
 *   optimizer state   the same, but every replica its own shards from ZeRO 1 on;
 *   in both           tensor rank 0 alone where the tensor is not split. Of experts that are spread over expert groups
 *                     a replica is such a group: its ranks write their own experts.
 * Everybody reads what it holds. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint.h"
#include "device.h"
#include "state_home.h"

const char *const zpr_file_name[ZPR_FILES] = {"model.safetensors", "optimizer.safetensors"};
enum { MODEL, OPTIMIZER };

/* A kind of value that is kept for every element of every parameter: where, and as what in which file. */
typedef struct array {
  const char *suffix;
  int64_t offset;  /* of parameters: bytes in the arena */
  bool sharded;    /* this rank has its shards only */
  zpr_array state; /* of the optimizer's file */
} array;

enum { MOST_ARRAYS = 3 };

static int arrays_of(const zpr *c, int file, array list[MOST_ARRAYS]) {
  const zpr_stage *stage = c->stage;
  if (file == MODEL) {
    list[0] = (array){"", stage->params, c->program->zero >= 3, ZPR_WEIGHTS};
    return 1;
  }
  bool sgd = c->program->optimizer == 2, sharded = c->program->zero >= 1;
  int n = 0;
  if (c->program->dtype == ZPK_BF16) list[n++] = (array){".master", -1, sharded, ZPR_WEIGHTS};
  if (zpr_has_moment(c->program, ZPR_MOMENT1))
    list[n++] = (array){sgd ? ".momentum_buffer" : ".exp_avg", -1, sharded, ZPR_MOMENT1};
  if (zpr_has_moment(c->program, ZPR_MOMENT2)) list[n++] = (array){".exp_avg_sq", -1, sharded, ZPR_MOMENT2};
  return n;
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
static zpk_dtype dtype_of(const zpr *c, int file) {
  return file == OPTIMIZER && c->program->dtype == ZPK_BF16 ? ZPK_F32 : c->program->dtype;
}

void zpr_file_tensors(zpr *c, int file, zpr_tensors *list) {
  array arrays[MOST_ARRAYS];
  int n = arrays_of(c, file, arrays);
  char name[ZPR_TENSOR_NAME];
  for (int p = 0; p < c->program->pipeline; p++)
    for (int r = 0; r < c->program->stages[p].n_runs; r++) {
      const zpr_run *run = &c->program->stages[p].runs[r];
      for (int64_t i = 0; i < run->count; i++)
        for (int k = 0; k < run->n_params; k++)
          for (int a = 0; a < n; a++) {
            tensor_name(name, run, i, k, arrays[a].suffix);
            zpr_tensors_add(c, list, name, dtype_of(c, file), &run->params[k], p, local_start(run, i, k));
          }
    }
}

/* ---- transfer ---- */

typedef struct transfer {
  zpr *c;
  bool write, failed;
  int fd;
  const char *path;
  zpr_error *error;
  int64_t element_bytes;
  char *memory; /* NULL: optimizer state, wherever it is */
  zpr_array state;
  int64_t begin, end, stored; /* elements of the flat buffers; the first of them among those that are here */
  int64_t file_offset;        /* of the tensor's first element */
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

/* The part of a piece that lies in this rank's range of the flat buffers. */
static void move_piece(void *arg, int64_t local, int64_t global, int64_t count) {
  transfer *t = arg;
  int64_t begin = local > t->begin ? local : t->begin, end = local + count < t->end ? local + count : t->end;
  if (t->failed || begin >= end) return;
  int64_t most = zpr_window_bytes(t->c) / t->element_bytes, size = t->element_bytes;
  for (int64_t at = begin, n; at < end && !t->failed; at += n) {
    int64_t stored = t->stored + at - t->begin;
    n = end - at < most ? end - at : most;
    char *window = t->memory ? zpr_window_open(t->c, t->memory + stored * size, n * size, t->write)
                             : zpr_state_open(t->c, t->state, stored, &n, t->write);
    t->failed = !move_bytes(t, window, n * size, t->file_offset + (global + at - local) * size);
    if (t->memory)
      zpr_window_close(t->c);
    else
      zpr_state_close(t->c);
  }
}

static bool writes(zpr *c, const array *a, const zpr_tensor *tensor, const zpr_param *param, int64_t local) {
  if (tensor->stage != c->p || tensor->local != local) return false;
  if (param->split_dim < 0 && c->t != 0) return false;
  return a->sharded || zpr_part_of(c, param->spread).place == 0;
}

/* The elements of an array that this rank has of an instance of a run, or more of its neighbours. Optimizer state that
 * is whole stands as the flat buffers do. */
static void set_range(zpr *c, const array *a, const zpr_run *run, int64_t i, transfer *t) {
  zpr_slice shard = a->sharded ? zpr_slice_of(c, run, i) : (zpr_slice){0, c->stage->flat_elements, 0};
  t->begin = shard.begin;
  t->end = shard.end;
  t->stored = shard.stored;
  t->memory = a->offset >= 0 ? zpr_at(c, a->offset) : NULL;
  t->state = a->state;
}

static bool move_all(zpr *c, int file, const zpr_tensors *list, transfer *t) {
  array arrays[MOST_ARRAYS];
  int n = arrays_of(c, file, arrays);
  char name[ZPR_TENSOR_NAME];
  t->element_bytes = zpk_bytes(dtype_of(c, file));
  for (int a = 0; a < n; a++) {
    for (int r = 0; r < c->stage->n_runs; r++) {
      const zpr_run *run = &c->stage->runs[r];
      for (int64_t i = 0; i < run->count; i++)
        for (int k = 0; k < run->n_params && !t->failed; k++) {
          tensor_name(name, run, i, k, arrays[a].suffix);
          const zpr_tensor *tensor = zpr_tensors_find(list, name);
          if (t->write && !writes(c, &arrays[a], tensor, &run->params[k], local_start(run, i, k))) continue;
          set_range(c, &arrays[a], run, i, t);
          t->file_offset = list->data_start + tensor->begin;
          zpr_param_pieces(c, run, i, k, move_piece, t);
        }
    }
  }
  zpr_state_flush(c);
  return !t->failed;
}

bool zpr_write_pieces(zpr *c, int file, const zpr_tensors *list, int fd, const char *path, zpr_error *error) {
  return move_all(c, file, list, &(transfer){.c = c, .write = true, .fd = fd, .path = path, .error = error});
}

bool zpr_read_pieces(zpr *c, int file, const zpr_tensors *list, int fd, const char *path, zpr_error *error) {
  return move_all(c, file, list, &(transfer){.c = c, .fd = fd, .path = path, .error = error});
}
