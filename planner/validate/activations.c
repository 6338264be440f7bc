/* SPDX-License-Identifier: Apache-2.0 */
/* Reference formulas for saved activations: Korthikanti et al., arXiv 2205.05198, section 4, bytes of two-byte
 * training. Legend: s sequence, b micro-batch, h hidden, a heads, t tensor ranks, p stages, m chunks a stage, L layers.
 *
 *   tensor parallel, nothing recomputed: s b h (10 + 24 / t + 5 a s / (h t)) a layer           (equation 2)
 *   with sequence parallelism and attention recomputed:          s b h 34 / t a layer          (equation 6)
 *   first stage: L layers' worth however many stages there are, and with interleaving 1 + (p - 1) / (p m) times that
 *   first stage also: dropout of the embedding, s b h p / t bytes (1 byte a mask element; p micro-batches in flight)
 *   without a pipeline also: final norm's and head's inputs, 4 s b h / t (1 + v / h), left out of the figures
 *
 * The planner's own memory is not computed with these: it counts the buffers of its program. They are here so that the
 * two can be compared. */
#include "validate_internal.h"

#include <assert.h>

double zp_activation_bytes(zp_activation_case which, double layers, double hidden, double heads, double sequence,
                           double microbatch, double tensor, double pipeline, double chunks) {
  assert(layers > 0 && hidden > 0 && heads > 0 && sequence > 0 && microbatch > 0);
  assert(tensor >= 1 && pipeline >= 1 && chunks >= 1);
  double sbh = sequence * microbatch * hidden;
  double plain = 10 + 24 / tensor + 5 * heads * sequence / (hidden * tensor);
  double layer = sbh * (which == ZP_ACTIVATIONS_PLAIN ? plain : 34 / tensor);
  double interleaved = chunks > 1 ? 1 + (pipeline - 1) / (pipeline * chunks) : 1;
  return layer * layers * interleaved;
}
