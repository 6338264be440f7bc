/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as text: tables that fit the page, and what their words mean. */
#include "driver.h"

#include <math.h>
#include <zplan/buf.h>
#include <zplan/table.h>

/* ---- plans in a few words ---- */

static const char *recompute_words(const zp_choice *c) {
  if (zp_choice_has_modes(c)) return "per stage";
  switch (c->recompute) {
  case ZP_RECOMPUTE_NONE: return "keep all";
  case ZP_RECOMPUTE_SELECTIVE: return "selective";
  case ZP_RECOMPUTE_FULL: return c->recompute_shard ? "full/t" : "full";
  }
  return "";
}

const char *zp_show_choice(zp_arena *arena, const zp_choice *c) {
  static const char state_letters[ZP_STATE_COUNT] = {'o', 'g', 'p', 'a'};
  char offloaded[2 * ZP_STATE_COUNT + 1] = "";
  for (int s = 0, n = 0; s < ZP_STATE_COUNT; s++)
    if (c->home[s].tier != ZP_TIER_DEVICE && c->home[s].eighths > 0) offloaded[n++] = state_letters[s];
  const char *chunks = c->chunks > 1 ? zp_format(arena, "/%d", c->chunks) : "";
  const char *expert = zp_expert_ranks(c) > 1 ? zp_format(arena, "  ep %d", c->expert) : "";
  const char *context = zp_context_ranks(c) > 1 ? zp_format(arena, "  cp %d", c->context) : "";
  const char *loss = c->loss_chunks > 1 ? zp_format(arena, "  loss/%d", c->loss_chunks) : "";
  const char *shard = c->shard > 0 ? zp_format(arena, "  sg %d", c->shard)
                      : c->hpz > 0 ? zp_format(arena, "  hpz %d", c->hpz)
                                   : "";
  return zp_format(arena, "%d x %d x %d%s%s%s  zero %d%s  mb %lld  %s%s  %s%s%s%s%s%s", c->tensor, c->pipeline,
                   zp_replicas(c), context, expert, c->order == ZP_ORDER_TDP ? "" : "  tpd", c->zero, shard,
                   (long long)c->microbatch, zp_schedule_name(c->schedule), chunks, recompute_words(c),
                   c->sequence ? "  seq" : "", c->fine ? "  in" : "", loss, *offloaded ? "  offloaded " : "",
                   offloaded);
}

const char *zp_show_choice_cell(zp_arena *arena, const zp_choice *c) {
  const char *words = zp_show_choice(arena, c);
  zp_buf out = zp_buf_new(arena);
  for (const char *p = words; *p; p++)
    if (p[0] == ' ' && p[1] != ' ' && p[-1] != ' ')
      zp_buf_puts(&out, ZP_GLUE);
    else
      zp_buf_put(&out, p, 1);
  return out.data;
}

/* A plan for that many devices in words, with the devices that stay idle. */
static const char *show_plan(zp_arena *arena, const zp_choice *c, int devices) {
  int idle = devices - zp_choice_ranks(c);
  const char *words = zp_show_choice_cell(arena, c);
  return idle ? zp_format(arena, "%s  idle" ZP_GLUE "%d", words, idle) : words;
}

enum { PLAN_WIDTH = 44, FOLDED_PLAN = 20 };
static const char plan_title[] = "tensor x pipeline x data";

/* What the words of plans mean: of those that occur. */
static void put_legend(zp_page *page, const char *plans) {
  static const char *const meanings[][2] = {
      {"mb", "mb: micro-batch"},
      {"full", "full: recompute units"},
      {"/t", "/t: kept inputs split over tensor ranks"},
      {"seq", "seq: sequence-sharded"},
      {"cp", "cp: ranks that share positions"},
      {"ep", "ep: data ranks that share experts"},
      {"sg", "sg: data ranks of a shard group"},
      {"tpd", "tpd: rank order tensor-pipeline-data"},
      {"in", "in: cuts inside layers"},
      {"idle", "idle: devices left out, which are paid for"},
      {"loss/", "loss/n: the loss in n chunks of the tokens"},
      {"offloaded", "offloaded: optimizer, gradients, params, activations (o g p a) off the device"}};
  zp_buf out = zp_buf_new(page->out.arena);
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
    const char *word = meanings[i][0], *at = plans;
    size_t n = strlen(word);
    bool part = strchr(word, '/') != NULL;
    while ((at = strstr(at, word)) && !part && !((at == plans || at[-1] == ' ') && (!at[n] || strchr(" /\xc2", at[n]))))
      at++;
    if (at) zp_buf_printf(&out, "%s%s", out.len ? "; " : "", meanings[i][1]);
  }
  if (out.len) zp_page_text(page, ZP_DIM, 2, out.data);
  zp_page_text(page, ZP_DIM, 2, ZP_ESTIMATED_LEGEND);
}

