/* Procedures and schedule of a plan file: live ranges are found again from the steps, the order is played. */
#include "verify_internal.h"

static int64_t get(const zp_json *o, const char *key) { return zp_json_get_int(o, key, INT64_MIN); }

typedef struct live {
  int first, last;   /* steps */
  bool written;
} live;

static int root_of(const zp_json *buffers, int b) {
  int64_t base = get(zp_json_at(buffers, b), "base");
  return base >= 0 ? (int)base : b;
}

static bool is_place(const zp_json *buffer, const char *place) { return strcmp(zp_json_get_string(buffer, "place", ""), place) == 0; }

/* A view must lie inside its base's storage. */
static void check_view(zp_verifier *v, const char *proc, const zp_json *buffers, const zp_json *b) {
  int64_t base = get(b, "base");
  if (base < 0) return;
  if (base >= zp_json_count(buffers)) {
    zp_find(v, "%s: `%s` views a buffer that does not exist", proc, zp_json_get_string(b, "name", ""));
    return;
  }
  const zp_json *o = zp_json_at(buffers, (int)base);
  int64_t last = get(b, "offset") + (get(b, "rows") - 1) * get(b, "ld") + get(b, "cols");
  if (get(b, "offset") < 0 || last > get(o, "rows") * get(o, "ld"))
    zp_find(v, "%s: `%s` reaches beyond `%s`", proc, zp_json_get_string(b, "name", ""), zp_json_get_string(o, "name", ""));
}

static void note(zp_verifier *v, const char *proc, const zp_json *buffers, live *range, const zp_json *list, int step, bool write) {
  for (int i = 0; i < zp_json_count(list); i++) {
    int64_t b = zp_json_int(zp_json_at(list, i), -1);
    if (b < 0 || b >= zp_json_count(buffers)) {
      zp_find(v, "%s: step %d names buffer %lld", proc, step, (long long)b);
      continue;
    }
    int r = root_of(buffers, (int)b);
    const zp_json *buffer = zp_json_at(buffers, r);
    bool local = is_place(buffer, "transient");
    if (!write && local && !range[r].written)
      zp_find(v, "%s: step %d reads `%s` before anything was written there", proc, step, zp_json_get_string(buffer, "name", ""));
    if (range[r].first < 0) range[r].first = step;
    range[r].last = step;
    if (write) range[r].written = true;
  }
}

static bool apart(const zp_json *a, const zp_json *b) {
  return get(a, "offset") + get(a, "bytes") <= get(b, "offset") || get(b, "offset") + get(b, "bytes") <= get(a, "offset");
}

static void check_overlaps(zp_verifier *v, const char *proc, const zp_json *buffers, const live *range, int64_t saved_bytes,
                           int64_t transient_bytes) {
  int n = zp_json_count(buffers);
  for (int b = 0; b < n; b++) {
    const zp_json *x = zp_json_at(buffers, b);
    bool transient = is_place(x, "transient"), saved = is_place(x, "saved");
    if (get(x, "base") >= 0 || (!transient && !saved) || range[b].first < 0) continue;
    int64_t limit = transient ? transient_bytes : saved_bytes;
    if (get(x, "offset") < 0 || get(x, "bytes") < 0 || get(x, "offset") + get(x, "bytes") > limit)
      zp_find(v, "%s: `%s` reaches beyond its region of %lld bytes", proc, zp_json_get_string(x, "name", ""), (long long)limit);
    for (int o = 0; o < b; o++) {
      const zp_json *y = zp_json_at(buffers, o);
      if (get(y, "base") >= 0 || range[o].first < 0 || is_place(y, "transient") != transient || is_place(y, "saved") != saved) continue;
      bool together = saved || (range[b].first <= range[o].last && range[o].first <= range[b].last);
      if (together && !apart(x, y))
        zp_find(v, "%s: `%s` and `%s` are alive together and overlap", proc, zp_json_get_string(y, "name", ""), zp_json_get_string(x, "name", ""));
    }
  }
}

