/* SPDX-License-Identifier: Apache-2.0 */
/* Shadow memory as a sorted list of cells; what is between them is poison. */
#include "shadow.h"

#include <assert.h>
#include <string.h>

/* The first cell that ends after `at`. */
static int find(const zp_shadow *s, int64_t at) {
  int low = 0, high = s->cell.len;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (s->cell.data[middle].end <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The part of a cell inside [at, end). */
static zp_shadow_cell clip(zp_shadow_cell cell, int64_t at, int64_t end) {
  if (cell.at < at) {
    cell.origin += at - cell.at;
    cell.at = at;
  }
  if (cell.end > end) cell.end = end;
  return cell;
}

/* Puts `with` where [at, end) was. */
static void replace(zp_shadow *s, int64_t at, int64_t end, const zp_shadow_cell *with, int n) {
  zp_shadow_cell edge[2];
  int first = find(s, at), last = first, left = 0, right = 0;
  while (last < s->cell.len && s->cell.data[last].at < end) last++;
  if (first < last && s->cell.data[first].at < at) edge[left++] = clip(s->cell.data[first], INT64_MIN, at);
  if (first < last && s->cell.data[last - 1].end > end)
    edge[left + right++] = clip(s->cell.data[last - 1], end, INT64_MAX);
  int total = left + n + right, rest = s->cell.len - last;
  zp_reserve(s->arena, &s->cell, first + total + rest);
  zp_shadow_cell *to = s->cell.data + first;
  if (rest > 0 && first + total != last) memmove(to + total, s->cell.data + last, sizeof *to * (size_t)rest);
  if (left) to[0] = edge[0];
  if (n > 0) memcpy(to + left, with, sizeof *to * (size_t)n);
  if (right) to[left + n] = edge[left];
  s->cell.len = first + total + rest;
}

void zp_shadow_poison(zp_shadow *s, int64_t at, int64_t bytes) {
  if (bytes > 0) replace(s, at, at + bytes, NULL, 0);
}

/* ---- columns ---- */

/* What is left of `old` when [from, to) is written; up to two pieces more. */
static int cut_out(const zp_shadow_columns *old, int n, int64_t from, int64_t to, zp_shadow_columns *out) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    zp_shadow_columns before = old[i], behind = old[i];
    if (before.to > from) before.to = from;
    if (behind.from < to) behind.from = to;
    if (before.from < before.to) out[count++] = before;
    if (behind.from < behind.to) out[count++] = behind;
  }
  return count;
}

static void write_columns(zp_shadow *s, zp_shadow_place p, uint64_t value) {
  int i = find(s, p.at);
  const zp_shadow_cell *old = i < s->cell.len ? &s->cell.data[i] : NULL;
  if (old && (old->at != p.at || old->end != p.at + p.bytes || old->origin != 0 || old->row != p.row)) old = NULL;
  zp_shadow_columns all = {0, p.row, 0, old ? old->value : ZP_POISON};
  const zp_shadow_columns *before = old && old->columns ? old->columns : &all;
  int n = !old ? 0 : old->columns ? old->n_columns : 1;
  zp_shadow_columns *columns = ZP_NEW_ARRAY(s->arena, zp_shadow_columns, 2 * n + 1);
  n = cut_out(before, n, p.from, p.to, columns);
  columns[n++] = (zp_shadow_columns){p.from, p.to, p.from - p.column, value};
  zp_shadow_cell cell = {.at = p.at, .end = p.at + p.bytes, .row = p.row, .columns = columns, .n_columns = n};
  replace(s, p.at, p.at + p.bytes, &cell, 1);
}

void zp_shadow_write(zp_shadow *s, zp_shadow_place p, uint64_t value) {
  assert(p.bytes > 0 && p.row > 0 && 0 <= p.from && p.from < p.to && p.to <= p.row);
  if (p.from > 0 || p.to < p.row || p.column != 0) {
    assert(p.origin == 0);
    write_columns(s, p, value);
    return;
  }
  zp_shadow_cell cell = {.at = p.at, .end = p.at + p.bytes, .origin = p.origin, .row = p.row, .value = value};
  replace(s, p.at, p.at + p.bytes, &cell, 1);
}

/* ---- reading ---- */

/* Whether the columns of a cell are those of the value; else *found is what is there. */
static bool columns_hold(const zp_shadow_cell *cell, zp_shadow_place p, uint64_t value, uint64_t *found) {
  if (!cell->columns) {
    *found = cell->value;
    bool all = p.from == 0 && p.to == p.row && p.column == 0;
    return cell->value == value && (all || (p.column == p.from && p.row == cell->row));
  }
  *found = ZP_POISON;
  if (p.row != cell->row) return false;
  for (int64_t at = p.from; at < p.to;) {
    const zp_shadow_columns *c = cell->columns, *end = c + cell->n_columns;
    while (c < end && (c->from > at || c->to <= at)) c++;
    *found = c < end ? c->value : ZP_POISON;
    if (c == end || c->value != value || p.from - c->shift != p.column) return false;
    at = c->to;
  }
  return true;
}

bool zp_shadow_holds(const zp_shadow *s, zp_shadow_place p, uint64_t value, uint64_t *found, int64_t *at) {
  int64_t end = p.at + p.bytes;
  *at = p.at;
  for (int i = find(s, p.at); *at < end; i++) {
    const zp_shadow_cell *cell = &s->cell.data[i];
    *found = ZP_POISON;
    if (i >= s->cell.len || cell->at > *at) return false;
    bool same_bytes = cell->origin + *at - cell->at == *at - p.at + p.origin;
    if (!columns_hold(cell, p, value, found) || !same_bytes) return false;
    *at = cell->end;
  }
  return true;
}

uint64_t zp_shadow_get(const zp_shadow *s, int64_t at, int64_t bytes) {
  int i = find(s, at);
  uint64_t value = i < s->cell.len && !s->cell.data[i].columns ? s->cell.data[i].value : ZP_POISON, found;
  int64_t where;
  return value != ZP_POISON && zp_shadow_holds(s, zp_shadow_whole(at, bytes), value, &found, &where) ? value
                                                                                                     : ZP_POISON;
}

/* Cells are taken first, because they may move where both memories are one. */
void zp_shadow_copy(const zp_shadow *from, int64_t from_at, int64_t bytes, zp_shadow *to, int64_t to_at) {
  if (bytes <= 0) return;
  int first = find(from, from_at), n = 0;
  while (first + n < from->cell.len && from->cell.data[first + n].at < from_at + bytes) n++;
  zp_shadow_cell *cells = ZP_NEW_ARRAY(to->arena, zp_shadow_cell, n + 1);
  for (int i = 0; i < n; i++) {
    cells[i] = clip(from->cell.data[first + i], from_at, from_at + bytes);
    cells[i].at += to_at - from_at;
    cells[i].end += to_at - from_at;
  }
  replace(to, to_at, to_at + bytes, cells, n);
}
