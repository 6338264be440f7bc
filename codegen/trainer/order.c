/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the order in which a stage takes its micro-batches, from the phrases that the plan file states, too: those of
 * GPipe and 1F1B as loops, all others as they are. */
#include "emit.h"

#include <assert.h>

/* Does every stage follow the order that `schedule`, GPipe or 1F1B, has: one that is printed as loops? */
static bool follows(zp_emit *e, const zp_phrases *phrases, zp_schedule schedule) {
  zp_choice loops = e->program->choice;
  bool same = zp_chunks(&loops) == 1;
  loops.schedule = schedule;
  loops.own_order = NULL;
  for (int s = 0; s < loops.pipeline && same; s++) {
    zp_phrases of_loops = zp_stage_phrases(e->arena, &loops, s, e->program->microbatches, NULL);
    same = strcmp(zp_order_text(e->arena, &phrases[s], 1), zp_order_text(e->arena, &of_loops, 1)) == 0;
  }
  return same;
}

static void emit_loops(zp_emit *e, bool gpipe) {
  zp_buf *out = &e->out;
  const zp_choice *c = &e->program->choice;
  zp_buf_line(out, "/* One step: the micro-batches of this replica in %s order. */", gpipe ? "GPipe" : "1F1B");
  zp_buf_line(out, "static void micro_batches(zpr *c) {");
  if (gpipe) {
    zp_buf_line(out, "  for (int64_t mb = 0; mb < MICROBATCHES; mb++) forward(c, mb);");
    zp_buf_line(out, "  for (int64_t mb = 0; mb < MICROBATCHES; mb++) backward(c, mb);");
  } else if (c->pipeline == 1) {
    zp_buf_line(out, "  for (int64_t mb = 0; mb < MICROBATCHES; mb++) {");
    zp_buf_line(out, "    forward(c, mb);");
    zp_buf_line(out, "    backward(c, mb);");
    zp_buf_line(out, "  }");
  } else {
    zp_buf_line(out, "  int64_t warmup = PIPELINE - 1 - c->p, f = 0, b = 0;");
    zp_buf_line(out, "  if (warmup > MICROBATCHES) warmup = MICROBATCHES;");
    zp_buf_line(out, "  while (f < warmup) forward(c, f++);");
    zp_buf_line(out, "  while (f < MICROBATCHES) {");
    zp_buf_line(out, "    forward(c, f++);");
    zp_buf_line(out, "    backward(c, b++);");
    zp_buf_line(out, "  }");
    zp_buf_line(out, "  while (b < MICROBATCHES) backward(c, b++);");
  }
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

/* ---- phrases ---- */

static void emit_phrase(zp_emit *e, const zp_phrase *p, const char *indent) {
  if (p->group > 0) {
    zp_buf_line(&e->out, "    {%lld, NULL, %d},", (long long)p->times, p->group);
    return;
  }
  zp_buf_printf(&e->out, "    %s{%lld, \"", indent, (long long)p->times);
  for (int64_t i = 0; i < p->length; i++) {
    zp_buf_printf(&e->out, "%s%s", i ? " " : "",
                  zp_action_text(e->arena, &p->actions[i], zp_chunks(&e->program->choice)));
    if (i % 24 == 23 && i + 1 < p->length) zp_buf_puts(&e->out, "\"\n        \"");
  }
  zp_buf_puts(&e->out, "\"},\n");
}

/* Every action is on the next micro-batch of its kind and chunk: the table need not say which. */
static void check_ascending(const zp_program *p, int s) {
  int64_t *next[ZP_ACT_BW + 1];
  for (int act = 0; act <= ZP_ACT_BW; act++) next[act] = ZP_NEW_ARRAY(p->arena, int64_t, zp_chunks(&p->choice));
  for (int64_t i = 0; i < p->actions[s]; i++) {
    const zp_action *a = &p->order[s][i];
    assert(a->microbatch == next[a->act][a->chunk]);
    next[a->act][a->chunk]++;
  }
}

static bool has_groups(const zp_phrases *phrases, int stages) {
  for (int s = 0; s < stages; s++)
    for (int i = 0; i < phrases[s].len; i++)
      if (phrases[s].data[i].group > 0) return true;
  return false;
}

static void emit_stage_order(zp_emit *e, const zp_phrases *phrases, int s) {
  check_ascending(e->program, s);
  zp_buf_line(&e->out, "static const phrase order_%d[] = {", s);
  for (int i = 0, left = 0; i < phrases->len; i++) {
    emit_phrase(e, &phrases->data[i], left > 0 ? "  " : "");
    left = phrases->data[i].group > 0 ? phrases->data[i].group : left - 1;
  }
  zp_buf_line(&e->out, "    {0}};");
}

static void emit_tables(zp_emit *e, const zp_phrases *phrases, bool groups) {
  zp_buf *out = &e->out;
  const zp_choice *c = &e->program->choice;
  zp_buf_line(
      out, "/* The order of a stage: actions, each on the next micro-batch of its kind%s; every phrase so many times.",
      zp_chunks(c) > 1 ? " and chunk" : "");
  zp_buf_line(out, " * F: forward, %s%s. */",
              zp_schedule_splits(c->schedule) ? "I, W: backward for inputs, for weights" : "B: backward",
              zp_chunks(c) > 1 ? "; then the number of the chunk" : "");
  zp_buf_line(out, "typedef struct phrase {");
  zp_buf_line(out, "  int64_t times;");
  zp_buf_line(out, "  const char *actions;");
  if (groups) zp_buf_line(out, "  int group; /* instead of actions: so many of the phrases that follow */");
  zp_buf_line(out, "} phrase;");
  for (int s = 0; s < c->pipeline; s++) emit_stage_order(e, &phrases[s], s);
  zp_buf_printf(out, "static const phrase *const orders[PIPELINE] = {");
  for (int s = 0; s < c->pipeline; s++) zp_buf_printf(out, "%sorder_%d", s ? ", " : "", s);
  zp_buf_puts(out, "};\n\n");
}

static void emit_act(zp_emit *e) {
  zp_buf *out = &e->out;
  bool chunks = zp_chunks(&e->program->choice) > 1;
  const char *with = chunks ? "c, chunk, mb" : "c, mb";
  zp_buf_line(out, "static void act(zpr *c, char what, %sint64_t mb) {", chunks ? "int chunk, " : "");
  zp_buf_line(out, "  switch (what) {");
  zp_buf_line(out, "  case 'F': forward(%s); break;", with);
  if (zp_schedule_splits(e->program->choice.schedule)) {
    zp_buf_line(out, "  case 'I': backward_inputs(%s); break;", with);
    zp_buf_line(out, "  default: backward_weights(%s); break;", with);
  } else {
    zp_buf_line(out, "  default: backward(%s); break;", with);
  }
  zp_buf_line(out, "  }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

static void emit_phrases(zp_emit *e, const zp_phrases *phrases) {
  zp_buf *out = &e->out;
  bool chunks = zp_chunks(&e->program->choice) > 1;
  bool split = zp_schedule_splits(e->program->choice.schedule);
  assert(zp_messages_in_order(&e->program->choice, e->program->order, e->program->actions));
  const zp_choice *c = &e->program->choice;
  const char *schedule = c->own_order ? "the plan file" : zp_schedule_name(c->schedule),
             *of_chunk = chunks ? "[chunk]" : "";
  const char *size = chunks ? "[CHUNKS]" : "";
  bool groups = has_groups(phrases, c->pipeline);
  emit_tables(e, phrases, groups);
  emit_act(e);
  zp_buf_line(out, "/* The next micro-batch of every kind of action%s. */", chunks ? " and chunk" : "");
  zp_buf_line(out, "typedef struct progress {");
  zp_buf_line(out, "  int64_t f%s, b%s%s%s;", size, size, split ? ", w" : "", split ? size : "");
  zp_buf_line(out, "} progress;");
  zp_buf_puts(out, "\n");
  zp_buf_line(out, "static void follow_phrase(zpr *c, const phrase *p, progress *at, bool training) {");
  zp_buf_line(out, "  for (int64_t i = 0; i < p->times; i++)");
  zp_buf_line(out, "    for (const char *a = p->actions; *a;) {");
  zp_buf_line(out, "      const char what = *a++;");
  if (chunks) {
    zp_buf_line(out, "      int chunk = 0;");
    zp_buf_line(out, "      while (*a >= '0') chunk = 10 * chunk + *a++ - '0';");
  }
  zp_buf_line(out, "      if (*a == ' ') a++;");
  zp_buf_line(out, "      if (what != 'F' && !training) continue;");
  zp_buf_line(out, "      int64_t *next = what == 'F' ? &at->f%s : %s%s%s&at->b%s;", of_chunk,
              split ? "what == 'W' ? &at->w" : "", split ? of_chunk : "", split ? " : " : "", of_chunk);
  zp_buf_line(out, "      act(c, what, %s(*next)++);", chunks ? "chunk, " : "");
  if (zp_emit_pools(e)) zp_buf_line(out, "      if (!training) leave_slot(chunk, at->f[chunk] - 1);");
  zp_buf_line(out, "    }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
  zp_buf_line(out, "/* The micro-batches of this replica in the order of %s; without training the forwards alone. */",
              schedule);
  zp_buf_line(out, "static void follow_order(zpr *c, bool training) {");
  zp_buf_line(out, "  progress at = {0};");
  if (groups) {
    zp_buf_line(out, "  for (const phrase *p = orders[c->p]; p->times > 0; p += 1 + p->group)");
    zp_buf_line(out, "    if (p->group == 0)");
    zp_buf_line(out, "      follow_phrase(c, p, &at, training);");
    zp_buf_line(out, "    else");
    zp_buf_line(out, "      for (int64_t i = 0; i < p->times; i++)");
    zp_buf_line(out, "        for (int k = 1; k <= p->group; k++) follow_phrase(c, p + k, &at, training);");
  } else {
    zp_buf_line(out, "  for (const phrase *p = orders[c->p]; p->times > 0; p++) follow_phrase(c, p, &at, training);");
  }
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
  zp_buf_line(out, "static void micro_batches(zpr *c) { follow_order(c, true); }");
}

void zp_emit_order(zp_emit *e) {
  zp_buf *out = &e->out;
  const zp_program *p = e->program;
  zp_phrases *phrases = ZP_NEW_ARRAY(e->arena, zp_phrases, p->choice.pipeline);
  for (int s = 0; s < p->choice.pipeline; s++)
    phrases[s] = zp_stage_phrases(e->arena, &p->choice, s, p->microbatches, p->order ? p->order[s] : NULL);
  bool gpipe = follows(e, phrases, ZP_SCHEDULE_GPIPE);
  if (gpipe || follows(e, phrases, ZP_SCHEDULE_1F1B))
    emit_loops(e, gpipe);
  else
    emit_phrases(e, phrases);
  if (zp_chunks(&e->program->choice) > 1) {
    zp_buf_line(out, "static void forwards(zpr *c) { follow_order(c, false); }");
  } else {
    zp_buf_line(out, "static void forwards(zpr *c) {");
    zp_buf_line(out, "  for (int64_t mb = 0; mb < MICROBATCHES; mb++) forward(c, mb);");
    zp_buf_line(out, "}");
  }
  zp_buf_puts(out, "\n");
}
