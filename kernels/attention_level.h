/* Everything of attention for one instruction set, all dtypes, and its table. Expects LEVEL, VECTOR_BYTES and VECTORS.
 */
#include <string.h>

#include "real_f32.h"
#include "attention_tile.h"
#include "attention_forward.h"
#include "attention_backward.h"
#include "attention_sparse.h"
#include "real_f64.h"
#include "attention_tile.h"
#include "attention_forward.h"
#include "attention_backward.h"
#include "attention_sparse.h"
#include "real_bf16.h"
#include "attention_tile.h"
#include "attention_forward.h"
#include "attention_backward.h"
#include "attention_sparse.h"

const zpk_attention_level LEVEL = {.forward = {forward_f32, forward_f64, forward_bf16},
                                   .backward = {backward_f32, backward_f64, backward_bf16}};
