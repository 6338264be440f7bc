/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX-512. */
#include "attention.h"

#if ZPK_X86_LEVELS
#include <math.h>
#pragma GCC target("arch=x86-64-v4")
#define LEVEL zpk_attention_v4
#define VECTOR_BYTES 64
#define VECTORS 1
#include "attention_level.h"
#endif
