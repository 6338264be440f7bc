/* SPDX-License-Identifier: Apache-2.0 */
/* JSON over Jansson: the only file that knows it. A zp_json * is a json_t *. */
#include <zplan/buf.h>
#include <zplan/hosted.h>
#include <zplan/json.h>
#include <zplan/shown.h>

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static json_t *raw(const zp_json *value) { return (json_t *)(uintptr_t)value; }
static zp_json *wrap(json_t *value) { return (zp_json *)value; }

/* Jansson returns NULL for lack of memory only, once the arguments are known to be good. */
static json_t *must(json_t *value) {
  if (value) return value;
  zp_give_up(1, "out of memory while making JSON");
}

const char *zp_json_library(void) { return JANSSON_VERSION; }

zp_json *zp_json_object(void) { return wrap(must(json_object())); }
zp_json *zp_json_array(void) { return wrap(must(json_array())); }
void zp_json_free(zp_json *root) { json_decref(raw(root)); }

static _Thread_local zp_arena *home; /* of what is made; NULL: the heap */

/* Before us: those of a host that uses Jansson, too. */
static json_malloc_t others_malloc = malloc;
static json_free_t others_free = free;

static void *take(size_t bytes) { return home ? zp_room(home, bytes) : others_malloc(bytes); }
static void give_back(void *memory) {
  if (!home) others_free(memory);
}

static void take_over(void) {
  json_get_alloc_funcs(&others_malloc, &others_free);
  json_set_alloc_funcs(take, give_back);
}

zp_arena *zp_json_make_in(zp_arena *arena) {
  static pthread_once_t once = PTHREAD_ONCE_INIT; /* Jansson has one pair of functions for all threads */
  pthread_once(&once, take_over);
  zp_arena *before = home;
  home = arena;
  return before;
}

/* JSON is UTF-8. File names need not be: bytes that are none become '?'. */
static json_t *make_string(const char *text) {
  if (!text) return json_null();
  json_t *value = json_string(text);
  if (value) return value;
  size_t bytes = strlen(text) + 1;
  char *copy = take(bytes); /* goes with the arena where the next step has no memory */
  if (!copy) return must(NULL);
  memcpy(copy, text, bytes);
  const char *end = copy + bytes - 1;
  for (char *c = copy; c < end;) {
    size_t len = zp_character_length((const unsigned char *)c, (size_t)(end - c));
    if (len == 0) *c = '?';
    c += len ? len : 1;
  }
  value = must(json_string(copy));
  give_back(copy);
  return value;
}

static json_t *make_real(double value) { return isfinite(value) ? must(json_real(value)) : json_null(); }

static void set(zp_json *object, const char *key, json_t *value) {
  assert(json_is_object(raw(object)) && key);
  if (json_object_set_new(raw(object), key, value) != 0) must(NULL);
}

void zp_json_remove(zp_json *object, const char *key) {
  assert(json_is_object(raw(object)));
  json_object_del(raw(object), key);
}

static void rename_key(json_t *value, const char *was, const char *is) {
  const char *key;
  json_t *member = json_object_get(value, was);
  size_t i;
  if (member && json_object_set(value, is, member) != 0) must(NULL);
  if (member) json_object_del(value, was);
  json_object_foreach(value, key, member) rename_key(member, was, is);
  json_array_foreach(value, i, member) rename_key(member, was, is);
}

void zp_json_rename(zp_json *value, const char *was, const char *is) { rename_key(raw(value), was, is); }

static void add_alongside(json_t *value, const char *present, const char *missing, int64_t number) {
  const char *key;
  json_t *member;
  size_t i;
  json_object_foreach(value, key, member) add_alongside(member, present, missing, number);
  json_array_foreach(value, i, member) add_alongside(member, present, missing, number);
  if (json_object_get(value, present) && !json_object_get(value, missing))
    if (json_object_set_new(value, missing, must(json_integer(number))) != 0) must(NULL);
}

void zp_json_add_alongside(zp_json *value, const char *present, const char *missing, int64_t number) {
  add_alongside(raw(value), present, missing, number);
}

static void append(zp_json *array, json_t *value) {
  assert(json_is_array(raw(array)));
  if (json_array_append_new(raw(array), value) != 0) must(NULL);
}

void zp_json_set_int(zp_json *object, const char *key, int64_t value) { set(object, key, must(json_integer(value))); }
void zp_json_set_real(zp_json *object, const char *key, double value) { set(object, key, make_real(value)); }
void zp_json_set_bool(zp_json *object, const char *key, bool value) { set(object, key, json_boolean(value)); }
void zp_json_set_string(zp_json *object, const char *key, const char *value) { set(object, key, make_string(value)); }

zp_json *zp_json_set(zp_json *object, const char *key, zp_json *value) {
  set(object, key, raw(value));
  return value;
}

zp_json *zp_json_append(zp_json *array, zp_json *value) {
  append(array, raw(value));
  return value;
}

