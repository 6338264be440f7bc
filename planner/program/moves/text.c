/* SPDX-License-Identifier: Apache-2.0 */
/* The list in words, for `zplan plan --dump-after moves` and the HTML report. */
#include "strategy.h"

#include <zplan/buf.h>

#define ZP_MOVE_ROW(name, text) text,
static const char *const what_text[] = {ZP_MOVE_WHATS(ZP_MOVE_ROW)};
static const char *const end_text[] = {ZP_MOVE_ENDS(ZP_MOVE_ROW)};
static const char *const way_text[] = {ZP_MOVE_WAYS(ZP_MOVE_ROW)};
static const char *const queue_text[] = {ZP_MOVE_QUEUES(ZP_MOVE_ROW)};
static const char *const when_text[] = {ZP_MOVE_TIMES(ZP_MOVE_ROW)};
static const char *const wait_text[] = {ZP_MOVE_WAITS(ZP_MOVE_ROW)};
#undef ZP_MOVE_ROW

static const char *act_text(zp_act act) {
  static const char *const text[] = {[ZP_ACT_F] = "forward",
                                     [ZP_ACT_B] = "backward",
                                     [ZP_ACT_BI] = "backward, inputs",
                                     [ZP_ACT_BW] = "backward, weights"};
  return text[act];
}

/* "h.3-h.5"; "" of no unit. */
static const char *units_text(zp_arena *arena, const zp_program *p, int stage, const zp_move *m) {
  if (m->run < 0) return "";
  const zp_run *run = &p->stages[stage].runs.data[m->run];
  const zp_segment *segment = zp_program_lowered(p, stage)->segments[run->segment].segment;
  long long first = (long long)(run->first + m->first), last = first + (long long)m->count - 1;
  if (segment->count == 1) return zp_format(arena, " %s", segment->name);
  return first == last ? zp_format(arena, " %s.%lld", segment->name, first)
                       : zp_format(arena, " %s.%lld-%s.%lld", segment->name, first, segment->name, last);
}

zp_move_words zp_move_in_words(zp_arena *arena, const zp_program *p, int stage, const zp_move *m) {
  bool action = m->when <= ZP_WHEN_AFTER_ACTION, alone = m->way == ZP_WAY_COPY || m->way == ZP_WAY_SEND;
  const char *size = zp_format(arena, "%lld x %d bytes%s", (long long)m->elements, m->element_bytes,
                               m->spared_bytes > 0 ? ", 2 between nodes,"
                               : m->routed         ? " of an even load"
                                                   : "");
  return (zp_move_words){.when = zp_format(arena, "%s%s%s%s", action ? act_text(m->act) : "", action ? ", " : "",
                                           when_text[m->when], units_text(arena, p, stage, m)),
                         .what = what_text[m->what],
                         .way = way_text[m->way],
                         .ends = zp_format(arena, "%s to %s", end_text[m->from], end_text[m->to]),
                         .size = alone ? size : zp_format(arena, "%s among %d", size, m->ranks),
                         .queue = queue_text[m->queue],
                         .wait = wait_text[m->wait]};
}

static void show(zp_buf *out, const zp_program *p, int stage, const zp_move *m) {
  zp_move_words w = zp_move_in_words(out->arena, p, stage, m);
  zp_buf_line(out, "  %-36s %-18s %-16s %-14s %s: %s, %lld a step%s, on %s, waited for %s", w.when, m->strategy->name,
              w.what, w.way, w.ends, w.size, (long long)(m->times * m->count), m->warmup ? " of the warm-up" : "",
              w.queue, w.wait);
}

const char *zp_moves_text(zp_arena *arena, const zp_program *p) {
  zp_buf out = zp_buf_new(arena);
  for (int s = 0; s < p->choice.pipeline; s++) {
    zp_move_list list = zp_stage_moves(arena, p, s);
    zp_buf_line(&out, "stage %d: %d moves", s, list.len);
    for (int i = 0; i < list.len; i++) show(&out, p, s, &list.data[i]);
  }
  zp_move_scope scope = zp_move_scope_of(p->lowered, &p->choice);
  scope.program = p;
  for (int i = 0; zp_move_strategies[i]; i++)
    if (zp_move_strategies[i]->applies(&scope))
      zp_buf_line(&out, "%s: %s", zp_move_strategies[i]->name, zp_move_strategies[i]->explain(arena, &scope));
  return out.data;
}
