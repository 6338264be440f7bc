/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of safetensors headers, manifests and maps, read strictly. */
#ifndef ZPLAN_RT_JSON_SCAN_H
#define ZPLAN_RT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A strict pull reader over borrowed text. After the first error every call returns false, so callers check once. */
typedef struct zpr_json {
  const char *at, *end;
  int depth;
  bool failed, fresh; /* fresh: the innermost object or array has had no member yet */
} zpr_json;
zpr_json zpr_json_open(const char *text, size_t bytes);
bool zpr_json_object(zpr_json *j);
/* Next key of the innermost object and its colon; false at the end of the object. `size` includes the zero. */
bool zpr_json_key(zpr_json *j, char *key, size_t size);
bool zpr_json_array(zpr_json *j);
bool zpr_json_item(zpr_json *j); /* whether the innermost array has another element; false at its end */
bool zpr_json_string(zpr_json *j, char *text, size_t size);
bool zpr_json_int(zpr_json *j, int64_t *value); /* 0 <= value <= INT64_MAX, digits only */
bool zpr_json_skip(zpr_json *j);                /* any value */
bool zpr_json_done(zpr_json *j);                /* nothing failed and nothing follows */

#endif
