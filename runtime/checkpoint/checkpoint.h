/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the checkpoint files: safetensors files, folders, the manifest, and the phases of saving. */
#ifndef ZPLAN_RT_CHECKPOINT_H
#define ZPLAN_RT_CHECKPOINT_H

#include <zplan/safetensors.h>
#include "one_bit_lamb.h"
#include "variance_freeze.h"
#include "internal.h"
#include "json_scan.h"

enum { ZPR_PATH = 4096 };

/* ---- safetensors (safetensors.c; zplan/safetensors.h has the list and how headers are read) ---- */
/* Adds a tensor of the program; ends the run when there is no memory. */
void zpr_tensors_add(zpr *c, zpr_tensors *list, const char *name, zpk_dtype dtype, const zpr_param *param, int stage,
                     int64_t local);
/* "F32": as the format spells it. */
const char *zpr_dtype_name(zpk_dtype dtype);
/* Sorts, drops the copies of tied parameters, lays the data out. Returns the file's first data_start bytes (owned). */
char *zpr_tensors_seal(zpr *c, zpr_tensors *list);
/* Reads the header of a checkpoint's file. False with Z0812 or Z0822. Free the list in either case. */
bool zpr_tensors_read(zpr_tensors *list, const char *path, zpr_error *error);
const zpr_tensor *zpr_tensors_find(const zpr_tensors *list, const char *name);
/* False with Z0813 and the first difference when the file is not one of this program. */
bool zpr_tensors_same(const zpr_tensors *program, const zpr_tensors *file, const char *path, zpr_error *error);

/* ---- sums that say whether it is whole (piece_hash.c, sha256.c) ---- */
/* The sum of `count` elements of a piece from number `first` on; sums of parts add up to that of the piece. Requires:
 * element_bytes 2, 4 or 8. */
uint64_t zpr_piece_sum(const void *data, int64_t first, int64_t count, int64_t element_bytes);
enum { ZPR_SHA256_TEXT = 65 };
void zpr_sha256(const void *data, size_t bytes, char hex[ZPR_SHA256_TEXT]);

/* ---- which tensors, and whose (checkpoint_pieces.c) ---- */
enum { ZPR_MODEL, ZPR_OPTIMIZER, ZPR_ERRORS, ZPR_STALE, ZPR_FILES };
/* Parameters, optimizer state, what 1-bit Adam has left out, parameters before a delayed update. */
extern const char *const zpr_file_name[ZPR_FILES];
/* Does a checkpoint of this run have it now? */
bool zpr_has_file(const zpr *c, int file);
/* All tensors of all stages, unsealed. */
void zpr_file_tensors(zpr *c, int file, zpr_tensors *list);
/* The sums of a file: [0] of its header, then of its tensors, in the list's order; after them the bytes that were
 * summed. */
static inline int64_t zpr_piece_count(const zpr_tensors *list) { return list->n + 2; }
/* Moves every piece of a file that this rank writes (reads) between the arena and `fd`; adds what it writes to
 * `sums`. */
bool zpr_write_pieces(zpr *c, int file, const zpr_tensors *list, int fd, const char *path, uint64_t *sums,
                      zpr_error *error);
bool zpr_read_pieces(zpr *c, int file, const zpr_tensors *list, int fd, const char *path, zpr_error *error);

