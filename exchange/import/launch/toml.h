/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches: TOML as a JSON value. */
#ifndef ZPLAN_TOML_H
#define ZPLAN_TOML_H

#include <zplan/diag.h>
#include <zplan/json.h>

/* Tables, dotted keys, strings of one line, numbers, true and false, arrays, inline tables and comments. Dates, arrays
 * of tables and strings of several lines are refused. Values of an array stand in objects under "value". Owned by the
 * caller; NULL after reporting (Z0688) with the place. */
zp_json *toml_read(zp_arena *arena, zp_diags *diags, int file);

#endif
