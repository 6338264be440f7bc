/* The HTML report: one file, no scripts, no fonts, nothing fetched; light and dark by media query. */
#include "report_internal.h"

#include <assert.h>

enum { COLOURS = 7 }; /* --c0 and so on: one for every term of a step */

static const char style[] =
    ":root{--bg:#fff;--fg:#1c2024;--dim:#667;--line:#d8dde3;--c0:#3b7dd8;--c1:#9aa5b1;--c2:#e08a3c;--c3:#5aa469;--c4:#"
    "b46ac8;--c5:#c9b458;--c6:#5f7388}\n"
    "@media "
    "(prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e4e7ea;--dim:#9aa3ad;--line:#333a42;--c0:#5b9bf0;--c1:#"
    "6b7683;--c2:#eb9d57;"
    "--c3:#6fbf80;--c4:#c588d6;--c5:#d8c568;--c6:#8aa0b8}}\n"
    "body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em "
    "auto;padding:0 1em}\n"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}pre{overflow-x:auto;font-size:12px;line-height:1.4}\n"
    "svg{width:100%;height:auto}svg text{font:10px system-ui,sans-serif;fill:var(--fg)}svg "
    "text.in{font-size:8px;fill:var(--bg)}\n"
    "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}th,td{text-align:left;white-space:"
    "nowrap;padding:.25em "
    ".8em .25em 0;"
    "border-bottom:1px solid var(--line)}th{color:var(--dim);font-weight:500}\n"
    ".legend{font-size:12px;color:var(--dim)}.legend span{margin-right:1em}.legend "
    "i{display:inline-block;width:.8em;height:.8em;margin-right:.35em}\n"
    ".limit{stroke:var(--fg);stroke-dasharray:3 2}.line{fill:none;stroke:var(--c0);stroke-width:1.5}\n";

static void put_style(zp_buf *out) {
  zp_buf_puts(out, "<style>\n");
  zp_buf_puts(out, style);
  for (int i = 0; i < COLOURS; i++) zp_buf_printf(out, ".c%d{fill:var(--c%d)}.b%d{background:var(--c%d)}", i, i, i, i);
  zp_buf_puts(out, "\n</style>\n");
}

static void put_measured(zp_buf *out, const zp_plan *plan, const char *log_text) {
  zp_log_steps steps = zp_log_read(out->arena, log_text);
  zp_buf_puts(out, "<h2>Predicted and measured</h2>\n");
  if (steps.len == 0) {
    zp_buf_puts(out, "<p>The log has no training steps.</p>\n");
    return;
  }
  zp_html_measured(out, plan, &steps, zp_log_read_memory(out->arena, log_text));
  zp_buf_puts(out, "<h2>Loss</h2>\n");
  zp_html_loss(out, &steps);
}

const char *zp_report_html(zp_arena *arena, const zp_plan *plan, const char *log_text) {
  assert(plan->feasible);
  zp_buf out = zp_buf_new(arena);
  const char *name = zp_quote_html(arena, plan->spec->model->name);
  zp_buf_puts(&out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
  zp_buf_puts(&out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
  zp_buf_printf(&out, "<title>%s: training plan</title>\n", name);
  put_style(&out);
  zp_buf_printf(&out, "</head>\n<body>\n<h1>%s</h1>\n<pre>%s</pre>\n", name,
                zp_quote_html(arena, zp_report_summary(arena, plan)));
  if (log_text) put_measured(&out, plan, log_text);
  zp_buf_puts(&out, "<h2>Memory of one rank</h2>\n");
  zp_html_memory_bars(&out, plan);
  zp_html_memory_table(&out, plan);
  zp_buf_puts(&out, "<h2>Where the step time goes (estimate)</h2>\n");
  zp_html_time_split(&out, plan);
  if (plan->spec->train.delayed) {
    zp_buf_puts(&out, "<h2>Delayed update</h2>\n");
    zp_html_delayed(&out, plan);
  }
  zp_buf_puts(&out, "<h2>Pipeline</h2>\n");
  zp_html_timeline(&out, plan);
  zp_buf_puts(&out, "<h2>Communication</h2>\n");
  zp_html_traffic(&out, plan);
  zp_html_moves(&out, plan);
  zp_buf_puts(&out, "<h2>Alternatives</h2>\n");
  zp_html_alternatives(&out, plan);
  zp_buf_puts(&out, "<h2>Search</h2>\n");
  zp_html_rejected(&out, plan);
  zp_buf_puts(&out, "<h2>Constants of the cost model (uncalibrated)</h2>\n");
  zp_html_constants(&out);
  zp_buf_puts(&out, "</body>\n</html>\n");
  return out.data;
}
