/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with AVX2 and FMA. The vector size is part of the source (wider vectors than the machine has are slow), so
 * attention is compiled once per level by hand and not by ZPK_CLONES. */
#include "attention.h"

#if ZPK_X86_LEVELS
#include <math.h>
#pragma GCC target("arch=x86-64-v3")
#define LEVEL zpk_attention_v3
#define VECTOR_BYTES 32
#define VECTORS 2
#include "attention_level.h"
#endif
