/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files, read alike by trainers and by the compiler (exchange/weights), which link nothing else
 * of each other. libc alone. */
#ifndef ZPLAN_SAFETENSORS_H
#define ZPLAN_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZPR_MAX_DIMS = 8, ZPR_TENSOR_NAME = 512 };

typedef struct zpr_tensor {
  char *name; /* owned */
  char dtype[12];
  int rank;
  int64_t shape[ZPR_MAX_DIMS];
  int64_t begin, end;    /* bytes from the start of the data */
  int64_t element_bytes; /* of a file to be written; so are the next two */
  int stage;             /* of a file to be written: the stage that writes it, */
  int64_t local;         /* and where the parameter starts in that stage's flat buffers */
} zpr_tensor;

typedef struct zpr_tensors {
  int64_t n, room;
  zpr_tensor *tensor; /* owned; sorted by name once sealed or read */
  int64_t data_start; /* bytes before the data */
  int64_t file_bytes;
} zpr_tensors;

/* Bytes of an element of a dtype as the format spells it: "BF16" 2; 0: it is not known. */
int64_t zpr_element_bytes(const char *dtype);

typedef enum zpr_header_end { ZPR_HEADER_READ, ZPR_HEADER_CORRUPT, ZPR_HEADER_NO_MEMORY } zpr_header_end;
enum { ZPR_HEADER_WHY = 256 };
/* Reads the header of an open file, trusting nothing: its tensors cover all data without holes or overlap, each is as
 * long as its shape and dtype say, names differ and are UTF-8. Otherwise `why` says what is wrong with the file. Free
 * the list in either case. */
zpr_header_end zpr_header_read(zpr_tensors *list, int fd, char why[ZPR_HEADER_WHY]);
void zpr_tensors_free(zpr_tensors *list);

#endif
