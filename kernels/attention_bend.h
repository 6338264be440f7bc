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

/* Products of one query with the keys of a block to scores. slope: of the head, 0: no bias; away: positions from the
 * first key to the query. grad, where it is wanted: of every score by its product. */
static inline void NAME(bend)(const zpk_attention_args *args, REAL scale, REAL slope, int64_t away,
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
  for (int64_t j = 0; slope != 0 && j < BLOCK; j++) score[j] -= slope * (REAL)(away < j ? j - away : away - j);
}

static inline REAL NAME(slope_of)(const zpk_attention_args *args, int64_t h) {
  return args->alibi_heads ? (REAL)zpk_alibi_slope(args->first_head + h, args->alibi_heads) : 0;
}

static inline bool NAME(bends)(const zpk_attention_args *args) { return args->softcap > 0 || args->alibi_heads > 0; }
