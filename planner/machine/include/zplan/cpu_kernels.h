/* SPDX-License-Identifier: Apache-2.0 */
/* What `zplan calibrate` found out about the kernels of CPU trainers, as the cost model asks for it. All rates are
 * those of a node's cores together, as shares of the device's (zp_device), like eff_matmul: what changes a device's
 * rates changes these. */
#ifndef ZPLAN_CPU_KERNELS_H
#define ZPLAN_CPU_KERNELS_H

#include <stdbool.h>
#include <zplan/arena.h>

/* Rates by one to three sizes, measured at the crossings of a grid. Between them the logarithm of the rate is linear in
 * the logarithms of the sizes; above the largest size the rate stays. Below the smallest: see `whole`. */
enum { ZP_RATE_AXES = 3, ZP_RATE_SIDES = 16 };
typedef struct zp_rate_table {
  int axes, sides[ZP_RATE_AXES];
  double log_size[ZP_RATE_AXES][ZP_RATE_SIDES]; /* ascending */
  double *log_share;                            /* [sides[0]][sides[1]][sides[2]], arena; NULL: no table */
  bool whole; /* below the smallest size a call takes as long as with it, because kernels compute whole tiles; otherwise
               * the rate stays */
} zp_rate_table;

/* A point of a table that is to be. */
typedef struct zp_rate_sample {
  double size[ZP_RATE_AXES], share;
} zp_rate_sample;
/* NULL table and *error (arena) unless the samples are positive and fill a grid. With `axes` of 1 .. 3. */
bool zp_rate_table_make(zp_arena *arena, const zp_rate_sample *samples, int n, int axes, bool whole,
                        zp_rate_table *table, const char **error);
/* size: [axes], positive. */
double zp_rate_at(const zp_rate_table *table, const double *size);

/* How a product's operands lie: rows of the right one are the product's columns (a layer forward), neither is turned
 * (gradient of the inputs), columns of the left one are the product's rows (gradient of the weight). */
typedef enum zp_product_kind { ZP_PRODUCT_NT, ZP_PRODUCT_NN, ZP_PRODUCT_TN, ZP_PRODUCT_KINDS } zp_product_kind;

/* What a pair of ranks of a node takes to sum or to send, while all ranks do (cpu_links.c). */
typedef enum zp_pair_kind {
  ZP_PAIR_OFTEN,   /* sums in the caches: of tensor groups */
  ZP_PAIR_LARGE,   /* sums that come from memory: of all other groups */
  ZP_PAIR_MESSAGE, /* between stages */
  ZP_PAIR_KINDS
} zp_pair_kind;
typedef struct zp_pair_link {
  double ranks; /* of the node */
  double latency_s[ZP_PAIR_KINDS], bytes_per_s[ZP_PAIR_KINDS];
} zp_pair_link;
enum { ZP_MOST_PAIRS = 6 };

typedef struct zp_cpu_kernels {
  zp_rate_table product[ZP_PRODUCT_KINDS]; /* of flop_per_s, by rows, columns and depth of one rank's product */
  zp_rate_table attention[2];              /* of flop_per_s, forward and backward, by sequence and head size */
  zp_rate_table sparse_attention[2];       /* by block and head size, of whole pairs of blocks; may have no table */
  zp_rate_table
      row_bytes;       /* of memory_bytes_per_s: row kernels by the bytes that a call moves on all ranks of a node */
  double row_flop[2];  /* of flop_per_s: arithmetic of row kernels, forward and gradients */
  double update, norm; /* of memory_bytes_per_s: optimizer and sum of squares, which no cache holds */
  double cores;        /* of the node */
  zp_pair_link pair[ZP_MOST_PAIRS]; /* ascending by ranks; none in older calibrations */
  int n_pairs;
  double link_bytes_per_s; /* the node's link, which shares are of; 0: n_pairs is */
} zp_cpu_kernels;

/* A hop of a rank among `ranks` of its node: its latency, and its rate as a share of the node's link. false: it was not
 * measured. */
bool zp_cpu_link(const zp_cpu_kernels *kernels, double ranks, zp_pair_kind kind, double *latency_s, double *share);

#endif
