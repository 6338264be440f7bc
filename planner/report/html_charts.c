/* The drawings of the HTML report, as inline SVG. Colours are classes of the page's style sheet, so that light and dark
 * both work; coordinates are in user units of 900 across. */
#include <math.h>
#include <zplan/cost.h>
#include "report_internal.h"

enum { WIDTH = 900, LABEL = 110, PLOT = WIDTH - LABEL - 90, ROW = 18, BAR = 12 };

static void open_svg(zp_buf *out, double height, const char *title) {
  zp_buf_printf(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"%s\">\n", WIDTH, height,
                zp_quote_html(out->arena, title));
}

static void put_legend(zp_buf *out, const char *const *name, int n) {
  zp_buf_puts(out, "<p class=\"legend\">");
  for (int i = 0; i < n; i++)
    zp_buf_printf(out, "<span><i class=\"b%d\"></i>%s</span>", i, zp_quote_html(out->arena, name[i]));
  zp_buf_puts(out, "</p>\n");
}

static void put_rect(zp_buf *out, int class, double x, double y, double width, double height, const char *title) {
  zp_buf_printf(out,
                "<rect class=\"c%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>%s</title></rect>\n",
                class, x, y, width, height, zp_quote_html(out->arena, title));
}

/* ---- memory ---- */

static void put_memory_bar(zp_buf *out, const zp_plan *plan, zp_stage_group group, double y, double bytes_per_unit) {
  zp_memory m = zp_stage_memory(plan, group.first);
  double x = LABEL;
  zp_buf_printf(out, "<text x=\"0\" y=\"%.1f\">stage %s</text>\n", y + BAR - 2, zp_words_group(out->arena, group));
  int64_t total = 0;
  for (int c = 0; c < ZP_MEMORY_CLASSES; c++) {
    int64_t bytes = zp_memory_class_bytes(&m, c);
    total += bytes;
    if (bytes == 0) continue;
    put_rect(out, c, x, y, (double)bytes / bytes_per_unit, BAR,
             zp_format(out->arena, "%s %s", zp_memory_class_name(c), zp_show_bytes(out->arena, bytes)));
    x += (double)bytes / bytes_per_unit;
  }
  zp_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 6, y + BAR - 2, zp_show_bytes(out->arena, total));
}

void zp_html_memory_bars(zp_buf *out, const zp_plan *plan) {
  zp_stage_groups groups = zp_group_stages(out->arena, plan->program, false);
  const char *names[ZP_MEMORY_CLASSES];
  for (int c = 0; c < ZP_MEMORY_CLASSES; c++) names[c] = zp_memory_class_name(c);
  put_legend(out, names, zp_memory_classes(plan));
  int64_t usable = zp_words_usable_bytes(plan, plan->best.estimate.peak_stage),
          largest = plan->best.estimate.peak_bytes;
  /* The capacity belongs in the picture, unless the model is so small that nothing else would be seen. */
  bool show_capacity = usable < 50 * largest;
  double bytes_per_unit = (double)(show_capacity && usable > largest ? usable : largest) / PLOT;
  double height = groups.len * ROW + 24;
  open_svg(out, height, "memory of one rank by stage");
  for (int g = 0; g < groups.len; g++) put_memory_bar(out, plan, groups.data[g], 16 + g * ROW, bytes_per_unit);
  if (show_capacity) {
    double x = LABEL + (double)usable / bytes_per_unit;
    zp_buf_printf(out,
                  "<line class=\"limit\" x1=\"%.1f\" x2=\"%.1f\" y1=\"12\" y2=\"%.0f\"/><text x=\"%.1f\" y=\"9\" "
                  "text-anchor=\"end\">usable %s</text>\n",
                  x, x, height, x, zp_show_bytes(out->arena, usable));
  }
  zp_buf_puts(out, "</svg>\n");
}

/* ---- time ---- */

void zp_html_time_split(zp_buf *out, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
#define ZP_TERM_NAME(field, name) name,
#define ZP_TERM_VALUE(field, name) e->field,
  static const char *const name[] = {ZP_STEP_TERMS(ZP_TERM_NAME)};
  const double term[] = {ZP_STEP_TERMS(ZP_TERM_VALUE)};
#undef ZP_TERM_NAME
#undef ZP_TERM_VALUE
  enum { TERMS = sizeof term / sizeof *term };
  put_legend(out, name, TERMS);
  open_svg(out, 26, "terms of the step time");
  double x = 0;
  for (int i = 0; i < TERMS; i++) {
    double width = e->step_s > 0 ? term[i] / e->step_s * WIDTH : 0;
    if (width <= 0) continue;
    put_rect(out, i, x, 2, width, 20,
             zp_format(out->arena, "%s %s (%.1f%%)", name[i], zp_show_seconds(out->arena, term[i]),
                       100 * term[i] / e->step_s));
    x += width;
  }
  zp_buf_puts(out, "</svg>\n");
}

/* ---- timeline ---- */

enum { MAX_STAGES = 64, MAX_BOXES = 6000, LABELLED_BOXES = 400 };

typedef ZP_VEC(zp_event) zp_events;
typedef struct timeline {
  zp_arena *arena;
  int64_t microbatches; /* shown */
  double end_s;         /* of what is shown */
  zp_events events;
  zp_events others; /* of later micro-batches: stages are not idle then */
} timeline;

