/* SPDX-License-Identifier: Apache-2.0 */
/* label_loops.c for processors with AVX2. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#include "label_loops.c"
#endif
