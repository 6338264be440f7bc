/* SPDX-License-Identifier: Apache-2.0 */
/* The list of optimizers, and what their rows say of a program. */
#include "optimizer.h"

static const zpr_optimizer_row *const rows[] = {
#define ROW(id, row) [id] = &row,
    ZPR_OPTIMIZERS(ROW)
#undef ROW
};

const zpr_optimizer_row *zpr_optimizer_of(const zpr_program *program) {
  assert((size_t)program->optimizer < sizeof rows / sizeof *rows);
  return rows[program->optimizer];
}

const zpr_one_bit_row *zpr_one_bit_of(const zpr_program *program) {
  const zpr_one_bit_row *const *way = zpr_optimizer_of(program)->one_bit;
  if (!zpr_is_one_bit(program)) return NULL;
  assert(way);
  while (!(*way)->applies(program)) way++;
  return *way;
}

unsigned zpr_kept(const zpr_program *program) {
  const zpr_optimizer_row *row = zpr_optimizer_of(program);
  const double *with = (const double *)(const void *)((const char *)program + row->keeps_with);
  unsigned kept = 0;
  for (int i = 0; i < ZPK_MOMENTS; i++) kept |= (unsigned)(row->moment[i] != NULL) << i;
  return row->keeps_with == 0 || *with != 0 ? kept : 0;
}
