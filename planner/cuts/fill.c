/* SPDX-License-Identifier: Apache-2.0 */
/* Filling places as far as they go, from the front or from the back, finds a cut within a limit if there is any: a part
 * of what a place can run it can run as well, so the furthest reach of every place is never worse, as long as every
 * place can take the next unit. Where one cannot, fill_around.c goes on. */
#include <assert.h>
#include <math.h>
#include <zplan/seconds.h>
#include "fill.h"

bool zp_fill_takes(const zp_filling *f, int place, int64_t first, int64_t end, double *need) {
  *need = f->row->need(f->row->user, place, first, end, f->limit);
  return isfinite(*need) && *need <= f->limit;
}

/* Doubling away from the guess, because neighbours differ little, then bisection. */
int64_t zp_fill_reach(zp_filling *f, int place, int64_t first, int64_t most, int64_t guess) {
  assert(guess >= 1 && "a place has at least one unit");
  bool back = f->side == ZP_FILL_BACK;
  int64_t low = 0, high = most, n = guess < most ? guess : most;
  double need, taken = 0, missed = HUGE_VAL; /* of low and of high + 1 units */
  for (int64_t step = 1; low < high; step *= 2) {
    if (zp_fill_takes(f, place, back ? first - n : first, back ? first : first + n, &need))
      low = n, taken = need;
    else
      high = n - 1, missed = need;
    bool bracketed = low > 0 && high < most;
    n = bracketed ? low + (high - low + 1) / 2 : low > 0 ? low + step : high + 1 - step;
    n = n > high ? high : n <= low ? low + 1 : n;
  }
  f->longest = zp_later(f->longest, taken);
  f->next = zp_sooner(f->next, missed);
  return low;
}

bool zp_fill(zp_filling *f, int64_t *cut) {
  const zp_cut_row *row = f->row;
  bool back = f->side == ZP_FILL_BACK;
  f->longest = 0, f->next = HUGE_VAL;
  cut[0] = 0, cut[row->places] = row->units;
  if (row->units < row->places) return false;
  int64_t done = 0, n = row->units / row->places; /* units placed, from the side that is filled first */
  for (int i = 0; i < row->places; i++) {
    int place = back ? row->places - 1 - i : i;
    int64_t most = row->units - done - (row->places - 1 - i); /* every later place needs a unit */
    n = zp_fill_reach(f, place, back ? row->units - done : done, most, n);
    if (n == 0) return i > 0 && zp_fill_around(f, place, back ? cut[place + 1] - 1 : done, cut);
    done += n;
    if (back)
      cut[place] = row->units - done;
    else
      cut[place + 1] = done;
  }
  return done == row->units;
}

bool zp_row_fill(const zp_cut_row *row, double limit, zp_fill_side side, int64_t *cut) {
  assert(row->places > 0 && row->need && row->scratch);
  zp_filling f = {.row = row, .limit = limit, .side = side};
  return zp_fill(&f, cut);
}