/* The texts of a column. */
static const char *column_text(zp_arena *arena, const zp_table *table, int column) {
  zp_buf out = zp_buf_new(arena);
  for (int i = column; i < table->cells.len; i += table->n) zp_buf_printf(&out, "%s ", table->cells.data[i]);
  return out.len ? out.data : "";
}

static const char *miss_words(zp_arena *arena, const zp_miss *miss) {
  if (miss->have_bytes <= 0) return "no plan satisfies the constraints";
  return zp_format(arena, "does not fit: nearest needs %s of %s", zp_show_bytes(arena, miss->need_bytes),
                   zp_show_bytes(arena, miss->have_bytes));
}

/* ---- sizes ---- */

static const char *number(zp_arena *arena, double value) {
  return value < 1000 ? zp_format(arena, "%.3g", value) : zp_show_count(arena, value);
}

/* "~8.46 s" */
static const char *about(zp_arena *arena, const char *figure) { return zp_format(arena, ZP_ESTIMATED "%s", figure); }

static const zp_column size_columns[] = {
    {"devices", 7, 0, 0},  {"tensor x pipeline x data", PLAN_WIDTH, FOLDED_PLAN, 0},
    {"step", 9, 0, 0},     {"tokens/s", 10, 0, 3},
    {"a device", 9, 0, 7}, {"scaling", 7, 0, 5},
    {"MFU", 7, 0, 4},      {"peak", 9, 0, 1},
    {"run", 10, 0, 2},     {"device-h", 9, 0, 6},
    {"price", 9, 0, 0},
};
enum { N_SIZE_COLUMNS = sizeof size_columns / sizeof *size_columns };

zp_table zp_sizes_table(const zp_spec *spec) {
  bool ends = spec->train.steps > 0, priced = ends && zp_cluster_price(&spec->cluster, spec->cluster.ranks) > 0;
  return (zp_table){.columns = size_columns, .n = N_SIZE_COLUMNS - (priced ? 0 : ends ? 1 : 3)};
}

void zp_add_size(zp_arena *arena, zp_table *table, const zp_spec *spec, const zp_size *size, const zp_size *base) {
  const char *cells[N_SIZE_COLUMNS] = {zp_format(arena, "%d", size->devices)};
  const zp_estimate *e = &size->best.estimate;
  if (size->feasible) {
    cells[1] = show_plan(arena, &size->best.choice, size->devices);
    cells[2] = about(arena, zp_show_seconds(arena, e->step_s));
    cells[3] = about(arena, zp_show_count(arena, e->tokens_per_s));
    cells[4] = about(arena, number(arena, e->tokens_per_s / size->devices));
    cells[5] = about(arena, zp_format(arena, "%.0f%%", 100 * zp_scaling(base, size)));
    cells[6] = about(arena, zp_format(arena, "%.1f%%", 100 * e->mfu));
    cells[7] = about(arena, zp_show_bytes(arena, e->peak_bytes));
    cells[8] = about(arena, zp_show_seconds(arena, (double)spec->train.steps * e->step_s));
    cells[9] = about(arena, number(arena, size->run_device_hours));
    cells[10] = about(arena, zp_format(arena, "$%s", number(arena, size->run_dollars)));
  } else {
    cells[1] = size->stopped ? "not known: the search reached its memory budget (--search-memory)"
                             : miss_words(arena, &size->miss);
  }
  zp_table_add(arena, table, cells);
}

void zp_show_sizes_legend(zp_page *page, const zp_table *table) {
  zp_page_text(page, ZP_DIM, 2, "scaling: tokens/s a device, the smallest that fits being 100%; MFU: model FLOPs used");
  put_legend(page, column_text(page->out.arena, table, 1));
}

