/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over keys of another sequence, and with a relative bias: every instruction set and dtype against naive f64
 * sums, samples of several lengths, padding heads. */
#include "attention.h"
#include <stdio.h>
#include "pairs_testing.h"

static void run_case(const zpk_attention_level *level, const char *name, zpk_dtype dtype, size_t number) {
  pair_problem p = make_pair(dtype, number);
  zpk_attention_args *args = &p.args;
  char what[80];
  args->bias_sums = stored(real_of(dtype), NULL, B * H * MOST_BUCKETS);
  for (int backward = 0; backward < 2; backward++) {
    int64_t positions = backward ? args->S : keys_of(p.c);
    args->workspace = malloc((size_t)zpk_attention_workspace(dtype, positions, HD, H / G, backward));
    args->bias_lines = malloc((size_t)zpk_attention_bias_line(dtype, args->S, H / G, backward));
    zpk_attention_on(level, backward, args, 0, B * G, 0);
    free(args->workspace), free(args->bias_lines);
  }
  if (args->buckets) zpk_attention_bias_grad(args);
  free(args->bias_sums);
  snprintf(what, sizeof what, "%s, case %zu, dtype %d", name, number, dtype);
  check_pair(&p, what);
}

static void run(const zpk_attention_level *level, const char *name) {
  for (int dtype = 0; dtype < ZPK_DTYPES; dtype++)
    for (size_t i = 0; i < PAIR_CASES; i++) run_case(level, name, (zpk_dtype)dtype, i);
}

TEST_LEVELS(kernels_attention_pairs, run)
