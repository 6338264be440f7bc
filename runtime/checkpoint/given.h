/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that a run starts from instead of drawn ones: values in safetensors files of any program, found by a map that
 * the command writes (`zplan run --init`). The map is all that is known here: files, and which of their elements stand
 * where in which parameter. */
#ifndef ZPLAN_RT_GIVEN_H
#define ZPLAN_RT_GIVEN_H

#include "checkpoint.h"

enum { ZPR_GIVEN_DIMS = 6 };

/* Elements [begin, begin + elements) of a parameter, row by row in `extents`: element (i, j, ...) of them is element
 * i * strides[0] + j * strides[1] + ... after byte `offset` of the file. */
typedef struct zpr_given_part {
  char *name;                            /* "h.3.attn.c_attn.weight"; owned */
  int64_t begin, elements, offset, last; /* last: the highest element of the file that is read */
  int file, n;
  zpk_dtype dtype; /* of the file */
  int64_t extents[ZPR_GIVEN_DIMS], strides[ZPR_GIVEN_DIMS];
} zpr_given_part;

typedef struct zpr_given_file {
  char *path; /* owned */
  int64_t bytes;
  int fd;
} zpr_given_file;

typedef struct zpr_given {
  char source[ZPR_PATH]; /* the folder that they come from, for messages */
  int64_t n_files, n_parts;
  zpr_given_file *files;
  zpr_given_part *parts; /* by name and begin */
  int64_t loaded;        /* the part whose elements are all in `raw`; -1: none */
  int64_t n_drawn;
  char **drawn; /* names of parameters that the map leaves to be drawn; owned */
  char *raw;    /* bytes of the file, room for raw_bytes */
  int64_t raw_bytes;
} zpr_given;

/* ---- given_map.c ---- */
/* Reads a map and opens its files. Z0812 when the map is none, Z0819 when a file is not there or has another size than
 * the map says. NULL with the error. */
zpr_given *zpr_given_open(const char *path, zpr_error *error);
void zpr_given_close(zpr_given *given); /* NULL: nothing */
/* Does the map leave the parameter to be drawn? */
bool zpr_given_draws(const zpr_given *given, const char *name);
/* The part that holds element `at` of a parameter; NULL: none does. */
zpr_given_part *zpr_given_find(const zpr_given *given, const char *name, int64_t at);

/* ---- given.c ---- */
/* Elements [at, at + count) of a parameter as `dtype`, which they are rounded to. False with Z0819. */
bool zpr_given_read(zpr *c, zpr_given *given, const char *name, int64_t at, int64_t count, zpk_dtype dtype,
                    void *values, zpr_error *error);

#endif