static void show_sizes(zp_page *page, const zp_spec *spec, const zp_sizes *sizes) {
  zp_table table = zp_sizes_table(spec);
  const zp_size *base = zp_first_fit(sizes);
  for (int i = 0; i < sizes->len; i++) zp_add_size(page->out.arena, &table, spec, &sizes->data[i], base);
  zp_page_table(page, &table);
  zp_show_sizes_legend(page, &table);
}

void zp_show_fewest(zp_page *page, const zp_spec *spec, const zp_fewest *fewest) {
  zp_buf out = zp_buf_new(page->out.arena);
  const char *things = spec->cluster.node.device.is_cpu ? "ranks" : "devices";
  if (fewest->found) {
    int found = fewest->sizes.data[0].devices, bound = fewest->lower_bound;
    zp_buf_printf(&out, "%s: fits on %d %.*s", spec->model->name, found, (int)strlen(things) - (found == 1), things);
    if (bound > 1) zp_buf_printf(&out, "; below %d not even the state of the parameters fits", bound);
    zp_buf_line(&out, "; %d sizes planned", fewest->searched);
  } else if (fewest->searched) {
    zp_buf_line(&out, "error[Z0603]: %s fits on no number of %s that was planned (%d sizes from %d)", spec->model->name,
                things, fewest->searched, fewest->lower_bound);
  } else {
    zp_buf_line(&out, "error[Z0603]: %s fits on no number of %s: the state of its parameters alone needs %d or more",
                spec->model->name, things, fewest->lower_bound);
    zp_buf_line(&out, "  note: this cluster can have %d: %s", zp_most_devices(spec),
                spec->cluster.groups.len  ? "those of its nodes"
                : spec->cluster.node.nics ? "the most that zplan plans"
                                          : "its nodes have no network cards");
  }
  zp_page_lines(page, out.data);
  if (fewest->found || fewest->searched) show_sizes(page, spec, &fewest->sizes);
}

/* ---- why not ---- */

/* Sums of floating-point terms differ in their last digits: less than `noise` is 0. */
static const char *term_words(zp_arena *arena, double seconds, double noise, bool sign) {
  if (fabs(seconds) <= noise) return "0";
  return zp_format(arena, ZP_ESTIMATED "%s%s",
                   seconds < 0 ? "-"
                   : sign      ? "+"
                               : "",
                   zp_show_seconds(arena, fabs(seconds)));
}

static const zp_column term_columns[] = {
    {"", 24, 18, 0}, {"best", 12, 0, 0}, {"asked", 12, 0, 0}, {"difference", 12, 0, 1}};

static void put_terms(zp_page *page, const zp_why_not *a) {
  double noise = 1e-9 * a->best->best.estimate.step_s;
  zp_arena *arena = page->out.arena;
  zp_table table = {.columns = term_columns, .n = 4};
  for (int i = 0; i < a->terms.len; i++) {
    const zp_term *t = &a->terms.data[i];
    double difference = t->asked_s - t->best_s;
    if (fabs(t->best_s) <= noise && fabs(t->asked_s) <= noise) continue;
    const char *cells[] = {t->name, term_words(arena, t->best_s, noise, false),
                           term_words(arena, t->asked_s, noise, false), term_words(arena, difference, noise, true)};
    zp_table_add(arena, &table, cells);
  }
  const char *peaks[] = {"peak memory", about(arena, zp_show_bytes(arena, a->best->best.estimate.peak_bytes)),
                         about(arena, zp_show_bytes(arena, a->asked->best.estimate.peak_bytes)), NULL};
  zp_table_add(arena, &table, peaks);
  zp_page_table(page, &table);
}

