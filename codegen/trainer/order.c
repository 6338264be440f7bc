/* Prints the order in which a stage takes its micro-batches: GPipe and 1F1B as loops, everything else as phrases, which
 * are found in the order tables of the program: a run of actions and how often it is repeated. So a table of any number
 * of micro-batches is a few lines. */
#include "emit.h"

#include <assert.h>

static bool is_loop(const zp_choice *c) { return c->schedule == ZP_SCHEDULE_1F1B || c->schedule == ZP_SCHEDULE_GPIPE; }

/* The loops say what the order tables say, entry by entry. */
static void check_loops(const zp_program *p) {
  zp_action *order = ZP_NEW_ARRAY(p->arena, zp_action, 2 * p->microbatches);
  for (int s = 0; s < p->choice.pipeline; s++) {
    zp_order(&p->choice, s, p->microbatches, order, NULL);
    int64_t m = p->microbatches, warmup = p->choice.pipeline - 1 - s, n = 0, f = 0, b = 0;
    if (p->choice.schedule == ZP_SCHEDULE_GPIPE || warmup > m) warmup = m;
    for (bool forward = true; n < 2 * m; n++) {
      forward = f < warmup || (f < m && f - b == warmup);
      assert(order[n].forward == forward && order[n].microbatch == (forward ? f : b));
      *(forward ? &f : &b) += 1;
    }
  }
}

static void emit_loops(zp_emit *e) {
  zp_buf *out = &e->out;
  const zp_choice *c = &e->program->choice;
  check_loops(e->program);
  bool gpipe = c->schedule == ZP_SCHEDULE_GPIPE;
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

static bool same(const zp_action *a, const zp_action *b) { return a->act == b->act && a->chunk == b->chunk; }

/* How often the `length` actions at the start of table[n] stand there one after the other. */
static int64_t repeats(const zp_action *table, int64_t n, int64_t length) {
  int64_t i = length;
  while (i < n && same(&table[i], &table[i - length])) i++;
  return i / length;
}

typedef struct phrase {
  int64_t length, times;
} phrase;

/* The phrase at the start of table[n] that covers most, the shortest of several; times 1: nothing worth it is repeated.
 */
static phrase find_phrase(const zp_action *table, int64_t n, int64_t longest) {
  phrase best = {1, 1};
  for (int64_t length = 1; length <= longest && 2 * length <= n; length++) {
    phrase p = {length, repeats(table, n, length)};
    if (p.times > 1 && p.length * p.times > 3 && p.length * p.times > best.length * best.times) best = p;
  }
  return best;
}

static void emit_phrase(zp_emit *e, const zp_action *table, phrase p) {
  static const char act[] = {[ZP_ACT_F] = 'F', [ZP_ACT_B] = 'B', [ZP_ACT_BI] = 'I', [ZP_ACT_BW] = 'W'};
  zp_buf_printf(&e->out, "    {%lld, \"", (long long)p.times);
  for (int64_t i = 0; i < p.length; i++) {
    zp_buf_printf(&e->out, "%s%c", i ? " " : "", act[table[i].act]);
    if (zp_chunks(&e->program->choice) > 1) zp_buf_printf(&e->out, "%d", table[i].chunk);
    if (i % 24 == 23 && i + 1 < p.length) zp_buf_puts(&e->out, "\"\n        \"");
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

static void emit_stage_order(zp_emit *e, int s) {
  const zp_program *p = e->program;
  const zp_action *table = p->order[s];
  int64_t n = p->actions[s], longest = 8 * (int64_t)p->choice.pipeline * zp_chunks(&p->choice), single = 0, i = 0;
  check_ascending(p, s);
  zp_buf_line(&e->out, "static const phrase order_%d[] = {", s);
  while (i < n) {
    phrase next = find_phrase(table + i, n - i, longest);
    if (next.times == 1 && i + 1 < n) {
      i++, single++;
      continue;
    }
    if (next.times == 1) single++, i++; /* the last one */
    if (single > 0) emit_phrase(e, table + i - single, (phrase){single, 1});
    single = 0;
    if (next.times == 1) break;
    emit_phrase(e, table + i, next);
    i += next.length * next.times;
  }
  zp_buf_line(&e->out, "    {0, NULL}};");
}

static void emit_tables(zp_emit *e) {
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
  zp_buf_line(out, "} phrase;");
  for (int s = 0; s < c->pipeline; s++) emit_stage_order(e, s);
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

static void emit_phrases(zp_emit *e) {
  zp_buf *out = &e->out;
  bool chunks = zp_chunks(&e->program->choice) > 1;
  bool split = zp_schedule_splits(e->program->choice.schedule);
  assert(zp_messages_in_order(&e->program->choice, e->program->order, e->program->actions));
  const char *schedule = zp_schedule_name(e->program->choice.schedule), *at = chunks ? "[chunk]" : "";
  emit_tables(e);
  emit_act(e);
  zp_buf_line(out, "/* The micro-batches of this replica in the order of %s; without training the forwards alone. */",
              schedule);
  zp_buf_line(out, "static void follow_order(zpr *c, bool training) {");
  const char *size = chunks ? "[CHUNKS] = {0}" : " = 0";
  zp_buf_line(out, "  int64_t f%s, b%s%s%s;", size, size, split ? ", w" : "", split ? size : "");
  zp_buf_line(out, "  for (const phrase *p = orders[c->p]; p->times > 0; p++)");
  zp_buf_line(out, "    for (int64_t i = 0; i < p->times; i++)");
  zp_buf_line(out, "      for (const char *a = p->actions; *a;) {");
  zp_buf_line(out, "        const char what = *a++;");
  if (chunks) {
    zp_buf_line(out, "        int chunk = 0;");
    zp_buf_line(out, "        while (*a >= '0') chunk = 10 * chunk + *a++ - '0';");
  }
  zp_buf_line(out, "        if (*a == ' ') a++;");
  zp_buf_line(out, "        if (what != 'F' && !training) continue;");
  zp_buf_line(out, "        int64_t *next = what == 'F' ? &f%s : %s%s%s&b%s;", at, split ? "what == 'W' ? &w" : "",
              split ? at : "", split ? " : " : "", at);
  zp_buf_line(out, "        act(c, what, %s(*next)++);", chunks ? "chunk, " : "");
  if (zp_emit_pools(e)) zp_buf_line(out, "        if (!training) leave_slot(chunk, f[chunk] - 1);");
  zp_buf_line(out, "      }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
  zp_buf_line(out, "static void micro_batches(zpr *c) { follow_order(c, true); }");
}

void zp_emit_order(zp_emit *e) {
  zp_buf *out = &e->out;
  bool loop = is_loop(&e->program->choice);
  if (loop)
    emit_loops(e);
  else
    emit_phrases(e);
  if (zp_chunks(&e->program->choice) > 1) {
    zp_buf_line(out, "static void forwards(zpr *c) { follow_order(c, false); }");
  } else {
    zp_buf_line(out, "static void forwards(zpr *c) {");
    zp_buf_line(out, "  for (int64_t mb = 0; mb < MICROBATCHES; mb++) forward(c, mb);");
    zp_buf_line(out, "}");
  }
  zp_buf_puts(out, "\n");
}
