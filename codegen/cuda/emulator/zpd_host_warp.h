/* SPDX-License-Identifier: Apache-2.0 */
/* What the lanes of a warp do together, and asynchronous copies: the semantics of PTX (ISA 8.x, sections on
 * mma.m16n8k16, mma.m8n8k4, ldmatrix and cp.async), played. Part of zpd_host_scheduler.h.
 *
 * Lane l of a warp has group g = l / 4 and place t = l % 4. A register of 32 bits holds two neighbouring elements, the
 * lower one in its lower half. */
#ifndef ZPD_HOST_WARP_H
#define ZPD_HOST_WARP_H

static void zpd_host_no_act(void *const *) { zpd_host_watch_warp_barrier(); }

void zpd_host_sync_warp(unsigned lanes, const char *file, int line) {
  if (lanes != 0xffffffffu) zpd_host_refuse("a __syncwarp of some lanes", file, line);
  zpd_host_meet(zpd_host_no_act, nullptr, "__syncwarp", file, line);
}

/* ---- matrices ---- */

struct zpd_host_matrices {
  unsigned *to;
  const unsigned char *row; /* row l % 8 of matrix l / 8, for l below 8 * count */
  int count;
  bool transposed;
};

/* Lane l gets elements (g, 2t) and (g, 2t + 1) of each matrix, of its transpose (2t, g) and (2t + 1, g). */
static void zpd_host_load_matrices(void *const mine[32]) {
  const zpd_host_matrices *first = (const zpd_host_matrices *)mine[0];
  zpd_host_count_ldmatrix();
  for (int m = 0; m < first->count; m++) {
    unsigned short at[8][8];
    const void *rows[8];
    for (int r = 0; r < 8; r++) {
      rows[r] = ((const zpd_host_matrices *)mine[8 * m + r])->row;
      zpd_host_watch_shared(zpd_host_warp_begin + 8 * m + r, rows[r], 16, false);
      memcpy(at[r], rows[r], 16);
    }
    zpd_host_count_rows(rows);
    for (int lane = 0; lane < 32; lane++) {
      const zpd_host_matrices *of = (const zpd_host_matrices *)mine[lane];
      int g = lane / 4, t = 2 * (lane % 4);
      of->to[m] = of->transposed ? at[t][g] | (unsigned)at[t + 1][g] << 16 : at[g][t] | (unsigned)at[g][t + 1] << 16;
    }
  }
}

void zpd_host_ldmatrix(unsigned *to, int count, bool transposed, const void *row, const char *file, int line) {
  zpd_host_matrices mine = {to, (const unsigned char *)row, count, transposed};
  bool needed = zpd_host_current % ZPD_HOST_LANES < 8 * count;
  if (needed && ((uintptr_t)row % 16 != 0 || !zpd_host_is_shared(row, 16)))
    zpd_host_refuse("ldmatrix of a row that is not 16 aligned bytes of shared memory", file, line);
  zpd_host_meet(zpd_host_load_matrices, &mine, "ldmatrix", file, line);
}

struct zpd_host_product {
  float *d;
  const unsigned *a, *b;
  bool half;
};

/* bf16 is the upper half of an f32. f16 has five bits of exponent: what they mean is 2^112 times less in the place of
 * an f32's eight, numbers below 2^-14 included; 31 is infinity or NaN there and stays it. */
static float zpd_host_widen(unsigned bits, bool half) {
  unsigned wide = half ? (bits & 0x7fffu) << 13 : bits << 16;
  float x;
  if (half && wide >= 0x0f800000u) wide += 0x70000000u;
  memcpy(&x, &wide, sizeof x);
  if (half && wide < 0x0f800000u) x *= 0x1p112f;
  return half && bits & 0x8000u ? -x : x;
}

static float zpd_host_element(unsigned pair, int which, bool half) {
  return zpd_host_widen(pair >> 16 * which & 0xffffu, half);
}

/* Registers of lane l, with the elements (row, column) that each has:
 *   a: 0 (g, 2t..)  1 (g + 8, 2t..)  2 (g, 2t + 8..)  3 (g + 8, 2t + 8..)
 *   b: 0 (2t.., g)  1 (2t + 8.., g)
 *   d: 0 (g, 2t)  1 (g, 2t + 1)  2 (g + 8, 2t)  3 (g + 8, 2t + 1) */
static void zpd_host_multiply(void *const mine[32]) {
  float a[16][16], b[16][8], d[16][8];
  zpd_host_count_mma();
  for (int lane = 0; lane < 32; lane++) {
    const zpd_host_product *of = (const zpd_host_product *)mine[lane];
    int g = lane / 4, t = 2 * (lane % 4);
    for (int e = 0; e < 2; e++) {
      for (int r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 8 + e] = zpd_host_element(of->a[r], e, of->half);
      for (int r = 0; r < 2; r++) b[t + 8 * r + e][g] = zpd_host_element(of->b[r], e, of->half);
      for (int r = 0; r < 2; r++) d[g + 8 * r][t + e] = of->d[2 * r + e];
    }
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) d[i][j] += a[i][k] * b[k][j];
  for (int lane = 0; lane < 32; lane++) {
    const zpd_host_product *of = (const zpd_host_product *)mine[lane];
    for (int r = 0; r < 4; r++) of->d[r] = d[lane / 4 + r / 2 * 8][2 * (lane % 4) + r % 2];
  }
}

