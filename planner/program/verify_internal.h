/* Private to the verifier. */
#ifndef ZPLAN_VERIFY_INTERNAL_H
#define ZPLAN_VERIFY_INTERNAL_H

#include <zplan/plan.h>

typedef struct zp_verifier {
  zp_arena *arena;
  const zp_spec *spec;
  zp_strings *findings;
  int tensor, pipeline, data, zero;
  int64_t microbatch, microbatches;
  int compute_bytes;
  zp_machine machine;
  const zp_json *stages, *program;
  int64_t *elements; /* local elements per model parameter */
} zp_verifier;

/* Records a finding (at most 20 are kept). */
void zp_find(zp_verifier *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
void zp_verify_procedures(zp_verifier *v);
void zp_verify_order(zp_verifier *v);

#endif
