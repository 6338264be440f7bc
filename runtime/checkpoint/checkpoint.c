/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading checkpoints that know no layout: logical tensors with global shapes, so any plan resumes any
 * other's.
 *
 * Saving: rank 0 makes a hidden folder with files of full size (a full disk shows here), every rank writes its pieces,
 * and sums them, rank 0 adds the manifest with the sums and renames the folder. All ranks compare notes after each
 * phase; on trouble, also that of a device between phases (zpr_fail), the hidden folder goes and all stop with one
 * message. Loading: rank 0 chooses, all ranks check a share of the files, every rank reads its pieces. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "signals.h"
#include "state.h"

static bool cannot_write(zpr_error *error, const char *path, int reason) {
  zpr_error_set(error, "Z0811", "could not write checkpoint \"%s\": %s", path, strerror(reason));
  return false;
}

/* ---- saving: phases ---- */

void zpr_save_open(zpr *c, zpr_save *save, const char *dir, int64_t step, int64_t keep, int64_t pid) {
  *save = (zpr_save){.dir = dir, .step = step, .keep = keep};
  zpr_path(save->folder, "%s/.step_%06lld.tmp-%lld", dir, (long long)step, (long long)pid);
  zpr_set_unfinished(save->folder);
  for (int f = 0; f < ZPR_FILES; f++) {
    if (!(save->has[f] = zpr_has_file(c, f))) continue;
    zpr_file_tensors(c, f, &save->tensors[f]);
    save->header[f] = zpr_tensors_seal(c, &save->tensors[f]);
    save->sums[f] = zpr_alloc(c, (size_t)zpr_piece_count(&save->tensors[f]), sizeof *save->sums[f]);
  }
}

void zpr_save_close(zpr_save *save) {
  zpr_set_unfinished(NULL);
  for (int f = 0; f < ZPR_FILES; f++) {
    zpr_tensors_free(&save->tensors[f]);
    free(save->header[f]);
    free(save->sums[f]);
  }
}

static bool create_file(const zpr_save *save, int f, zpr_error *error) {
  char path[ZPR_PATH];
  zpr_path(path, "%s/%s", save->folder, zpr_file_name[f]);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return cannot_write(error, path, errno);
  const zpr_tensors *list = &save->tensors[f];
  save->sums[f][0] = zpr_piece_sum(save->header[f], 0, list->data_start / 8, 8);
  int reason = zpr_reserve_file(fd, list->file_bytes); /* returns the error instead of setting errno */
  for (int64_t at = 0; reason == 0 && at < list->data_start;) {
    ssize_t put = pwrite(fd, save->header[f] + at, (size_t)(list->data_start - at), at);
    if (put > 0)
      at += put;
    else if (put == 0 || errno != EINTR)
      reason = put == 0 ? ENOSPC : errno;
  }
  if (close(fd) != 0 && reason == 0) reason = errno;
  return reason == 0 || cannot_write(error, path, reason);
}

bool zpr_save_begin(zpr_save *save, zpr_error *error) {
  if (strlen(save->dir) > ZPR_PATH - 256) return cannot_write(error, save->dir, ENAMETOOLONG);
  if (!zpr_make_folders(save->dir, error)) return false;
  zpr_remove_leftovers(save->dir);
  if (mkdir(save->folder, 0777) != 0) return cannot_write(error, save->dir, errno);
  for (int f = 0; f < ZPR_FILES; f++)
    if (save->has[f] && !create_file(save, f, error)) return false;
  return true;
}

bool zpr_save_write(zpr *c, zpr_save *save, zpr_error *error) {
  bool good = true;
  for (int f = 0; f < ZPR_FILES && good; f++) {
    char path[ZPR_PATH];
    if (!save->has[f]) continue;
    zpr_path(path, "%s/%s", save->folder, zpr_file_name[f]);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return cannot_write(error, path, errno);
    good = zpr_write_pieces(c, f, &save->tensors[f], fd, path, save->sums[f], error);
    if (good && fsync(fd) != 0) good = cannot_write(error, path, errno);
    if (close(fd) != 0 && good) good = cannot_write(error, path, errno);
  }
  return good;
}

/* A checkpoint of the same step (from the run that this one repeats) steps aside first: rename does not replace full
 * folders. */