static void note_event(void *user, const zp_event *e) {
  timeline *t = user;
  if (e->action.microbatch >= t->microbatches) {
    zp_push(t->arena, &t->others, *e);
    return;
  }
  zp_push(t->arena, &t->events, *e);
  if (e->end_s > t->end_s) t->end_s = e->end_s;
}

enum { FORWARD = 0, OTHERS = 1, BACKWARD = 2 }; /* colours */

static void put_boxes(zp_buf *out, const timeline *t, int colour) {
  const zp_events *events = colour == OTHERS ? &t->others : &t->events;
  double scale = (WIDTH - 60) / t->end_s;
  zp_buf_printf(out, "<path class=\"c%d\" d=\"", colour);
  for (int i = 0; i < events->len; i++) {
    const zp_event *e = &events->data[i];
    if (colour != OTHERS && e->action.forward != (colour == FORWARD)) continue;
    if (e->begin_s >= t->end_s) continue;
    double width = fmax(0.3, (fmin(e->end_s, t->end_s) - e->begin_s) * scale - 0.4);
    zp_buf_printf(out, "M%.1f %dh%.1fv10h-%.1fz", 60 + e->begin_s * scale, 4 + e->stage * 13, width, width);
  }
  zp_buf_puts(out, "\"/>\n");
}

void zp_html_timeline(zp_buf *out, const zp_plan *plan) {
  const zp_program *p = plan->program;
  int stages = p->choice.pipeline;
  if (stages > MAX_STAGES) {
    zp_buf_printf(
        out,
        "<p>%d stages are too many to draw; <code>zplan report --trace</code> writes them for a trace viewer.</p>\n",
        stages);
    return;
  }
  zp_arena *scratch = zp_arena_new("timeline");
  zp_arena *kept = zp_arena_new("events"); /* a simulation gives back what it took from its own */
  timeline t = {.arena = kept, .microbatches = stages + 8};
  if (t.microbatches > MAX_BOXES / (2 * stages)) t.microbatches = MAX_BOXES / (2 * stages);
  if (t.microbatches > p->microbatches) t.microbatches = p->microbatches;
  zp_pipeline_run run = zp_cost_pipeline(scratch, p, &plan->machine);
  zp_pipeline_simulate(scratch, &run, note_event, &t);
  zp_buf_puts(out,
              "<p class=\"legend\"><span><i class=\"b0\"></i>forward</span><span><i class=\"b2\"></i>backward</span>");
  if (t.others.len) zp_buf_puts(out, "<span><i class=\"b1\"></i>later micro-batches</span>");
  zp_buf_printf(out, " the first %lld of %lld micro-batches until they are done, %s of the step (estimate)%s</p>\n",
                (long long)t.microbatches, (long long)p->microbatches, zp_show_seconds(out->arena, t.end_s),
                t.others.len ? "; the pipeline goes on after the right edge &hellip;" : "");
  open_svg(out, stages * 13 + 8, "pipeline timeline");
  for (int s = 0; s < stages; s++) zp_buf_printf(out, "<text x=\"0\" y=\"%d\">stage %d</text>\n", 13 + s * 13, s);
  if (t.others.len) put_boxes(out, &t, OTHERS);
  put_boxes(out, &t, FORWARD);
  put_boxes(out, &t, BACKWARD);
  double scale = (WIDTH - 60) / t.end_s;
  for (int i = 0; i < t.events.len && t.events.len <= LABELLED_BOXES; i++) {
    const zp_event *e = &t.events.data[i];
    if ((e->end_s - e->begin_s) * scale > 14)
      zp_buf_printf(out, "<text class=\"in\" x=\"%.1f\" y=\"%d\">%lld</text>\n", 62 + e->begin_s * scale,
                    12 + e->stage * 13, (long long)e->action.microbatch);
  }
  zp_buf_puts(out, "</svg>\n");
  zp_arena_free(scratch);
  zp_arena_free(kept);
}

/* ---- loss ---- */

enum { MAX_POINTS = 2000, LOSS_HEIGHT = 220 };

void zp_html_loss(zp_buf *out, const zp_log_steps *steps) {
  double low = INFINITY, high = -INFINITY;
  for (int i = 0; i < steps->len; i++) {
    if (!isfinite(steps->data[i].loss)) continue;
    low = fmin(low, steps->data[i].loss);
    high = fmax(high, steps->data[i].loss);
  }
  if (!(high >= low)) return;
  if (high == low) high = low + fmax(1, fabs(low));
  open_svg(out, LOSS_HEIGHT + 20, "loss by step");
  zp_buf_printf(
      out, "<text x=\"0\" y=\"12\">%.3f</text><text x=\"0\" y=\"%d\">%.3f</text>\n<polyline class=\"line\" points=\"",
      high, LOSS_HEIGHT, low);
  int stride = steps->len / MAX_POINTS + 1;
  double across = steps->len > 1 ? steps->len - 1 : 1;
  for (int i = 0; i < steps->len; i += stride)
    if (isfinite(steps->data[i].loss))
      zp_buf_printf(out, "%.1f,%.1f ", 60 + (WIDTH - 70) * i / across,
                    4 + (LOSS_HEIGHT - 8) * (high - steps->data[i].loss) / (high - low));
  zp_buf_printf(out,
                "\"/>\n<text x=\"60\" y=\"%d\">step %lld</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">step "
                "%lld</text>\n</svg>\n",
                LOSS_HEIGHT + 15, (long long)steps->data[0].step, WIDTH - 10, LOSS_HEIGHT + 15,
                (long long)steps->data[steps->len - 1].step);
}
