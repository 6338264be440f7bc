/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics as a JSON array. */
#ifndef ZPLAN_DIAG_JSON_H
#define ZPLAN_DIAG_JSON_H

#include <zplan/diag.h>
#include <zplan/json.h>

/* All of them, printed or not, as zp_diags_print_json has them; owned by the caller. */
zp_json *zp_diags_json(zp_arena *arena, const zp_diags *diags);

#endif
