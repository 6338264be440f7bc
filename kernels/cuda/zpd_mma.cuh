/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor cores and copies, as small functions: inline PTX for sm_80 and later, and for Volta (sm_70, sm_72), played on
 * the host. Elements are bf16 or f16, whatever `elem` is, on Volta f16; sums are f32.
 *
 * Every function but those of copies is for all 32 lanes of a warp together. A register holds two neighbouring
 * elements, the lower one in its lower half. */
#ifndef ZPD_MMA_CUH
#define ZPD_MMA_CUH

#include "zpd_device.h"

#ifndef ZPD_NARROW
#error "zpd_mma.cuh is for bf16 and f16"
#endif

/* ZPD_QUAD_PAIRS: the tensor cores are Volta's, which have mma.m8n8k4 and neither ldmatrix nor cp.async. Text for the
 * host says so itself, with ZPD_VOLTA. */
#if defined(ZPD_HOST) ? defined(ZPD_VOLTA) : __CUDA_ARCH__ < 750
#define ZPD_QUAD_PAIRS
#ifndef ZPD_F16
#error "Volta multiplies f16"
#endif
#endif

/* ZPD_DYNAMIC_SHARED(name): the dynamic shared memory of the launch, aligned to 128 bytes. ZPD_PLACE: of the call,
 * which the emulator names in its messages. */
#ifdef ZPD_HOST
#define ZPD_DYNAMIC_SHARED(name) unsigned char *const name = zpd_host_dynamic_shared
#define ZPD_PLACE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#else
#define ZPD_DYNAMIC_SHARED(name)                                                                                       \
  extern __shared__ __align__(128) unsigned char zpd_dynamic_shared[];                                                 \
  unsigned char *const name = zpd_dynamic_shared
#define ZPD_PLACE
ZPD_DEVICE unsigned zpd_shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
#endif

#ifndef ZPD_QUAD_PAIRS
/* ---- fragments: lane l has group l / 4 and place l % 4 ---- */

/* COUNT (1, 2, 4) matrices of 8 x 8 elements from shared memory. Lanes 8 m to 8 m + 7 name the rows of matrix m, 16
 * aligned bytes each; a lane gets elements (group, 2 place) and (group, 2 place + 1) of each, with TRANSPOSED of the
 * transposed matrix. */