static bool put_in_place(const zpr_save *save, zpr_error *error) {
  char final[ZPR_PATH], aside[ZPR_PATH];
  zpr_path(final, "%s/step_%06lld", save->dir, (long long)save->step);
  zpr_path(aside, "%s/.step_%06lld.old-%lld", save->dir, (long long)save->step, (long long)getpid());
  bool replaced = rename(final, aside) == 0;
  if (rename(save->folder, final) != 0) {
    cannot_write(error, final, errno);
    if (replaced && rename(aside, final) != 0) cannot_write(error, final, errno);
    return false;
  }
  if (replaced) zpr_remove_folder(aside);
  return true;
}

/* The text of the plan that stands alongside the trainer, where it still is that of this trainer: owned; NULL: it is
 * not. It carries the model's text: with it a checkpoint says itself what its tensors are of. */
static char *plan_text(const zpr *c) {
  char path[ZPR_PATH], hash[128];
  struct stat status;
  snprintf(hash, sizeof hash, "\"plan_hash\": \"%s\"", c->program->plan_hash);
  int fd = zpr_open_file(zpr_alongside_trainer(path, "plan.json"));
  char *text = fd >= 0 && fstat(fd, &status) == 0 ? calloc(1, (size_t)status.st_size + 1) : NULL;
  bool good = text && read(fd, text, (size_t)status.st_size) == status.st_size && strstr(text, hash);
  if (fd >= 0) close(fd);
  if (good) return text;
  free(text);
  return NULL;
}

/* The plan, and the manifest that answers for all files. */
static bool write_texts(zpr *c, const zpr_save *save, zpr_error *error) {
  char path[ZPR_PATH], *plan = plan_text(c);
  zpr_summed files[ZPR_FILES] = {0};
  bool good = true;
  for (int f = 0; f < ZPR_FILES; f++) {
    const zpr_tensors *list = &save->tensors[f];
    if (!save->has[f]) continue;
    files[f] = (zpr_summed){list, save->sums[f]};
    /* Every byte was written by one rank. */
    assert(save->sums[f][zpr_piece_count(list) - 1] == (uint64_t)(list->file_bytes - list->data_start));
  }
  if (plan) good = zpr_write_text(zpr_path(path, "%s/plan.json", save->folder), plan, error);
  good = good && zpr_manifest_write(c, save->folder, save->step, files, plan, error);
  free(plan);
  return good;
}

bool zpr_save_publish(zpr *c, zpr_save *save, zpr_error *error) {
  char path[ZPR_PATH], name[64];
  if (!write_texts(c, save, error)) return false;
  if (!zpr_sync_folder(save->folder, error) || !put_in_place(save, error)) return false;
  if (!zpr_sync_folder(save->dir, error)) return false;
  snprintf(name, sizeof name, "step_%06lld\n", (long long)save->step);
  if (!zpr_write_text(zpr_path(path, "%s/latest", save->dir), name, error)) return false;
  zpr_prune(save->dir, save->keep, save->step); /* best effort: an old checkpoint that stays does no harm */
  return true;
}

/* After a phase: if any rank has an error, rank 0 cleans up and all ranks leave. */
static void end_phase(zpr *c, const zpr_save *save, const zpr_error *error) {
  bool failed = zpr_world_min(c, error->code[0] ? 0 : 1) == 0;
  if (failed && c->rank == 0) zpr_remove_folder(save->folder);
  zpr_agree(c, error);
}

void zpr_checkpoint_save(zpr *c, const char *dir, int64_t step, int64_t keep) {
  zpr_save save;
  zpr_error error = {0};
  int64_t pid = zpr_world_min(c, c->rank == 0 ? (int64_t)getpid() : INT64_MAX);
  if (c->state->updater) zpr_update_join(c);
  /* A file beyond the user's limit shall be an error with a message, not a signal. */
  struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
  sigaction(SIGXFSZ, &ignore, &before);
  zpr_save_open(c, &save, dir, step, keep, pid);
  if (c->rank == 0) zpr_save_begin(&save, &error);
  end_phase(c, &save, &error);
  zpr_save_write(c, &save, &error);
  end_phase(c, &save, &error);
  for (int f = 0; f < ZPR_FILES; f++)
    if (save.has[f]) zpr_first_sums(c, save.sums[f], zpr_piece_count(&save.tensors[f]));
  if (c->rank == 0) zpr_save_publish(c, &save, &error);
  end_phase(c, &save, &error);
  zpr_save_close(&save);
  sigaction(SIGXFSZ, &before, NULL);
}

