/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that say that they wait (runtime/comm/watch.c): of a run that stands still that is nearly every rank, and most
 * wait for one that itself waits. Lines that come together are shown as few: those of ranks that wait for one that does
 * not answer, and how many more there are. */
#include "driver.h"

#include <stdio.h>

enum { MOST_SHOWN = 3, TOGETHER_MS = 1000 };

/* "warning: rank 0 (stage 0, on a) has waited 30 s for rank 1 (...": the numbers; the peer is -1 where none is
 * named. */
static bool parse(const char *line, int *rank, int *peer) {
  if (sscanf(line, "warning: rank %d", rank) != 1) return false;
  const char *waited = strstr(line, " has waited "), *whom = waited ? strstr(waited, " s for ") : NULL;
  if (!whom) return false;
  if (sscanf(whom, " s for rank %d", peer) != 1) *peer = -1;
  return true;
}

bool zp_waits_take(zp_arena *arena, zp_waits *waits, const char *line, int64_t now_ms) {
  zp_wait_line one = {.text = line};
  if (!parse(line, &one.rank, &one.peer)) return false;
  one.text = zp_strdup(arena, line);
  if (waits->lines.len == 0) waits->first_ms = now_ms;
  zp_push(arena, &waits->lines, one);
  return true;
}

static bool waits_itself(const zp_waits *waits, int rank) {
  for (int i = 0; i < waits->lines.len; i++)
    if (waits->lines.data[i].rank == rank) return true;
  return false;
}

void zp_waits_show(zp_waits *waits, int64_t now_ms, bool at_once) {
  int n = waits->lines.len, shown = 0;
  if (n == 0 || (!at_once && now_ms - waits->first_ms < TOGETHER_MS)) return;
  for (int pass = 0; pass < 2 && shown == 0; pass++) /* each waits for another: then any of them */
    for (int i = 0; i < n && shown < MOST_SHOWN; i++) {
      const zp_wait_line *one = &waits->lines.data[i];
      if (pass == 0 && (one->peer < 0 || waits_itself(waits, one->peer))) continue;
      zp_say_lines(stderr, "%s", one->text);
      if (one->peer >= 0) waits->silent = pass == 0 ? one->peer : -1;
      shown++;
    }
  if (n > shown)
    zp_say_line(stderr, "note: %d more rank%s wait%s after it", n - shown, n - shown == 1 ? "" : "s",
                n - shown == 1 ? "s" : "");
  waits->lines.len = 0;
}