#ifndef ZPD_HOST
template <bool TRANSPOSED, int COUNT> ZPD_DEVICE void zpd_ldmatrix_at(unsigned (&to)[COUNT], unsigned row) {
#define ZPD_LDMATRIX(form, registers, ...)                                                                             \
  asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 {" registers:__VA_ARGS__ : "r"(row))
  if constexpr (COUNT == 4 && TRANSPOSED)
    ZPD_LDMATRIX("x4.trans", "%0, %1, %2, %3}, [%4];", "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]));
  else if constexpr (COUNT == 4)
    ZPD_LDMATRIX("x4", "%0, %1, %2, %3}, [%4];", "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]));
  else if constexpr (COUNT == 2 && TRANSPOSED)
    ZPD_LDMATRIX("x2.trans", "%0, %1}, [%2];", "=r"(to[0]), "=r"(to[1]));
  else if constexpr (COUNT == 2)
    ZPD_LDMATRIX("x2", "%0, %1}, [%2];", "=r"(to[0]), "=r"(to[1]));
  else if constexpr (TRANSPOSED)
    ZPD_LDMATRIX("x1.trans", "%0}, [%1];", "=r"(to[0]));
  else
    ZPD_LDMATRIX("x1", "%0}, [%1];", "=r"(to[0]));
#undef ZPD_LDMATRIX
}
#endif
template <bool TRANSPOSED, int COUNT> ZPD_DEVICE void zpd_ldmatrix(unsigned (&to)[COUNT], const void *row ZPD_PLACE) {
#ifdef ZPD_HOST
  zpd_host_ldmatrix(to, COUNT, TRANSPOSED, row, file, line);
#else
  zpd_ldmatrix_at<TRANSPOSED>(to, zpd_shared_address(row));
#endif
}

/* d [16, 8] = c [16, 8] + a [16, 16] b [16, 8], or d += a b. With group g and place t a lane has
 *   a: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8)   b: (2t, g) (2t + 8, g)   and the next element of the row of a,
 *   of the column of b;   d: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1). */
ZPD_DEVICE void zpd_mma_m16n8k16_from(float (&d)[4], const float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                      unsigned b1 ZPD_PLACE) {
#ifdef ZPD_HOST
  const unsigned b[2] = {b0, b1};
  ZPD_EACH (i, 4) d[i] = c[i];
#ifdef ZPD_F16
  zpd_host_mma(d, a, b, true, file, line);
#else
  zpd_host_mma(d, a, b, false, file, line);
#endif
#else
#ifdef ZPD_F16
#define ZPD_MMA_TYPES "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#else
#define ZPD_MMA_TYPES "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#endif
  asm volatile(ZPD_MMA_TYPES "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]),
                 "f"(c[3]));
#undef ZPD_MMA_TYPES
#endif
}
ZPD_DEVICE void zpd_mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1 ZPD_PLACE) {
#ifdef ZPD_HOST
  zpd_mma_m16n8k16_from(d, d, a, b0, b1, file, line);
#else
  zpd_mma_m16n8k16_from(d, d, a, b0, b1);
#endif
}

#else
/* ---- quad pairs: lanes 4 q to 4 q + 3 and those 16 further ---- */

/* d [8, 8] += a [8, 4] b [4, 8] for each quad pair. With its lanes numbered i = 0 to 7 a lane has
 *   a: (i, 0) to (i, 3)   b: (0, i) to (3, i), with ROWS (i % 4, i / 4 * 4) and the three next of that row
 *   d: rows r = i % 2 + i / 4 * 4 and r + 2, columns c = i / 2 % 2 * 2 and c + 1 in `low`, c + 4 and c + 5 in `high`:
 *      (r, c) (r, c + 1) (r + 2, c) (r + 2, c + 1). */
template <bool ROWS>
ZPD_DEVICE void zpd_mma_m8n8k4(float (&low)[4], float (&high)[4], unsigned a0, unsigned a1, unsigned b0,
                               unsigned b1 ZPD_PLACE) {
#ifdef ZPD_HOST
  const unsigned a[2] = {a0, a1}, b[2] = {b0, b1};
  zpd_host_mma_quads(low, high, a, b, ROWS, file, line);
#else
#define ZPD_MMA_QUADS(b_order)                                                                                         \
  asm volatile("mma.sync.aligned.m8n8k4.row." b_order ".f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "            \
               "{%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"                                               \
               : "+f"(low[0]), "+f"(low[1]), "+f"(low[2]), "+f"(low[3]), "+f"(high[0]), "+f"(high[1]), "+f"(high[2]),  \
                 "+f"(high[3])                                                                                         \
               : "r"(a0), "r"(a1), "r"(b0), "r"(b1))
  if constexpr (ROWS)
    ZPD_MMA_QUADS("row");
  else
    ZPD_MMA_QUADS("col");
#undef ZPD_MMA_QUADS
#endif
}
#endif

/* ---- numbers ---- */

/* Two numbers, each rounded to the nearest even, as one register: `low` is the element before `high`. */
ZPD_DEVICE unsigned zpd_round_pair(float low, float high) {
#if defined(ZPD_HOST) || defined(ZPD_QUAD_PAIRS)
  return zpd_round_two(low, high);
#else
  unsigned pair;
#ifdef ZPD_F16
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
#endif
}

/* 2^x, within 2 ulp; 0 of minus infinity. */
ZPD_DEVICE float zpd_exp2(float x) {
#ifdef ZPD_HOST
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/* Logarithm to base 2 and reciprocal of positive numbers, within 2^-22 and 1 ulp. */
ZPD_DEVICE float zpd_log2(float x) {
#ifdef ZPD_HOST
  return log2f(x);
#else
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
ZPD_DEVICE float zpd_reciprocal(float x) {
#ifdef ZPD_HOST
  return 1 / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/* ---- copies ---- */

#ifndef ZPD_QUAD_PAIRS
/* `bytes` of 16, from aligned global memory to aligned shared memory, zeros after them. They arrive when the thread
 * has waited for the group that this and its copies before make with the next commit; others see them after a
 * barrier. */
ZPD_DEVICE void zpd_cp_async_16(void *shared, const void *global, int bytes ZPD_PLACE) {
#ifdef ZPD_HOST
  zpd_host_copy_async(shared, global, bytes, file, line);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(zpd_shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
#endif
}

/* All 16 bytes, or zeros: fewer instructions than a number of bytes takes. */
#ifndef ZPD_HOST
ZPD_DEVICE void zpd_cp_async_whole_at(unsigned shared, const void *global, bool there) {
  asm volatile(
      "{ .reg .pred none; setp.eq.u32 none, %2, 0; cp.async.cg.shared.global [%0], [%1], 16, none; }" ::"r"(shared),
      "l"(global), "r"((unsigned)there)
      : "memory");
}
#endif
ZPD_DEVICE void zpd_cp_async_whole(void *shared, const void *global, bool there ZPD_PLACE) {
#ifdef ZPD_HOST
  zpd_host_copy_async(shared, global, there ? 16 : 0, file, line);
#else
  zpd_cp_async_whole_at(zpd_shared_address(shared), global, there);
#endif
}

ZPD_DEVICE void zpd_cp_async_commit() {
#ifdef ZPD_HOST
  zpd_host_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Until at most PENDING groups of this thread are on their way. */
template <int PENDING> ZPD_DEVICE void zpd_cp_async_wait() {
#ifdef ZPD_HOST
  zpd_host_copy_wait(PENDING);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

#else
/* Volta copies at once. */
ZPD_DEVICE void zpd_cp_async_whole(void *shared, const void *global, bool there) {
  zpd_raw x;
  ZPD_EACH (i, 4) x.word[i] = 0;
  if (there) x = *(const zpd_raw *)global;
  *(zpd_raw *)shared = x;
}
ZPD_DEVICE void zpd_cp_async_commit() {}
template <int PENDING> ZPD_DEVICE void zpd_cp_async_wait() {}
#endif

/* 8 aligned bytes. */
ZPD_DEVICE void zpd_move_8(void *to, const void *from) {
#ifdef ZPD_HOST
  zpd_host_move_8(to, from);
#else
  *(uint2 *)to = *(const uint2 *)from;
#endif
}

#endif