static void put_shortage(zp_buf *out, const zp_why_not *a) {
  const zp_miss *miss = &a->asked->miss;
  const zp_memory *m = &miss->memory;
  const struct {
    const char *name;
    int64_t bytes;
  } classes[] = {
      {"weights", m->weights}, {"gradients", m->gradients}, {"optimizer", m->optimizer},         {"saved", m->saved},
      {"buffers", m->buffers}, {"context", m->context},     {"communicators", m->communicators}, {"host", m->host},
      {"nvme", m->nvme}};
  zp_buf_line(out, "nearest: %s", zp_show_choice(out->arena, &miss->choice));
  bool every = miss->choice.order == ZP_ORDER_TPD && miss->choice.data > 1;
  zp_buf_line(out, "stage %d (ranks %d-%d%s) needs %s a rank and may use %s: %s too much", miss->stage, a->first_rank,
              a->last_rank, every ? " of every replica" : "", zp_show_bytes(out->arena, miss->need_bytes),
              zp_show_bytes(out->arena, miss->have_bytes), zp_show_bytes(out->arena, a->short_bytes));
  zp_buf_puts(out, " ");
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (classes[i].bytes) zp_buf_printf(out, "  %s %s", classes[i].name, zp_show_bytes(out->arena, classes[i].bytes));
  zp_buf_puts(out, "\n");
}

/* Faster than the best can only be what the plan block and its defaults leave out. */
static void put_comparison(zp_page *page, const char *wish, const zp_why_not *a) {
  const zp_candidate *best = &a->best->best, *asked = &a->asked->best;
  zp_arena *arena = page->out.arena;
  double change = asked->estimate.step_s / best->estimate.step_s - 1;
  if (zp_same_decisions(&best->choice, &asked->choice) && fabs(change) <= 1e-9) {
    zp_page_lines(page, "asked: the best plan satisfies it\n");
    return;
  }
  const char *than = fabs(change) <= 1e-9  ? "the same step time"
                     : fabs(change) < 5e-4 ? "the same step time but for less than 0.05%"
                                           : zp_format(arena, ZP_ESTIMATED "%+.1f%% step time", 100 * change);
  zp_page_lines(page, zp_format(arena, "asked: %s: %s\n", zp_show_choice_cell(arena, &asked->choice), than));
  put_terms(page, a);
  if (change < -1e-9)
    zp_page_lines(
        page,
        zp_format(arena, "note: the limits in force leave this out of the search; --set '%s' puts it in\n", wish));
}

static void put_refusals(zp_buf *out, const zp_why_not *a) {
  for (int i = 0; i < a->refusals.len; i++) zp_buf_line(out, "  %s", a->refusals.data[i]);
  if (a->refusals.len == 0 && a->asked->why_not) zp_buf_line(out, "  %s", a->asked->why_not);
}

void zp_show_why_not(zp_page *page, const char *wish, const zp_why_not *a) {
  zp_arena *arena = page->out.arena;
  zp_buf out = zp_buf_new(arena);
  zp_page_lines(page, zp_format(arena, "best:  %s\n", zp_show_choice_cell(arena, &a->best->best.choice)));
  if (a->asked->feasible) {
    put_comparison(page, wish, a);
    put_legend(page, zp_format(arena, "%s %s", zp_show_choice(arena, &a->best->best.choice),
                               zp_show_choice(arena, &a->asked->best.choice)));
    return;
  }
  zp_buf_line(&out, "asked: nothing %s with %s", a->short_bytes ? "fits" : "is legal", wish);
  if (a->short_bytes)
    put_shortage(&out, a);
  else
    put_refusals(&out, a);
  for (int i = 0; i < a->nearest.len; i++)
    zp_buf_line(&out, "  help: %s", zp_report_relaxation(arena, &a->nearest.data[i]));
  zp_page_lines(page, out.data);
}

/* ---- sensitivity ---- */

static const char *factor_words(zp_arena *arena, double factor) {
  return zp_format(arena, "%+.0f%%", 100 * (factor - 1));
}

static const char *interval_words(zp_arena *arena, const zp_sensitivity *s) {
  bool open_low = s->low <= zp_reaction_factors[0], open_high = s->high >= zp_reaction_factors[ZP_REACTIONS - 1];
  const char *low = factor_words(arena, s->low), *high = factor_words(arena, s->high);
  if (open_low && open_high) return "everywhere";
  if (open_low) return zp_format(arena, "up to %s", high);
  if (open_high) return zp_format(arena, "from %s on", low);
  return zp_format(arena, "%s to %s", low, high);
}

static const char *rate_words(zp_arena *arena, const zp_sensitivity *s) {
  if (strcmp(s->unit, "B") == 0) return zp_show_bytes(arena, (int64_t)s->value);
  return zp_format(arena, "%s%s", zp_show_count(arena, s->value), s->unit);
}

