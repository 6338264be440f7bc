/* SPDX-License-Identifier: Apache-2.0 */
/* one_f_one_b_wave.c for processors with AVX2. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#include "one_f_one_b_wave.c"
#endif
