/* SPDX-License-Identifier: Apache-2.0 */
/* Text buffers and the human forms of sizes. Whole files are in file.c. */
#include <zplan/buf.h>

#include <assert.h>
#include <math.h>
#include <stdio.h>

zp_buf zp_buf_new(zp_arena *arena) {
  zp_buf buf = {.arena = arena, .cap = 256};
  buf.data = zp_alloc(arena, buf.cap);
  return buf;
}

/* Room for `more` bytes and the final zero. */
static void make_room(zp_buf *buf, size_t more) {
  if (buf->cap - buf->len > more) return;
  size_t cap = buf->cap * 2;
  if (cap < buf->len + more + 1) cap = buf->len + more + 1;
  buf->data = zp_grow(buf->arena, buf->data, buf->cap, cap);
  buf->cap = cap;
}

void zp_buf_put(zp_buf *buf, const char *text, size_t len) {
  assert(text || len == 0);
  if (len == 0) return;
  make_room(buf, len);
  memcpy(buf->data + buf->len, text, len);
  buf->len += len;
  buf->data[buf->len] = '\0';
}

void zp_buf_puts(zp_buf *buf, const char *text) { zp_buf_put(buf, text, strlen(text)); }

static void put_formatted(zp_buf *buf, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length <= 0) return;
  make_room(buf, (size_t)length);
  vsnprintf(buf->data + buf->len, (size_t)length + 1, format, args);
  buf->len += (size_t)length;
}

void zp_buf_printf(zp_buf *buf, const char *format, ...) {
  va_list args;
  va_start(args, format);
  put_formatted(buf, format, args);
  va_end(args);
}

void zp_buf_line(zp_buf *buf, const char *format, ...) {
  assert(buf->indent >= 0);
  if (*format) {
    for (int i = 0; i < buf->indent; i++) zp_buf_put(buf, "  ", 2);
    va_list args;
    va_start(args, format);
    put_formatted(buf, format, args);
    va_end(args);
  }
  zp_buf_put(buf, "\n", 1);
}

/* `value` with so many significant digits, then the unit; no fraction when the value is that large. */
static const char *show(zp_arena *arena, double value, int digits, const char *unit) {
  if (!isfinite(value)) return zp_format(arena, "%g %s", value, unit); /* sums of a damaged file */
  double size = fabs(value);
  int whole = size >= 1 ? (int)floor(log10(size)) + 1 : 1;
  int decimals = whole < digits ? digits - whole : 0;
  return zp_format(arena, "%.*f %s", decimals, value, unit);
}

/* Divides by `base` until the rounded value is below it, at most `units - 1` times. */
static const char *show_scaled(zp_arena *arena, double value, double base, int digits, const char *const *unit,
                               int units) {
  int i = 0;
  /* 999.6 would print as 1000, so step up half a unit early. */
  while (i + 1 < units && fabs(value) >= base - 0.5) {
    value /= base;
    i++;
  }
  if (i == 0) return zp_format(arena, "%.0f%s%s", value, unit[0][0] ? " " : "", unit[0]);
  return show(arena, value, digits, unit[i]);
}

const char *zp_show_bytes(zp_arena *arena, int64_t bytes) {
  static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  return show_scaled(arena, (double)bytes, 1000, 3, unit, 7);
}

const char *zp_show_gib(zp_arena *arena, int64_t bytes) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return show_scaled(arena, (double)bytes, 1024, 3, unit, 7);
}

/* Four digits: parameter counts are distinguished by them (124.4 M against 124.5 M). */
const char *zp_show_count(zp_arena *arena, double count) {
  assert(!isnan(count));
  static const char *const unit[] = {"", "k", "M", "G", "T", "P", "E"};
  return show_scaled(arena, count, 1000, 4, unit, 7);
}

const char *zp_show_whole(zp_arena *arena, int64_t value) {
  char *digits = zp_format(arena, "%lld", (long long)value);
  zp_buf out = zp_buf_new(arena);
  for (size_t i = 0, n = strlen(digits); i < n; i++) {
    if (i && (n - i) % 3 == 0 && digits[i - 1] != '-') zp_buf_puts(&out, ",");
    zp_buf_put(&out, digits + i, 1);
  }
  return out.data;
}

const char *zp_show_seconds(zp_arena *arena, double seconds) {
  assert(!isnan(seconds));
  double size = fabs(seconds);
  if (size == 0) return zp_strdup(arena, "0 s");
  if (size < 999.5e-9) return show(arena, seconds * 1e9, 3, "ns");
  if (size < 999.5e-6) return show(arena, seconds * 1e6, 3, "us");
  if (size < 999.5e-3) return show(arena, seconds * 1e3, 3, "ms");
  if (size < 120) return show(arena, seconds, 3, "s");
  if (size < 120 * 60) return show(arena, seconds / 60, 3, "min");
  if (size < 48 * 3600) return show(arena, seconds / 3600, 3, "h");
  return show(arena, seconds / 86400, 3, "days");
}