/* ---- loading ---- */

/* One file: the header against the program, then this rank's pieces. The file's own offsets count: others may order it
 * otherwise. */
static bool load_file(zpr *c, const char *folder, int f, bool header_only, zpr_error *error) {
  char path[ZPR_PATH];
  zpr_tensors ours = {0}, theirs = {0};
  zpr_path(path, "%s/%s", folder, zpr_file_name[f]);
  zpr_file_tensors(c, f, &ours);
  free(zpr_tensors_seal(c, &ours));
  bool good = zpr_tensors_read(&theirs, path, error) && zpr_tensors_same(&ours, &theirs, path, error);
  if (good && !header_only) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      zpr_error_set(error, "Z0812", "cannot read checkpoint file \"%s\": %s", path, strerror(errno));
      good = false;
    } else {
      good = zpr_read_pieces(c, f, &theirs, fd, path, error);
      close(fd);
    }
  }
  zpr_tensors_free(&ours);
  zpr_tensors_free(&theirs);
  return good;
}

/* Errors of 1-bit Adam are those of data ranks, and mean nothing to other numbers of them; with ZeRO 1 an owner's is
 * of weights, not of momentum. */
static bool loads_errors(const zpr *c, const zpr_manifest *m) {
  return zpr_is_one_bit(c->program) && m->error_ranks == c->program->data && m->error_zero == c->program->zero;
}

/* A run without delayed update, or that is before it, goes on with the parameters that the last update has made. */
static bool loads_stale(const zpr *c, const zpr_manifest *m) {
  return m->stale && c->program->delayed && m->step > c->program->delay_after;
}

static bool loads(const zpr *c, const zpr_manifest *m, int file) {
  return file == ZPR_ERRORS ? loads_errors(c, m) : file == ZPR_STALE ? loads_stale(c, m) : true;
}

static const char *with_zero(int64_t zero) { return zero > 0 ? " with ZeRO 1" : ""; }

static void tell_of_errors(const zpr *c, const zpr_manifest *m) {
  if (!zpr_is_one_bit(c->program) || m->frozen_steps == 0 || loads_errors(c, m)) return;
  if (m->error_ranks == 0)
    fprintf(stderr, "note: the checkpoint does not hold the errors of 1-bit Adam, they start at zero\n");
  else
    zpr_say_line(stderr,
                 "note: the checkpoint holds the errors of 1-bit Adam on %lld data ranks%s; on %d%s they start at zero",
                 (long long)m->error_ranks, with_zero(m->error_zero), c->program->data, with_zero(c->program->zero));
}

/* Everything that can be wrong with a checkpoint as a whole, before any rank's memory changes. Files are considered by
 * all ranks, what fits the program and the data by rank 0, whose manifest it is. */
static void check_checkpoint(zpr *c, const char *folder, int64_t step, zpr_manifest *m, zpr_error *error) {
  zpr_manifest other;
  zpr_manifest_check(c, folder, c->rank == 0 ? m : &other, error);
  if (c->rank > 0) free(other.coefficients.item);
  bool whole = zpr_world_min(c, error->code[0] ? 0 : 1) == 1;
  if (c->rank > 0 || !whole) return;
  if (m->step != step)
    zpr_error_set(error, "Z0812", "\"%s/manifest.json\" is corrupt: it is of step %lld", folder, (long long)m->step);
  if (m->step != step) return;
  if (!zpr_coefficients_check(c, &m->coefficients, m->frozen_steps > 0, error)) return;
  for (int f = 0; f < ZPR_FILES; f++)
    if (loads(c, m, f) && !load_file(c, folder, f, true, error)) return;
  m->samples = zpr_resume_sample(c, m, error);
  if (!error->code[0]) zpr_record_tell(c, m);
}

