/* SPDX-License-Identifier: Apache-2.0 */
/* The table of diagnostic codes, made from diag_codes.def. */
#include "diag_internal.h"

#include <assert.h>

typedef struct code_row {
  const char *name;
  zp_level level;
  const char *title, *page;
} code_row;

static const code_row rows[ZP_DIAG_CODE_COUNT] = {
#define ZP_DIAG(code, level, title, page) [ZP_##code] = {#code, level, title, page},
#include <zplan/diag_codes.def>
#undef ZP_DIAG
};

zp_level zp_diag_level(const zp_diag *diag) { return rows[diag->code].level; }
const char *zp_code_name(zp_diag_code code) {
  assert(code < ZP_DIAG_CODE_COUNT);
  return rows[code].name;
}
const char *zp_code_title(zp_diag_code code) {
  assert(code < ZP_DIAG_CODE_COUNT);
  return rows[code].title;
}
const char *zp_code_page(zp_diag_code code) {
  assert(code < ZP_DIAG_CODE_COUNT);
  return rows[code].page;
}

zp_diag_code zp_code_by_name(const char *name) {
  assert(name);
  for (int i = 0; i < ZP_DIAG_CODE_COUNT; i++)
    if (strcmp(rows[i].name, name) == 0) return (zp_diag_code)i;
  return ZP_DIAG_CODE_COUNT;
}
