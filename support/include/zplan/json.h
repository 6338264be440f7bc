/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in and out, over Jansson (json.c is the only file that includes it). Integers stay 64-bit integers,
 * reals are written with 12 significant digits and never as NaN, keys keep insertion order so that a plan diffs well.
 * Values are owned by their container; only the root is freed. What is set is set in an object, under a key in UTF-8;
 * what is appended, to an array. */
#ifndef ZPLAN_JSON_H
#define ZPLAN_JSON_H

#include <stdbool.h>
#include <zplan/arena.h>

typedef struct zp_json zp_json; /* opaque: Jansson's json_t */

const char *zp_json_library(void); /* the version of Jansson */

zp_json *zp_json_object(void);
zp_json *zp_json_array(void);
void zp_json_free(zp_json *root);
/* Values that this thread makes from here on stand in the arena and go with it, and no value is freed, until this is
 * called with NULL: one large value is made and forgotten in less work. The arena before, NULL: none. */
zp_arena *zp_json_make_in(zp_arena *arena);

void zp_json_set_int(zp_json *object, const char *key, int64_t value);
void zp_json_set_real(zp_json *object, const char *key, double value); /* NaN and infinities become null */
void zp_json_set_bool(zp_json *object, const char *key, bool value);
void zp_json_set_string(zp_json *object, const char *key, const char *value); /* NULL becomes null */
/* Takes over `value`. Returns it. */
zp_json *zp_json_set(zp_json *object, const char *key, zp_json *value);
void zp_json_remove(zp_json *object, const char *key);
/* In the value and all that it contains: what has the key `was` has the key `is`. */
void zp_json_rename(zp_json *value, const char *was, const char *is);
/* In the value and all that it contains: what has the key `present` gets the key `missing` with this number, unless it
 * has it. */
void zp_json_add_alongside(zp_json *value, const char *present, const char *missing, int64_t number);
zp_json *zp_json_append(zp_json *array, zp_json *value);
void zp_json_append_int(zp_json *array, int64_t value);
void zp_json_append_real(zp_json *array, double value);
void zp_json_append_string(zp_json *array, const char *value);

/* Text, 2-space indent or compact on one line. Arena. */
const char *zp_json_text(zp_arena *arena, const zp_json *value, bool pretty);
/* NULL with *error (arena: "line 3, column 7: ...") on bad text; duplicate keys are refused. Owned by the caller. */
zp_json *zp_json_parse(zp_arena *arena, const char *text, size_t len, const char **error);
/* zp_json_parse that takes repeated keys: the last value counts, as for most readers of other people's data. */
zp_json *zp_json_parse_any(zp_arena *arena, const char *text, size_t len, const char **error);

/* Readers: NULL / `missing` when the key is absent or has another type. */
const zp_json *zp_json_get(const zp_json *object, const char *key);
int zp_json_count(const zp_json *array);
const zp_json *zp_json_at(const zp_json *array, int index);
int64_t zp_json_get_int(const zp_json *object, const char *key, int64_t missing);
double zp_json_get_real(const zp_json *object, const char *key, double missing); /* integers too */
bool zp_json_get_bool(const zp_json *object, const char *key, bool missing);
const char *zp_json_get_string(const zp_json *object, const char *key, const char *missing); /* borrowed */
int64_t zp_json_int(const zp_json *value, int64_t missing);
double zp_json_real(const zp_json *value, double missing);
const char *zp_json_string(const zp_json *value, const char *missing);
/* The index-th key in insertion order; NULL past the end. Borrowed. */
const char *zp_json_key(const zp_json *object, int index);
/* Goes through an object in insertion order: *at begins as NULL. False past the end. Key and value are borrowed. */
bool zp_json_next(const zp_json *object, void **at, const char **key, const zp_json **value);
bool zp_json_is_object(const zp_json *value);
bool zp_json_is_array(const zp_json *value);
bool zp_json_is_int(const zp_json *value);
bool zp_json_is_bool(const zp_json *value);
bool zp_json_bool(const zp_json *value); /* false where it is none */
bool zp_json_is_null(const zp_json *value);

#endif
