/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of dimensions in the symbols of their model: products of powers of symbols, times a fraction. */
#include <assert.h>
#include <string.h>
#include <zplan/buf.h>
#include <zplan/extent.h>

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* A copy in the arena, in lowest terms. */
static const zp_extent *finish(zp_arena *arena, zp_extent extent) {
  if (extent.value < 1 || extent.times < 1) return NULL;
  int64_t divisor = common_divisor(extent.times, extent.over);
  extent.times /= divisor;
  extent.over /= divisor;
  zp_extent *kept = ZP_NEW(arena, zp_extent);
  *kept = extent;
  return kept;
}

const zp_extent *zp_extent_number(zp_arena *arena, int64_t value) {
  return finish(arena, (zp_extent){.value = value, .times = value, .over = 1, .ranks = 1});
}

const zp_extent *zp_extent_symbol(zp_arena *arena, const char *name, int64_t value) {
  zp_extent symbol = {
      .value = value, .times = 1, .over = 1, .ranks = 1, .n_factors = 1, .factor = {name}, .power = {1}};
  return finish(arena, symbol);
}

/* Multiplies by name^power; false when there are too many factors. */
static bool put_factor(zp_extent *extent, const char *name, int power) {
  int i = 0;
  while (i < extent->n_factors && strcmp(extent->factor[i], name) != 0) i++;
  if (i == extent->n_factors) {
    if (i == ZP_EXTENT_FACTORS) return false;
    extent->factor[extent->n_factors] = name;
    extent->power[extent->n_factors++] = 0;
  }
  extent->power[i] += power;
  if (extent->power[i] != 0) return true;
  extent->n_factors--;
  for (; i < extent->n_factors; i++) {
    extent->factor[i] = extent->factor[i + 1];
    extent->power[i] = extent->power[i + 1];
  }
  return true;
}

static bool put_factors(zp_extent *to, const zp_extent *from, int sign) {
  for (int i = 0; i < from->n_factors; i++)
    if (!put_factor(to, from->factor[i], sign * from->power[i])) return false;
  return true;
}

const zp_extent *zp_extent_product(zp_arena *arena, const zp_extent *a, const zp_extent *b) {
  if (!a || !b) return NULL;
  zp_extent product = *a;
  if (__builtin_mul_overflow(a->value, b->value, &product.value) ||
      __builtin_mul_overflow(a->times, b->times, &product.times) ||
      __builtin_mul_overflow(a->over, b->over, &product.over) ||
      __builtin_mul_overflow(a->ranks, b->ranks, &product.ranks) || !put_factors(&product, b, 1))
    return NULL;
  return finish(arena, product);
}

const zp_extent *zp_extent_quotient(zp_arena *arena, const zp_extent *a, const zp_extent *b) {
  if (!a || !b || a->value % b->value) return NULL;
  zp_extent quotient = *a;
  quotient.value = a->value / b->value;
  if (__builtin_mul_overflow(a->times, b->over, &quotient.times) ||
      __builtin_mul_overflow(quotient.times, b->ranks, &quotient.times) ||
      __builtin_mul_overflow(a->over, b->times, &quotient.over) || !put_factors(&quotient, b, -1))
    return NULL;
  return finish(arena, quotient);
}

/* Do they differ in their fraction alone? */
static bool is_multiple(const zp_extent *a, const zp_extent *b) {
  zp_extent ratio = *a;
  return a->n_factors == b->n_factors && a->ranks == b->ranks && put_factors(&ratio, b, -1) && ratio.n_factors == 0;
}

/* a + sign * b */
static const zp_extent *combine(zp_arena *arena, const zp_extent *a, const zp_extent *b, int sign) {
  if (!a || !b) return NULL;
  int64_t value, left, right;
  if (__builtin_add_overflow(a->value, sign * b->value, &value)) return NULL;
  if (!is_multiple(a, b)) {
    const char *text =
        zp_format(arena, "(%s %c %s)", zp_extent_text(arena, a), sign > 0 ? '+' : '-', zp_extent_text(arena, b));
    return zp_extent_symbol(arena, text, value);
  }
  zp_extent sum = *a;
  sum.value = value;
  if (__builtin_mul_overflow(a->times, b->over, &left) || __builtin_mul_overflow(b->times, a->over, &right) ||
      __builtin_add_overflow(left, sign * right, &sum.times) || __builtin_mul_overflow(a->over, b->over, &sum.over))
    return NULL;
  return finish(arena, sum);
}

const zp_extent *zp_extent_sum(zp_arena *arena, const zp_extent *a, const zp_extent *b) {
  return combine(arena, a, b, 1);
}

const zp_extent *zp_extent_difference(zp_arena *arena, const zp_extent *a, const zp_extent *b) {
  return combine(arena, a, b, -1);
}

const zp_extent *zp_extent_share(zp_arena *arena, const zp_extent *whole, int64_t from, int64_t to) {
  if (!whole || from == to) return whole;
  zp_extent share = *whole;
  int64_t divisor = common_divisor(from, to), down = from / divisor, up = to / divisor;
  int64_t joined = common_divisor(share.ranks, up); /* ranks whose shares are one again */
  share.value = to;
  if (__builtin_mul_overflow(share.ranks / joined, up == joined ? down : 1, &share.ranks) ||
      __builtin_mul_overflow(share.times, up / joined, &share.times) ||
      __builtin_mul_overflow(share.over, up == joined ? 1 : down, &share.over))
    return NULL;
  return finish(arena, share);
}

const char *zp_extent_text(zp_arena *arena, const zp_extent *extent) {
  assert(extent);
  zp_buf text = zp_buf_new(arena);
  const char *join = "";
  if (extent->times > 1) {
    zp_buf_printf(&text, "%lld", (long long)extent->times);
    join = "*";
  }
  for (int i = 0; i < extent->n_factors; i++)
    for (int k = 0; k < extent->power[i]; k++, join = "*") zp_buf_printf(&text, "%s%s", join, extent->factor[i]);
  if (!*join) zp_buf_puts(&text, "1");
  for (int i = 0; i < extent->n_factors; i++)
    for (int k = 0; k > extent->power[i]; k--) zp_buf_printf(&text, "/%s", extent->factor[i]);
  if (extent->over > 1) zp_buf_printf(&text, "/%lld", (long long)extent->over);
  if (extent->ranks > 1) zp_buf_printf(&text, "/%lld", (long long)extent->ranks);
  return text.data;
}
