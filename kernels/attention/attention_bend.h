/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to scores between the product and the softmax, in one dtype and instruction set: soft caps, and biases
 * that grow with the distance. */

/* tanh without branches, so that loops vectorise. Near 0, where 1 - 2 / (e^2x + 1) loses digits, the rational function
 * of Cephes (Moshier, tanh.c), elsewhere that form. */
static inline REAL NAME(tanh)(REAL x) {
  const REAL square = x * x, size = x < 0 ? -x : x;
  const REAL above = ((REAL)-9.64399179425052238628e-1 * square - (REAL)9.92877231001918586564e1) * square -
                     (REAL)1.61468768441708447952e3;
  const REAL below = ((square + (REAL)1.12811678491632931402e2) * square + (REAL)2.23548839060100448583e3) * square +
                     (REAL)4.84406305325125486048e3;
  const REAL near = x + x * square * (above / below), far = 1 - 2 / (REAL_EXP(2 * size) + 1);
  return size < (REAL)0.625 ? near : x < 0 ? -far : far;
}

/* What is added to scores of a head by distance. */
typedef struct NAME(by_distance) {
  REAL slope;   /* of ALiBi; 0: none */
  REAL *line;   /* a relative bias: of a key `behind` the query at behind + S - 1; NULL: none */
  REAL *d_line; /* likewise the sum of its gradients */
} NAME(by_distance);

/* Products of one query with the keys of a block to scores. away: positions from the first key to the query. grad,
 * where it is wanted: of every score by its product. */
static inline void NAME(bend)(const zpk_attention_args *args, REAL scale, const NAME(by_distance) * bias, int64_t away,
                              REAL *restrict score, REAL *restrict grad) {
  const REAL cap = (REAL)args->softcap, inverse = cap > 0 ? scale / cap : 0;
  if (cap > 0)
    for (int64_t j = 0; j < BLOCK; j++) {
      REAL bent = NAME(tanh)(score[j] * inverse);
      score[j] = cap * bent;
      if (grad) grad[j] = (1 - bent * bent) * scale;
    }
  else
    for (int64_t j = 0; j < BLOCK; j++) {
      score[j] *= scale;
      if (grad) grad[j] = scale;
    }
  const REAL slope = bias->slope;
  for (int64_t j = 0; slope != 0 && j < BLOCK; j++) score[j] -= slope * (REAL)(away < j ? j - away : away - j);
  const REAL *line = bias->line ? bias->line + args->S - 1 - away : NULL;
  for (int64_t j = 0; line && j < BLOCK; j++) score[j] += line[j];
}

static inline bool NAME(bends)(const zpk_attention_args *args) {
  return args->softcap > 0 || args->alibi_heads > 0 || args->buckets > 0;
}

/* What head h has in the worker's lines. */
static inline NAME(by_distance) NAME(bias_of)(const zpk_attention_args *args, int64_t h, REAL *lines, bool backward) {
  NAME(by_distance) bias = {0};
  if (args->alibi_heads) bias.slope = (REAL)zpk_alibi_slope(args->first_head + h, args->alibi_heads);
  if (!args->buckets) return bias;
  int64_t n = zpk_line_elements(args->S), group = args->H / args->G;
  bias.line = lines + h % group * n;
  if (backward && args->d_bias) bias.d_line = lines + (group + h % group) * n;
  return bias;
}

/* Writes its line, clears that of the gradient. */
static inline void NAME(begin_bias)(const zpk_attention_args *args, int64_t h, const NAME(by_distance) * bias) {
  int64_t n = zpk_line_elements(args->S), S = args->S;
  if (!bias->line) return;
  memset(bias->line, 0, (size_t)n * sizeof(REAL));
  for (int64_t behind = 1 - S; behind < (args->causal ? 1 : S); behind++) {
    int64_t bucket = zpk_bias_bucket(behind, args->buckets, args->causal ? 1 : 2, args->max_distance);
    bias->line[behind + S - 1] = GET(((const ELEM *)args->bias)[bucket * args->bias_ld + h]);
  }
  if (bias->d_line) memset(bias->d_line, 0, (size_t)n * sizeof(REAL));
}

/* Gradients of one query's scores, which are ds / slope where scores are bent. */
static inline void NAME(sum_bias)(const zpk_attention_args *args, const NAME(by_distance) * bias, int64_t away,
                                  zpk_span seen, const REAL *ds) {
  REAL *line = bias->d_line + args->S - 1 - away;
  for (int64_t j = seen.from; j < seen.to; j++) line[j] += ds[j];
}

/* Adds the line of gradients to the sums of sample b and head h. */
static inline void NAME(end_bias)(const zpk_attention_args *args, int64_t b, int64_t h,
                                  const NAME(by_distance) * bias) {
  if (!bias->d_line) return;
  REAL *sums = (REAL *)args->bias_sums + (b * args->H + h) * args->buckets;
  for (int64_t behind = 1 - args->S; behind < (args->causal ? 1 : args->S); behind++)
    sums[zpk_bias_bucket(behind, args->buckets, args->causal ? 1 : 2, args->max_distance)] +=
        bias->d_line[behind + args->S - 1];
}
