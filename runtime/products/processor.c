/* SPDX-License-Identifier: Apache-2.0 */
/* Features of the processor, as processor and operating system report them together: the compiler's support code also
 * asks whether the system keeps the wide registers. */
#include "products.h"

unsigned zpr_processor_features(void) {
  unsigned features = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return features;
  features |= ZPR_AVX2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512cd") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return features;
  features |= ZPR_AVX512;
  if (__builtin_cpu_supports("avx512bf16")) features |= ZPR_AVX512_BF16;
#endif
  return features;
}

const char *zpr_features_text(unsigned features) {
  if (features & ZPR_AVX512_BF16) return "avx2 avx512 avx512_bf16";
  if (features & ZPR_AVX512) return "avx2 avx512";
  return features & ZPR_AVX2 ? "avx2" : "neither avx2 nor avx512";
}
