/* SPDX-License-Identifier: Apache-2.0 */
/* What all device kernels share: the element type, the form of a kernel, sums over a block, maths.
 *
 * NVRTC compiles this without any toolkit header: it includes the contract and nothing else. With ZPD_HOST the same
 * text is C++ for the host, and zpd_host.h plays the built-in names of CUDA (threadIdx, __syncthreads, ...).
 *
 * Sums are made in an order that depends on nothing but the number of elements, so a run repeats to the last bit. */
#ifndef ZPD_DEVICE_H
#define ZPD_DEVICE_H

#ifdef ZPD_HOST
#include <math.h>
#include "zpd_host.h"
#endif
#include "zplan/zpd.h"

#ifdef ZPD_F64
typedef double real;
#else
typedef float real;
#endif

#define ZPD_DEVICE static __device__ __forceinline__
#define ZPD_TABLE static __device__ const

#include "zpd_elem.h"

/* An unrolled loop, so that arrays indexed by i become registers. */
#ifdef ZPD_HOST
#define ZPD_EACH(i, count) for (int i = 0; i < (count); i++)
#else
#define ZPD_EACH(i, count) _Pragma("unroll") for (int i = 0; i < (count); i++)
#endif

/* ZPD_KERNEL(name, type) { ... a.member ... }: a kernel that gets one struct, `a`. On the host zpd_host_<name> runs it
 * for the thread that is current in the emulation, and zpd_host_bytes_<name> says how long its arguments are.
 * ZPD_KERNEL_OF says how many threads a block has and how many blocks a multiprocessor should hold at least: what
 * registers are shared out for. */
#ifdef ZPD_HOST
#define ZPD_KERNEL_OF(threads, blocks, name, type)                                                                     \
  static void name(const type &a);                                                                                     \
  extern "C" unsigned zpd_host_bytes_##name(void) { return sizeof(type); }                                             \
  extern "C" void zpd_host_##name(const void *args) {                                                                  \
    zpd_host_argument_bytes = sizeof(type);                                                                            \
    name(*(const type *)args);                                                                                         \
  }                                                                                                                    \
  static void name(const type &a)
#else
#define ZPD_KERNEL_OF(threads, blocks, name, type)                                                                     \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const type a)
#endif
#define ZPD_KERNEL(name, type) ZPD_KERNEL_OF(ZPD_FLAT_THREADS, 1, name, type)

enum { ZPD_WARP = 32, ZPD_WARPS = ZPD_ROW_THREADS / ZPD_WARP };
static_assert(ZPD_ROW_THREADS == 256 && ZPD_FLAT_THREADS == 256 && ZPD_CE_THREADS == 256 &&
                  ZPD_ATTENTION_THREADS <= 256,
              "block reductions and the launch bounds are written for these");

/* ---- 16 bytes of reals, which a thread moves at once; as elems they are the widest load or half of it ---- */

enum { ZPD_PACK = 16 / sizeof(real) };
struct alignas(16) zpd_pack {
  real at[ZPD_PACK];
};
#ifdef ZPD_NARROW
struct alignas(ZPD_PACK * sizeof(elem)) zpd_stored {
  elem at[ZPD_PACK];
};
ZPD_DEVICE zpd_pack zpd_get(const elem *from) {
  const zpd_stored s = *(const zpd_stored *)from;
  zpd_pack p;
  ZPD_EACH (i, ZPD_PACK) p.at[i] = s.at[i];
  return p;
}
ZPD_DEVICE void zpd_put(elem *to, const zpd_pack &p) {
  zpd_stored s;
  ZPD_EACH (i, ZPD_PACK) s.at[i] = p.at[i];
  *(zpd_stored *)to = s;
}
#else
typedef zpd_pack zpd_stored;
ZPD_DEVICE zpd_pack zpd_get(const elem *from) { return *(const zpd_pack *)from; }
ZPD_DEVICE void zpd_put(elem *to, const zpd_pack &p) { *(zpd_pack *)to = p; }
#endif

/* Whether zpd_get and zpd_put may work here. */
ZPD_DEVICE bool zpd_aligned(const void *p) { return (zpd_uint)p % sizeof(zpd_stored) == 0; }

/* ---- 16 bytes of elems as they are stored: what a thread reads and writes at once, and may keep in registers ---- */

enum { ZPD_VEC = 16 / sizeof(elem) };
struct zpd_reals {
  real at[ZPD_VEC];
};

#ifdef ZPD_NARROW
#ifdef ZPD_HOST
/* What is read as words was written as elems. A vector is moved at once there, too. */
struct __attribute__((may_alias, aligned(16))) zpd_raw {
  unsigned word __attribute__((vector_size(16)));
};
#else
struct alignas(16) zpd_raw {
  unsigned word[ZPD_VEC / 2]; /* two elems each, the first one in the lower half */
};
#endif
ZPD_DEVICE real zpd_raw_at(const zpd_raw &r, int k) { return zpd_widen((unsigned short)(r.word[k / 2] >> k % 2 * 16)); }
ZPD_DEVICE zpd_raw zpd_raw_of(const real *x) {
  zpd_raw r;
  ZPD_EACH (i, ZPD_VEC / 2) r.word[i] = zpd_round_two(x[2 * i], x[2 * i + 1]);
  return r;
}
#else
struct alignas(16) zpd_raw {
  real at[ZPD_VEC];
};
ZPD_DEVICE real zpd_raw_at(const zpd_raw &r, int k) { return r.at[k]; }
ZPD_DEVICE zpd_raw zpd_raw_of(const real *x) {
  zpd_raw r;
  ZPD_EACH (k, ZPD_VEC) r.at[k] = x[k];
  return r;
}
#endif