static void check_procedure(zp_verifier *v, const char *proc, const zp_json *p, int64_t saved_bytes) {
  const zp_json *buffers = zp_json_get(p, "buffers"), *steps = zp_json_get(p, "steps");
  int n = zp_json_count(buffers);
  live *range = ZP_NEW_ARRAY(v->arena, live, n + 1);
  for (int b = 0; b < n; b++) {
    range[b].first = range[b].last = -1;
    check_view(v, proc, buffers, zp_json_at(buffers, b));
  }
  for (int s = 0; s < zp_json_count(steps); s++) {
    const zp_json *step = zp_json_at(steps, s);
    note(v, proc, buffers, range, zp_json_get(step, "in"), s, false);
    note(v, proc, buffers, range, zp_json_get(step, "out"), s, true);
    int64_t w = get(step, "workspace");
    if (w >= 0 && w < n) {
      range[w].first = range[w].first < 0 ? s : range[w].first;
      range[w].last = s;
    }
  }
  check_overlaps(v, proc, buffers, range, saved_bytes, get(p, "transient_bytes"));
}

void zp_verify_procedures(zp_verifier *v) {
  const zp_json *segments = zp_json_get(v->program, "segments");
  for (int i = 0; i < zp_json_count(segments); i++) {
    const zp_json *s = zp_json_at(segments, i);
    const char *name = zp_json_get_string(s, "name", "");
    check_procedure(v, zp_format(v->arena, "%s forward", name), zp_json_get(s, "forward"), get(s, "saved_bytes"));
    check_procedure(v, zp_format(v->arena, "%s backward", name), zp_json_get(s, "backward"), get(s, "saved_bytes"));
  }
}

/* ---- schedule ---- */

typedef struct player { /* one stage */
  int64_t warmup, forward, backward; /* next micro-batches; messages received and sent */
  int64_t up_taken, down_taken;      /* by the neighbour, of what this stage sent */
} player;

/* 1F1B in its own words: which way the stage goes next. */
static bool goes_forward(const player *p, int64_t m) {
  return p->forward < m && p->forward - p->backward <= p->warmup;
}

/* May stage s take its next action? Receiving needs the message; sending needs the buffer of the message before. */
static bool step_stage(zp_verifier *v, player *p, int s) {
  int64_t m = v->microbatches;
  player *me = &p[s];
  if (me->backward == m) return false;
  if (goes_forward(me, m)) {
    if (s > 0 && p[s - 1].forward <= me->forward) return false;            /* nothing to receive yet */
    if (s + 1 < v->pipeline && me->up_taken < me->forward) return false;   /* the last message still in its buffer */
    if (s > 0) p[s - 1].up_taken++;
    me->forward++;
    return true;
  }
  if (me->forward <= me->backward) return false;
  if (s + 1 < v->pipeline && p[s + 1].backward <= me->backward) return false;
  if (s > 0 && me->down_taken < me->backward) return false;
  if (s + 1 < v->pipeline) p[s + 1].down_taken++;
  me->backward++;
  return true;
}

void zp_verify_order(zp_verifier *v) {
  player *p = ZP_NEW_ARRAY(v->arena, player, v->pipeline);
  for (int s = 0; s < v->pipeline; s++) p[s].warmup = v->pipeline - 1 - s;
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < v->pipeline; s++) {
      while (step_stage(v, p, s)) {
        moved = true;
        int64_t slots = get(zp_json_get(zp_json_at(v->stages, s), "arena"), "slots");
        if (p[s].forward - p[s].backward > slots) {
          zp_find(v, "stage %d has %lld micro-batches in flight and %lld slots", s, (long long)(p[s].forward - p[s].backward), (long long)slots);
          return;
        }
      }
    }
  }
  for (int s = 0; s < v->pipeline; s++)
    if (p[s].backward != v->microbatches)
      zp_find(v, "deadlock: stage %d stops after %lld forwards and %lld backwards", s, (long long)p[s].forward, (long long)p[s].backward);
}