/* The newest checkpoint before `step` that nothing is wrong with; -1: there is none. */
static int64_t newest_whole(zpr *c, const char *dir, int64_t step) {
  char folder[ZPR_PATH];
  while ((step = zpr_world_min(c, c->rank == 0 ? zpr_newest_below(dir, step) : INT64_MAX)) >= 0) {
    zpr_error error = {0};
    zpr_manifest m;
    zpr_manifest_check(c, zpr_path(folder, "%s/step_%06lld", dir, (long long)step), &m, &error);
    free(m.coefficients.item);
    if (zpr_world_min(c, error.code[0] ? 0 : 1) == 1) return step;
  }
  return -1;
}

/* A damaged checkpoint: what else there is. */
static void advise(zpr *c, const char *dir, int64_t step, zpr_error *error) {
  if (zpr_world_min(c, strcmp(error->code, "Z0812") == 0 ? 0 : 1) == 1) return;
  int64_t whole = newest_whole(c, dir, step);
  size_t used = strlen(error->text), room = sizeof error->text - used;
  if (!error->code[0]) return;
  if (whole >= 0)
    snprintf(error->text + used, room,
             "; the newest whole checkpoint before it is of step %lld: --resume-from %lld goes on from it",
             (long long)whole, (long long)whole);
  else
    snprintf(error->text + used, room, "; there is no whole checkpoint before it");
}

int64_t zpr_checkpoint_load(zpr *c, const char *dir) {
  int64_t newest = zpr_world_min(c, c->rank == 0 ? zpr_newest_step(dir) : INT64_MAX);
  return newest < 0 ? -1 : zpr_checkpoint_load_step(c, dir, newest);
}

int64_t zpr_checkpoint_load_step(zpr *c, const char *dir, int64_t step) {
  char folder[ZPR_PATH];
  zpr_error error = {0};
  zpr_manifest m = {.step = INT64_MAX,
                    .frozen_steps = INT64_MAX,
                    .freezes_at = INT64_MAX,
                    .skipped_steps = INT64_MAX,
                    .samples = INT64_MAX,
                    .error_ranks = INT64_MAX,
                    .error_zero = INT64_MAX,
                    .loss_scale = INT64_MAX,
                    .scale_steps = INT64_MAX}; /* of rank 0; then of all */
  zpr_path(folder, "%s/step_%06lld", dir, (long long)step);
  check_checkpoint(c, folder, step, &m, &error);
  advise(c, dir, step, &error);
  memcpy(c->state->algorithms_before, m.products, sizeof m.products);
  memcpy(c->state->initial, m.initial, sizeof m.initial);
  zpr_agree(c, &error);
  m.step = zpr_world_min(c, m.step);
  c->samples = zpr_world_min(c, m.samples);
  m.frozen_steps = c->frozen_steps = zpr_world_min(c, m.frozen_steps);
  m.error_ranks = zpr_world_min(c, m.error_ranks);
  m.error_zero = zpr_world_min(c, m.error_zero);
  c->skipped_steps = zpr_world_min(c, m.skipped_steps);
  m.stale = zpr_world_min(c, c->rank > 0 || m.stale) > 0;
  m.freezes_at = zpr_world_min(c, m.freezes_at);
  zpr_variance_freeze_resume(c, &m.variance, m.freezes_at, m.step - c->skipped_steps, m.frozen_steps);
  zpr_coefficients_resume(c, &m.coefficients, loads_errors(c, &m) && m.frozen_steps > 0);
  free(m.coefficients.item);
  m.loss_scale = zpr_world_min(c, m.loss_scale);
  m.scale_steps = zpr_world_min(c, m.scale_steps);
  zpr_loss_scale_resume(c, m.loss_scale, m.scale_steps);
  if (c->rank == 0) tell_of_errors(c, &m);
  for (int f = 0; f < ZPR_STALE && !error.code[0]; f++)
    if (loads(c, &m, f)) load_file(c, folder, f, false, &error);
  zpr_agree(c, &error);
  c->state->stale_at = loads_stale(c, &m) ? m.step : -1;
  return m.step;
}

void zpr_checkpoint_load_stale(zpr *c, const char *dir) {
  char folder[ZPR_PATH];
  zpr_error error = {0};
  zpr_path(folder, "%s/step_%06lld", dir, (long long)c->state->stale_at);
  if (c->state->stale_at >= 0) load_file(c, folder, ZPR_STALE, false, &error);
  zpr_agree(c, &error);
}