void zp_json_append_int(zp_json *array, int64_t value) { append(array, must(json_integer(value))); }
void zp_json_append_real(zp_json *array, double value) { append(array, make_real(value)); }
void zp_json_append_string(zp_json *array, const char *value) { append(array, make_string(value)); }

/* Jansson escapes what JSON demands, which leaves DEL, C1 and the like. They stand in strings alone. */
static const char *escape_controls(zp_arena *arena, const char *text) {
  const unsigned char *c = (const unsigned char *)text;
  zp_buf out = zp_buf_new(arena);
  size_t left = strlen(text), plain = 0; /* bytes in front of here that are as they were */
  for (; left > 0;) {
    size_t len = zp_character_length(c, left);
    uint32_t number = len ? zp_character_number(c, len) : *c;
    bool control = *c >= 0x7f && zp_is_control(number);
    if (control) {
      zp_buf_put(&out, (const char *)c - plain, plain);
      zp_buf_printf(&out, "\\u%04x", (unsigned)number);
      plain = 0;
    } else {
      plain += len ? len : 1;
    }
    c += len ? len : 1;
    left -= len ? len : 1;
  }
  if (out.len == 0) return zp_strdup(arena, text);
  zp_buf_put(&out, (const char *)c - plain, plain);
  return out.data;
}

const char *zp_json_text(zp_arena *arena, const zp_json *value, bool pretty) {
  assert(value);
  size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(12) | (pretty ? JSON_INDENT(2) : JSON_COMPACT);
  char *text = json_dumps(raw(value), flags);
  if (!text) must(NULL);
  const char *copy = escape_controls(arena, text);
  give_back(text);
  return copy;
}

static zp_json *parse(zp_arena *arena, const char *text, size_t len, size_t flags, const char **error) {
  assert((text || len == 0) && error);
  json_error_t where;
  json_t *value = json_loadb(text, len, flags | JSON_DECODE_ANY, &where);
  if (!value) *error = zp_format(arena, "line %d, column %d: %s", where.line, where.column, where.text);
  return wrap(value);
}

zp_json *zp_json_parse(zp_arena *arena, const char *text, size_t len, const char **error) {
  return parse(arena, text, len, JSON_REJECT_DUPLICATES, error);
}

zp_json *zp_json_parse_any(zp_arena *arena, const char *text, size_t len, const char **error) {
  return parse(arena, text, len, 0, error);
}

const zp_json *zp_json_get(const zp_json *object, const char *key) { return wrap(json_object_get(raw(object), key)); }
int zp_json_count(const zp_json *array) { return (int)json_array_size(raw(array)); }

const zp_json *zp_json_at(const zp_json *array, int index) {
  return index < 0 ? NULL : wrap(json_array_get(raw(array), (size_t)index));
}

int64_t zp_json_int(const zp_json *value, int64_t missing) {
  return json_is_integer(raw(value)) ? json_integer_value(raw(value)) : missing;
}

double zp_json_real(const zp_json *value, double missing) {
  return json_is_number(raw(value)) ? json_number_value(raw(value)) : missing;
}

const char *zp_json_string(const zp_json *value, const char *missing) {
  return json_is_string(raw(value)) ? json_string_value(raw(value)) : missing;
}

int64_t zp_json_get_int(const zp_json *object, const char *key, int64_t missing) {
  return zp_json_int(zp_json_get(object, key), missing);
}

double zp_json_get_real(const zp_json *object, const char *key, double missing) {
  return zp_json_real(zp_json_get(object, key), missing);
}

bool zp_json_get_bool(const zp_json *object, const char *key, bool missing) {
  json_t *value = raw(zp_json_get(object, key));
  return json_is_boolean(value) ? json_is_true(value) : missing;
}

const char *zp_json_get_string(const zp_json *object, const char *key, const char *missing) {
  return zp_json_string(zp_json_get(object, key), missing);
}

bool zp_json_is_object(const zp_json *value) { return json_is_object(raw(value)); }
bool zp_json_is_array(const zp_json *value) { return json_is_array(raw(value)); }
bool zp_json_is_int(const zp_json *value) { return json_is_integer(raw(value)); }
bool zp_json_is_bool(const zp_json *value) { return json_is_boolean(raw(value)); }
bool zp_json_bool(const zp_json *value) { return json_is_true(raw(value)); }
bool zp_json_is_null(const zp_json *value) { return json_is_null(raw(value)); }

const char *zp_json_key(const zp_json *object, int index) {
  assert(index >= 0);
  void *at = json_object_iter(raw(object));
  while (at && index-- > 0) at = json_object_iter_next(raw(object), at);
  return at ? json_object_iter_key(at) : NULL;
}

bool zp_json_next(const zp_json *object, void **at, const char **key, const zp_json **value) {
  assert(at && key && value);
  *at = *at ? json_object_iter_next(raw(object), *at) : json_object_iter(raw(object));
  if (!*at) return false;
  *key = json_object_iter_key(*at);
  *value = wrap(json_object_iter_value(*at));
  return true;
}