/* Whether 16 bytes may be moved at once from p on: NULL stands for an array that is not there. */
ZPD_DEVICE bool zpd_begins_pack(const void *p) { return (zpd_uint)p % 16 == 0; }

/* The elems from p on of which `left` are there, zeros after them; `packs`: 16 bytes may be moved at once. */
ZPD_DEVICE zpd_raw zpd_raw_load(const elem *p, zpd_int left, bool packs) {
  if (packs && left >= ZPD_VEC) return *(const zpd_raw *)p;
  real x[ZPD_VEC];
  ZPD_EACH (k, ZPD_VEC) x[k] = k < left ? (real)p[k] : 0;
  return zpd_raw_of(x);
}

ZPD_DEVICE void zpd_raw_store(elem *p, const zpd_raw &r, zpd_int left, bool packs) {
  if (packs && left >= ZPD_VEC)
    *(zpd_raw *)p = r;
  else
    ZPD_EACH (k, ZPD_VEC)
      if (k < left) p[k] = zpd_raw_at(r, k);
}

/* As many reals, 16 bytes at a time, from a multiple of 16 bytes on. The second pair as those of elems. */
ZPD_DEVICE zpd_reals zpd_reals_load(const real *p) {
  zpd_reals x;
  ZPD_EACH (i, ZPD_VEC / ZPD_PACK) {
    const zpd_pack pack = ((const zpd_pack *)p)[i];
    ZPD_EACH (k, ZPD_PACK) x.at[i * ZPD_PACK + k] = pack.at[k];
  }
  return x;
}

ZPD_DEVICE void zpd_reals_store(real *p, const zpd_reals &x) {
  ZPD_EACH (i, ZPD_VEC / ZPD_PACK) {
    zpd_pack pack;
    ZPD_EACH (k, ZPD_PACK) pack.at[k] = x.at[i * ZPD_PACK + k];
    ((zpd_pack *)p)[i] = pack;
  }
}

ZPD_DEVICE zpd_reals zpd_reals_load_some(const real *p, zpd_int left, bool packs) {
  if (packs && left >= ZPD_VEC) return zpd_reals_load(p);
  zpd_reals x;
  ZPD_EACH (k, ZPD_VEC) x.at[k] = k < left ? p[k] : 0;
  return x;
}

/* What the end of a step reads of gradients. */
#ifdef ZPD_STOCHASTIC_SUMS
struct zpd_sum {
  unsigned short bits; /* bf16 */
  __device__ __forceinline__ operator real() const { return zpd_widen_bf16(bits); }
};
ZPD_DEVICE zpd_reals zpd_reals_load(const zpd_sum *p) {
  const zpd_raw raw = *(const zpd_raw *)p;
  zpd_reals x;
  ZPD_EACH (k, ZPD_VEC) x.at[k] = zpd_widen_bf16((unsigned short)(raw.word[k / 2] >> k % 2 * 16));
  return x;
}
ZPD_DEVICE zpd_reals zpd_reals_load_some(const zpd_sum *p, zpd_int left, bool packs) {
  if (packs && left >= ZPD_VEC) return zpd_reals_load(p);
  zpd_reals x;
  ZPD_EACH (k, ZPD_VEC) x.at[k] = k < left ? (real)p[k] : 0;
  return x;
}
#else
typedef real zpd_sum;
#endif

ZPD_DEVICE void zpd_reals_store_some(real *p, const zpd_reals &x, zpd_int left, bool packs) {
  if (packs && left >= ZPD_VEC)
    zpd_reals_store(p, x);
  else
    ZPD_EACH (k, ZPD_VEC)
      if (k < left) p[k] = x.at[k];
}

/* ---- maths: f32 stays f32 ---- */

#ifdef ZPD_F64
ZPD_DEVICE real zpd_exp(real x) { return exp(x); }
ZPD_DEVICE real zpd_log(real x) { return log(x); }
ZPD_DEVICE real zpd_sqrt(real x) { return sqrt(x); }
ZPD_DEVICE real zpd_tanh(real x) { return tanh(x); }
ZPD_DEVICE real zpd_erf(real x) { return erf(x); }
#else
#if defined(ZPD_NARROW) && !defined(ZPD_HOST)
/* Results have 8 or 11 bits: e^x by the hardware's power of two, a few units of f32 alongside the truth near 0 and |x|
 * 2^-24 of it further away. */