static const char *reaction_words(zp_arena *arena, const zp_plan *plan, const zp_reaction *r) {
  if (r->stopped) return "not known";
  if (!r->feasible) return "no fit";
  double change = 100 * (r->best.estimate.step_s / plan->best.estimate.step_s - 1);
  return zp_format(arena, ZP_ESTIMATED "%+.1f%%%s", fabs(change) < 0.05 ? 0 : change, r->same_plan ? "" : "*");
}

/* Changes: today's rate is 0 %. The ends matter more than the steps between. */
void zp_show_sensitivity(zp_page *page, const zp_plan *plan, const zp_sensitivities *all) {
  zp_arena *arena = page->out.arena;
  zp_column columns[ZP_REACTIONS + 3] = {{"rate", 10, 10, 0}, {"now", 10, 0, 4}};
  zp_buf notes = zp_buf_new(arena);
  int stopped = 0;
  for (int i = 0; i < ZP_REACTIONS; i++)
    columns[2 + i] =
        (zp_column){factor_words(arena, zp_reaction_factors[i]), 7, 0, i == 0 || i == ZP_REACTIONS - 1 ? 0 : 3};
  columns[ZP_REACTIONS + 2] = (zp_column){"stays best", 10, 10, 0};
  zp_table table = {.columns = columns, .n = ZP_REACTIONS + 3};
  zp_page_lines(page, "sensitivity of the step time, planned again at every point (*: another plan is best there; "
                      "stays best: where this plan does)\n");
  for (int k = 0; k < all->len; k++) {
    const zp_sensitivity *s = &all->data[k];
    const char *cells[ZP_REACTIONS + 3] = {s->knob, rate_words(arena, s)};
    for (int i = 0; i < ZP_REACTIONS; i++) {
      const zp_reaction *r = &s->reaction[i];
      cells[2 + i] = reaction_words(arena, plan, r);
      stopped += r->stopped;
      if (r->feasible && !r->same_plan)
        zp_buf_line(&notes, "  * %s %s: %s", s->knob, factor_words(arena, r->factor),
                    zp_show_choice(arena, &r->best.choice));
    }
    cells[ZP_REACTIONS + 2] = interval_words(arena, s);
    zp_table_add(arena, &table, cells);
  }
  zp_page_table(page, &table);
  if (stopped > 0) zp_buf_line(&notes, "  not known: the search reached its memory budget (--search-memory)");
  zp_page_lines(page, notes.data);
  zp_page_text(page, ZP_DIM, 2, ZP_ESTIMATED_LEGEND);
}

/* ---- Pareto front ---- */

static const zp_column pareto_columns[] = {{"step", 9, 0, 0},           {"peak", 9, 0, 0},
                                           {"devices", 7, 0, 0},        {plan_title, 24, FOLDED_PLAN, 0},
                                           {"device-h/step", 13, 0, 1}, {"$/step", 9, 0, 0}};

void zp_show_pareto(zp_page *page, const zp_spec *spec, const zp_pareto *front) {
  zp_arena *arena = page->out.arena;
  bool priced = zp_cluster_price(&spec->cluster, spec->cluster.ranks) > 0;
  zp_table table = {.columns = pareto_columns, .n = priced ? 6 : 5};
  zp_page_lines(page, "plans that no other beats in all of step time, peak memory, devices and device hours; peaks 5% "
                      "apart\n");
  for (int i = 0; i < front->points.len; i++) {
    const zp_pareto_point *p = &front->points.data[i];
    const char *cells[] = {about(arena, zp_show_seconds(arena, p->candidate.estimate.step_s)),
                           about(arena, zp_show_bytes(arena, p->candidate.estimate.peak_bytes)),
                           zp_format(arena, "%d", p->devices),
                           show_plan(arena, &p->candidate.choice, p->devices),
                           about(arena, zp_format(arena, "%.3g", p->step_device_hours)),
                           about(arena, zp_format(arena, "%.3g", p->step_dollars))};
    zp_table_add(arena, &table, cells);
  }
  zp_page_table(page, &table);
  put_legend(page, column_text(arena, &table, 3));
}
