/* What the program that a plan is for can do. */
#include "../schedule/schedule.h"
#include "software.h"

const char *zp_trainer_refusal(const zp_spec *spec, const zp_choice *choice) {
  const char *why = NULL;
  if (spec->cluster.trainer == ZP_TRAINER_ZPLAN) (void)zp_choice_is_generated(choice, &why);
  return why;
}