ZPD_DEVICE real zpd_exp(real x) { return __expf(x); }
#else
ZPD_DEVICE real zpd_exp(real x) { return expf(x); }
#endif
ZPD_DEVICE real zpd_log(real x) { return logf(x); }
ZPD_DEVICE real zpd_sqrt(real x) { return sqrtf(x); }
ZPD_DEVICE real zpd_tanh(real x) { return tanhf(x); }
ZPD_DEVICE real zpd_erf(real x) { return erff(x); }
#endif
#if defined(ZPD_NARROW) && !defined(ZPD_HOST)
/* The hardware's reciprocals, within 2 ulp of f32: a division that is right to the last bit takes ten instructions. Of
 * numbers above 2^126 the reciprocal is 0. */
ZPD_DEVICE real zpd_sigmoid(real x) { return __fdividef(1, 1 + zpd_exp(-x)); }
ZPD_DEVICE real zpd_rsqrt(real x) { return rsqrtf(x); }
#else
ZPD_DEVICE real zpd_sigmoid(real x) { return 1 / (1 + zpd_exp(-x)); }
ZPD_DEVICE real zpd_rsqrt(real x) { return 1 / zpd_sqrt(x); }
#endif

#ifdef ZPD_HOST
ZPD_DEVICE real zpd_infinity() { return (real)INFINITY; }
#else
ZPD_DEVICE real zpd_infinity() { return (real)__int_as_float(0x7f800000); }
#endif

/* The larger one; NaN if either is. */
ZPD_DEVICE real zpd_max(real x, real y) { return x > y || x != x ? x : y; }

/* ---- over a block of ZPD_ROW_THREADS: every thread gives x and gets the same result ---- */

/* The warps by butterflies, then their results in order. A barrier on either side of the reading, so calls may follow
 * one another. */
template <class T> ZPD_DEVICE T zpd_block_sum_in(T x, T *warps) {
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  if (threadIdx.x % ZPD_WARP == 0) warps[threadIdx.x / ZPD_WARP] = x;
  __syncthreads();
  x = warps[0];
  for (int i = 1; i < ZPD_WARPS; i++) x += warps[i];
  __syncthreads();
  return x;
}

ZPD_DEVICE real zpd_block_sum(real x) {
  __shared__ real warps[ZPD_WARPS];
  return zpd_block_sum_in(x, warps);
}

/* In f64, whatever `real` is. */
ZPD_DEVICE double zpd_block_sum_f64(double x) {
  __shared__ double warps[ZPD_WARPS];
  return zpd_block_sum_in(x, warps);
}

ZPD_DEVICE real zpd_block_max(real x) {
  __shared__ real warps[ZPD_WARPS];
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) x = zpd_max(x, __shfl_xor_sync(0xffffffffu, x, lane));
  if (threadIdx.x % ZPD_WARP == 0) warps[threadIdx.x / ZPD_WARP] = x;
  __syncthreads();
  x = warps[0];
  for (int i = 1; i < ZPD_WARPS; i++) x = zpd_max(x, warps[i]);
  __syncthreads();
  return x;
}

/* How many the threads before this one have; *total: all of them. */
ZPD_DEVICE int zpd_block_count_before(int mine, int *total) {
  __shared__ int warps[ZPD_WARPS];
  int before = 0, all = mine, lane = threadIdx.x % ZPD_WARP;
  for (int step = 1; step < ZPD_WARP; step *= 2) {
    int other = __shfl_xor_sync(0xffffffffu, all, step);
    if (lane & step) before += other;
    all += other;
  }
  if (lane == 0) warps[threadIdx.x / ZPD_WARP] = all;
  __syncthreads();
  int sum = 0;
  for (int i = 0; i < ZPD_WARPS; i++) {
    if (i == (int)threadIdx.x / ZPD_WARP) before += sum;
    sum += warps[i];
  }
  __syncthreads();
  *total = sum;
  return before;
}

/* 16 aligned bytes at once, between shared and global memory or registers. */
ZPD_DEVICE void zpd_move_16(void *to, const void *from) {
#ifdef ZPD_HOST
  zpd_host_move_16(to, from);
#else
  *(uint4 *)to = *(const uint4 *)from;
#endif
}

/* ---- blocks of a launch among each other ---- */

/* Does the block come last of `of` that ask with the same ticket? Then it sees what the others had written before, and
 * the ticket is 0 again. */
ZPD_DEVICE bool zpd_comes_last(unsigned *ticket, unsigned of) {
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(ticket, 1u) == of - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  const bool mine = last != 0;
  __syncthreads();
  __threadfence();
  return mine;
}

/* What other blocks of the launch have written: not from a cache that knows nothing of them. */
template <class T> ZPD_DEVICE T zpd_read_others(const T *p) {
#ifdef ZPD_HOST
  return *p;
#else
  return __ldcg(p);
#endif
}
ZPD_DEVICE zpd_pack zpd_read_others(const zpd_pack *p) {
  zpd_pack pack;
#ifdef ZPD_HOST
  zpd_move_16(&pack, p);
#elif defined(ZPD_F64)
  *(double2 *)&pack = __ldcg((const double2 *)p);
#else
  *(float4 *)&pack = __ldcg((const float4 *)p);
#endif
  return pack;
}

#endif