/* ---- folders (checkpoint_folder.c) ---- */
const char *zpr_path(char buf[ZPR_PATH], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The path of a file or folder in the folder that the running program stands in. */
const char *zpr_alongside_trainer(char buf[ZPR_PATH], const char *name);
bool zpr_make_folders(const char *path, zpr_error *error);
/* With the files that a checkpoint has; one with others stays, and of a link the link alone goes. */
void zpr_remove_folder(const char *path);
/* A regular file, open for reading, or -1 with errno: EINVAL of a pipe or device, which is not waited for. */
int zpr_open_file(const char *path);
/* The hidden folder of a checkpoint that is being written, NULL: none is; it goes when the run ends early. */
void zpr_set_unfinished(const char *path);
void zpr_drop_unfinished(void);
bool zpr_sync_folder(const char *path, zpr_error *error);
/* Text to a file that is replaced atomically and is on the disk on return. */
bool zpr_write_text(const char *path, const char *text, zpr_error *error);
/* Newest checkpoint: the one that `latest` names, else the highest step with a manifest; -1: none. */
int64_t zpr_newest_step(const char *dir);
/* The highest step below `step` with a manifest; -1: none. */
int64_t zpr_newest_below(const char *dir, int64_t step);
bool zpr_has_step(const char *dir, int64_t step); /* with a manifest */
/* Removes the checkpoints before `current` but for the keep - 1 newest of them (keep 0: none is removed). */
void zpr_prune(const char *dir, int64_t keep, int64_t current);
/* Removes the temporary folders of killed runs. */
void zpr_remove_leftovers(const char *dir);

/* Removes all checkpoints of the folder. Z0811 when some stay. */
bool zpr_remove_checkpoints(const char *dir, zpr_error *error);

/* ---- one run at a time (checkpoint_lock.c): rank 0 ---- */
/* Until zpr_unlock_folder, or the end of the process. Z0817 when another process has it, Z0811 when no file can be
 * made. */
bool zpr_lock_folder(const char *dir, zpr_error *error);
void zpr_unlock_folder(void); /* if it is locked */

/* ---- manifest (checkpoint_manifest.c) ---- */
/* A file of a checkpoint that is being written: what its manifest says of it. */
typedef struct zpr_summed {
  const zpr_tensors *tensors;
  const uint64_t *sums; /* [zpr_piece_count]; NULL: the checkpoint has no such file */
} zpr_summed;
/* plan: the text of plan.json alongside it, NULL: there is none. */
bool zpr_manifest_write(zpr *c, const char *folder, int64_t step, const zpr_summed files[ZPR_FILES], const char *plan,
                        zpr_error *error);
/* The settings of a training (training_record.c): a text for each line of its table, "" where there is none. */
#define ZPR_ONE_MORE(name) +1
enum { ZPR_RECORD_FIELDS = 15 ZPK_SETTINGS(ZPR_ONE_MORE), ZPR_RECORD_TEXT = 128 };
#undef ZPR_ONE_MORE
typedef struct zpr_training_record {
  char text[ZPR_RECORD_FIELDS][ZPR_RECORD_TEXT];
} zpr_training_record;
/* What a manifest says of its checkpoint: besides the weights and moments all that the next step depends on. */
typedef struct zpr_manifest {
  int64_t step, frozen_steps, skipped_steps;
  int64_t samples, batch, sequence, seed; /* samples -1, batch 0: written before manifests said them */
  zpr_data_identity data;
  int64_t error_ranks;                 /* data ranks whose errors of 1-bit Adam it holds; 0: it has no file of them */
  int64_t error_zero;                  /* the ZeRO stage that they belong to */
  int64_t freezes_at;                  /* 1-bit Adam: applied steps after which its variance freezes; 0: not decided */
  zpr_variance variance;               /* 1-bit Adam: its norms until then */
  zpr_saved_coefficients coefficients; /* 1-bit LAMB */
  int64_t loss_scale, scale_steps;     /* 0, 0 where the manifest does not say them */
  bool stale;                          /* it has weights that the next step computes with (ZPR_STALE) */
  char products[256];                  /* their algorithms (algorithms.c); "" */
  char initial[ZPR_PATH];              /* folder of the weights that the run began with; "": they were drawn */
  zpr_training_record training;
} zpr_manifest;
void zpr_record_write(const zpr *c, FILE *out);
bool zpr_record_read(zpr_json *j, zpr_training_record *record);
/* Rank 0: a note for each line that was another when the checkpoint was written. */
void zpr_record_tell(const zpr *c, const zpr_manifest *manifest);
/* All ranks: each reads the manifest, and compares its share of the files with it. The coefficients are the caller's to
 * free. False, not on all ranks alike, with Z0812. */
bool zpr_manifest_check(zpr *c, const char *folder, zpr_manifest *manifest, zpr_error *error);

/* ---- what changed since (resume.c) ---- */
/* Rank 0: where in the data a run goes on from a checkpoint: its next sample. Warns of changes that it can go on with;
 * Z0814 names those that it goes on with only when told (--accept-changes). */
int64_t zpr_resume_sample(const zpr *c, const zpr_manifest *manifest, zpr_error *error);

/* ---- the phases of saving (checkpoint.c): begin and publish on rank 0, write on every rank ---- */
typedef struct zpr_save {
  const char *dir; /* borrowed */
  char folder[ZPR_PATH];
  int64_t step, keep;
  bool has[ZPR_FILES];
  zpr_tensors tensors[ZPR_FILES];
  char *header[ZPR_FILES];   /* owned */
  uint64_t *sums[ZPR_FILES]; /* owned; of what this rank has written, and on rank 0 in the end of all */
} zpr_save;
/* pid: of rank 0, the same on all ranks. */
void zpr_save_open(zpr *c, zpr_save *save, const char *dir, int64_t step, int64_t keep, int64_t pid);
void zpr_save_close(zpr_save *save);
bool zpr_save_begin(zpr_save *save, zpr_error *error);
bool zpr_save_write(zpr *c, zpr_save *save, zpr_error *error);
bool zpr_save_publish(zpr *c, zpr_save *save, zpr_error *error);

#endif
