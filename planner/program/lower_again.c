/* Procedures that are lowered already, for expert groups on other links: only what an exchange takes differs, so all
 * but the steps around exchanges is shared. */
#include <zplan/program.h>

#include <assert.h>

static bool exchanges(const zp_procedure *p) {
  for (int i = 0; i < p->steps.len; i++)
    if (zp_step_is_exchange(&p->steps.data[i])) return true;
  return false;
}

static void own_steps(zp_arena *arena, zp_procedure *p) {
  zp_step *steps = ZP_NEW_ARRAY(arena, zp_step, p->steps.len);
  if (p->steps.len) memcpy(steps, p->steps.data, sizeof *steps * (size_t)p->steps.len);
  p->steps.data = steps, p->steps.cap = p->steps.len;
}

static zp_segment_program segment_again(zp_arena *arena, const zp_segment_program *known) {
  zp_segment_program again = *known;
  if (!exchanges(&known->forward) && !exchanges(&known->backward)) return again;
  own_steps(arena, &again.forward);
  own_steps(arena, &again.backward);
  own_steps(arena, &again.split);
  return again;
}

zp_lowered *zp_lower_again(zp_arena *arena, const zp_lowered *known, const zp_lowered *whole) {
  assert(known);
  zp_lowered *again = ZP_NEW(arena, zp_lowered);
  *again = *known;
  again->segments = ZP_NEW_ARRAY(arena, zp_segment_program, known->n_segments);
  for (int i = 0; i < known->n_segments; i++)
    again->segments[i] =
        whole && i < whole->n_segments ? whole->segments[i] : segment_again(arena, &known->segments[i]);
  return again;
}
