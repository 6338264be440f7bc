/* SPDX-License-Identifier: Apache-2.0 */
/* The text format of Prometheus, version 0.0.4, for the textfile collector of its node exporter. Base units, as its
 * naming rules want; a number that is not known has no line. */
#include <zplan/buf.h>
#include <zplan/watch.h>

#include <math.h>

/* In a label's value a backslash, a quotation mark and the end of a line are escaped. */
static const char *label(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (; *text; text++) {
    if (*text == '\n')
      zp_buf_puts(&out, "\\n");
    else
      zp_buf_printf(&out, "%s%c", *text == '\\' || *text == '"' ? "\\" : "", *text);
  }
  return out.len ? out.data : "";
}

typedef double (*value_of)(const zp_watched *w);

static double step(const zp_watched *w) { return w->view.step >= 0 ? (double)w->view.step : NAN; }
static double steps(const zp_watched *w) { return w->view.steps > 0 ? (double)w->view.steps : NAN; }
static double loss(const zp_watched *w) { return w->view.loss; }
static double smooth_loss(const zp_watched *w) { return w->view.smooth_loss; }
static double validation_loss(const zp_watched *w) { return w->view.validation_loss; }
static double rate(const zp_watched *w) { return w->view.lr; }
static double norm(const zp_watched *w) { return w->view.grad_norm; }
static double step_s(const zp_watched *w) { return w->view.step_ms / 1e3; }
static double median_s(const zp_watched *w) { return zp_run_view_median_ms(&w->view) / 1e3; }
static double predicted_s(const zp_watched *w) { return w->view.predicted_ms / 1e3; }
static double tokens(const zp_watched *w) { return zp_run_view_tokens_per_s(&w->view); }
static double memory(const zp_watched *w) { return w->view.memory_bytes > 0 ? (double)w->view.memory_bytes : NAN; }
static double eta(const zp_watched *w) { return zp_run_view_eta_s(&w->view); }
static double ended(const zp_watched *w) { return w->view.ended; }

static const struct {
  const char *name, *help;
  value_of value;
} gauges[] = {{"zplan_step", "Newest training step.", step},
              {"zplan_steps", "Training steps to do.", steps},
              {"zplan_loss", "Loss of the newest step.", loss},
              {"zplan_loss_smoothed", "Loss, of which every step replaces a tenth.", smooth_loss},
              {"zplan_validation_loss", "Loss of the newest validation.", validation_loss},
              {"zplan_learning_rate", "Learning rate of the newest step.", rate},
              {"zplan_gradient_norm", "Gradient norm of the newest step.", norm},
              {"zplan_step_seconds", "Time of the newest step.", step_s},
              {"zplan_step_median_seconds", "Median time of recent steps.", median_s},
              {"zplan_step_predicted_seconds", "Time of a step as the plan predicts it.", predicted_s},
              {"zplan_tokens_per_second", "Tokens a second, at the median time of recent steps.", tokens},
              {"zplan_memory_bytes", "Most memory measured of a rank.", memory},
              {"zplan_eta_seconds", "Time until the last step, at the median time of recent steps.", eta},
              {"zplan_ended", "1: the log has its end record.", ended}};

/* Lines of one metric stand together. */
static void put_gauge(zp_buf *out, size_t gauge, const zp_watched_list *all) {
  bool any = false;
  for (int i = 0; i < all->len; i++) {
    const zp_watched *w = &all->data[i];
    double value = gauges[gauge].value(w);
    if (!isfinite(value) || w->missing || w->failed) continue;
    if (!any)
      zp_buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", gauges[gauge].name, gauges[gauge].help, gauges[gauge].name);
    any = true;
    zp_buf_printf(out, "%s{log=\"%s\"} %.17g\n", gauges[gauge].name, label(out->arena, w->path), value);
  }
}

static void put_warnings(zp_buf *out, const zp_watched_list *all, bool at_once) {
  zp_buf_puts(out, "# HELP zplan_warning 1: the run has this trouble now.\n# TYPE zplan_warning gauge\n");
  for (int i = 0; i < all->len; i++) {
    zp_troubles troubles = zp_watched_troubles(out->arena, &all->data[i], at_once);
    for (int kind = 0; kind < ZP_TROUBLE_KINDS; kind++) {
      if (kind == ZP_TROUBLE_SPIKE) continue; /* it is a step's, not a state: counted below */
      bool now = false;
      for (int t = 0; t < troubles.len; t++) now |= (int)troubles.data[t].kind == kind && troubles.data[t].now;
      zp_buf_printf(out, "zplan_warning{log=\"%s\",kind=\"%s\"} %d\n", label(out->arena, all->data[i].path),
                    zp_trouble_name((zp_trouble_kind)kind), now);
    }
  }
  zp_buf_puts(out, "# HELP zplan_loss_spikes Steps with a loss far above the ones before.\n# TYPE zplan_loss_spikes "
                   "gauge\n");
  for (int i = 0; i < all->len; i++)
    zp_buf_printf(out, "zplan_loss_spikes{log=\"%s\"} %lld\n", label(out->arena, all->data[i].path),
                  (long long)all->data[i].view.spikes);
}

const char *zp_prometheus_text(zp_arena *arena, const zp_watched_list *all, bool at_once) {
  zp_buf out = zp_buf_new(arena);
  for (size_t g = 0; g < sizeof gauges / sizeof *gauges; g++) put_gauge(&out, g, all);
  put_warnings(&out, all, at_once);
  return out.data;
}
