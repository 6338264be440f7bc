/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in one dtype: the parts in the order in which they need each other. */
#include "attention_tile.h"
#include "attention_bend.h"
#include "attention_forward.h"
#include "attention_backward.h"
#include "attention_sparse.h"
#include "attention_stretch.h"