void zpd_host_mma(float *d, const unsigned *a, const unsigned *b, bool half, const char *file, int line) {
  zpd_host_product mine = {d, a, b, half};
  zpd_host_meet(zpd_host_multiply, &mine, "mma", file, line);
}

struct zpd_host_quad_product {
  float *low, *high;
  const unsigned *a, *b;
  bool b_rows;
};

/* Quad pair q is lanes 4 q to 4 q + 3 and those 16 further, and multiplies matrices of its own. With the pair's threads
 * numbered i = 0 to 7 in this order, they have as elements (row, column)
 *   a: (i, 0) to (i, 3)
 *   b: (0, i) to (3, i); by rows (i % 4, i / 4 * 4) and the three after it
 *   d: value v (i % 2 + v / 2 % 2 * 2 + i / 4 * 4, v % 2 + i / 2 % 2 * 2 + v / 4 * 4) */
static void zpd_host_multiply_quad(void *const mine[32], int first) {
  float a[8][4], b[4][8];
  for (int i = 0; i < 8; i++) {
    const zpd_host_quad_product *of = (const zpd_host_quad_product *)mine[first + i % 4 + i / 4 * 16];
    for (int e = 0; e < 4; e++) {
      a[i][e] = zpd_host_element(of->a[e / 2], e % 2, true);
      (of->b_rows ? b[i % 4][i / 4 * 4 + e] : b[e][i]) = zpd_host_element(of->b[e / 2], e % 2, true);
    }
  }
  for (int i = 0; i < 8; i++) {
    const zpd_host_quad_product *of = (const zpd_host_quad_product *)mine[first + i % 4 + i / 4 * 16];
    for (int v = 0; v < 8; v++) {
      int row = i % 2 + v / 2 % 2 * 2 + i / 4 * 4, column = v % 2 + i / 2 % 2 * 2 + v / 4 * 4;
      float *d = v < 4 ? &of->low[v] : &of->high[v - 4];
      for (int k = 0; k < 4; k++) *d += a[row][k] * b[k][column];
    }
  }
}

static void zpd_host_multiply_quads(void *const mine[32]) {
  zpd_host_count_mma();
  for (int quad = 0; quad < 4; quad++) zpd_host_multiply_quad(mine, 4 * quad);
}

void zpd_host_mma_quads(float *low, float *high, const unsigned *a, const unsigned *b, bool b_rows, const char *file,
                        int line) {
  zpd_host_quad_product mine = {low, high, a, b, b_rows};
  zpd_host_meet(zpd_host_multiply_quads, &mine, "mma", file, line);
}

/* ---- copies ---- */

void zpd_host_copy_async(void *shared, const void *global, int bytes, const char *file, int line) {
  zpd_host_pending *c = &zpd_host_threads[zpd_host_current].copies;
  if ((uintptr_t)shared % 16 != 0 || !zpd_host_is_shared(shared, 16) || bytes < 0 || bytes > 16 ||
      (bytes > 0 && (uintptr_t)global % 16 != 0))
    zpd_host_refuse("an asynchronous copy that is not of up to 16 aligned bytes to shared memory", file, line);
  if (c->n == ZPD_HOST_COPIES)
    zpd_host_refuse("more asynchronous copies of a thread on their way than are played", file, line);
  zpd_host_watch_async(__builtin_return_address(0), shared, global, bytes);
  memset(shared, 0xff, 16);
  zpd_host_copying[zpd_host_current][c->n++] = {shared, global, bytes, c->group};
}

void zpd_host_copy_commit() { zpd_host_threads[zpd_host_current].copies.group++; }

void zpd_host_copy_wait(int pending) {
  zpd_host_pending *c = &zpd_host_threads[zpd_host_current].copies;
  zpd_host_copy *all = zpd_host_copying[zpd_host_current];
  int done = 0;
  for (; done < c->n && all[done].group < c->group - pending; done++) {
    const zpd_host_copy *copy = &all[done];
    zpd_host_watch_shared(zpd_host_current, copy->to, 16, true);
    memcpy(copy->to, copy->from, (size_t)copy->bytes);
    memset((char *)copy->to + copy->bytes, 0, (size_t)(16 - copy->bytes));
  }
  c->n -= done;
  if (done) memmove(all, all + done, (size_t)c->n * sizeof *all);
}

void zpd_host_move_16(void *to, const void *from) {
  zpd_host_watch_move(__builtin_return_address(0), to, from, 16);
  memcpy(to, from, 16);
}

void zpd_host_move_8(void *to, const void *from) {
  zpd_host_watch_move(__builtin_return_address(0), to, from, 8);
  memcpy(to, from, 8);
}

#endif
