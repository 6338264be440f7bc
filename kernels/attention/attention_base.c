/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on any machine: 128-bit vectors, which SSE2 and NEON have. */
#include "attention.h"

#define LEVEL zpk_attention_base
#define VECTOR_BYTES 16
#define VECTORS 2
#include "attention_level.h"
