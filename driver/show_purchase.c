/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine and how many devices: as text and as JSON. */
#include "purchase.h"

#include <math.h>
#include <zplan/buf.h>
#include <zplan/table.h>

enum { SHOWN_OFFERS = 8 };

const char *zp_show_dollars(zp_arena *arena, double dollars) {
  if (dollars >= 1000) return zp_format(arena, "$%s", zp_show_count(arena, dollars));
  return zp_format(arena, dollars >= 1 ? "$%.2f" : "$%.3g", dollars);
}

static const char *about(zp_arena *arena, const char *figure) { return zp_format(arena, ZP_ESTIMATED "%s", figure); }

static const char *offer_name(zp_arena *arena, const zp_purchase *p, const zp_seller *sellers, int i) {
  const zp_offer *o = &p->offers.data[i];
  return zp_format(arena, "%s with" ZP_GLUE "%d" ZP_GLUE "device%s", sellers[o->machine].shown, o->size.devices,
                   o->size.devices == 1 ? "" : "s");
}

static bool has_length(const zp_purchase *p, int i) { return p->offers.data[i].run_s > 0; }

/* "~$0.028 a step, ~$13.5 k in all, ~14.1 days"; without a price or a length what is known. */
static const char *figures(zp_arena *arena, const zp_purchase *p, int i) {
  const zp_offer *o = &p->offers.data[i];
  zp_buf out = zp_buf_new(arena);
  if (o->hour_dollars > 0) zp_buf_printf(&out, ZP_ESTIMATED "%s a step, ", zp_show_dollars(arena, o->step_dollars));
  if (o->hour_dollars > 0 && has_length(p, i))
    zp_buf_printf(&out, ZP_ESTIMATED "%s for the whole training, ", zp_show_dollars(arena, o->size.run_dollars));
  zp_buf_printf(&out, ZP_ESTIMATED "%s a step", zp_show_seconds(arena, o->size.best.estimate.step_s));
  if (has_length(p, i)) zp_buf_printf(&out, ", " ZP_ESTIMATED "%s in all", zp_show_seconds(arena, o->run_s));
  return out.data;
}

/* ---- the table ---- */

static const zp_column columns[] = {
    {"machine", 12, 10, 0}, {"devices", 7, 0, 0}, {"tensor x pipeline x data", 44, 20, 1},
    {"step", 9, 0, 0},      {"run", 10, 0, 0},    {"$ a step", 9, 0, 2},
    {"$ in all", 9, 0, 0},  {"terms", 14, 14, 0}};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

static const char *terms_cell(const zp_purchase *p, const zp_offer *o, int i) {
  if (!o->in_time && !o->in_budget) return "late, too dear";
  if (!o->in_time) return "late";
  if (!o->in_budget) return "too dear";
  return i == p->best ? "best" : i == p->next ? "next best" : "";
}

static void put_table(zp_page *page, const zp_purchase *p, const zp_seller *sellers, const int *order, int n) {
  zp_arena *arena = page->out.arena;
  zp_table table = {.columns = columns, .n = N_COLUMNS};
  for (int k = 0; k < n && k < SHOWN_OFFERS; k++) {
    const zp_offer *o = &p->offers.data[order[k]];
    const char *cells[N_COLUMNS] = {sellers[o->machine].shown, zp_format(arena, "%d", o->size.devices)};
    cells[2] = zp_show_choice_cell(arena, &o->size.best.choice);
    cells[3] = about(arena, zp_show_seconds(arena, o->size.best.estimate.step_s));
    cells[4] = has_length(p, order[k]) ? about(arena, zp_show_seconds(arena, o->run_s)) : "-";
    cells[5] = o->hour_dollars > 0 ? about(arena, zp_show_dollars(arena, o->step_dollars)) : "-";
    cells[6] = o->size.run_dollars > 0 ? about(arena, zp_show_dollars(arena, o->size.run_dollars)) : "-";
    cells[7] = terms_cell(p, o, order[k]);
    zp_table_add(arena, &table, cells);
  }
  zp_page_table(page, &table);
  if (n > SHOWN_OFFERS)
    zp_page_text(page, ZP_DIM, 2, zp_format(arena, "and %d more that fit: --json lists all", n - SHOWN_OFFERS));
  zp_page_text(page, ZP_DIM, 2, ZP_ESTIMATED_LEGEND);
}

/* Choices that fit: those that meet the terms first, each part by the objective. */
static int rank_offers(zp_arena *arena, const zp_purchase *p, int **order) {
  int n = 0, *list = ZP_NEW_ARRAY(arena, int, p->offers.len + 1);
  for (int i = 0; i < p->offers.len; i++) {
    if (!p->offers.data[i].size.feasible) continue;
    int at = n++;
    for (; at > 0 && zp_offer_before(p, i, list[at - 1]); at--) list[at] = list[at - 1];
    list[at] = i;
  }
  *order = list;
  return n;
}

/* ---- an answer ---- */

static const char *objective_words(const zp_purchase *p) {
  return p->terms.objective == ZP_MINIMIZE_COST ? "the cheapest" : "the fastest";
}

/* "in 30 days and for $250 k": the terms. NULL: none. */
static const char *terms_words(zp_arena *arena, const zp_terms *t) {
  zp_buf out = zp_buf_new(arena);
  if (t->deadline_s > 0) zp_buf_printf(&out, "in %s", zp_show_seconds(arena, t->deadline_s));
  if (t->budget > 0)
    zp_buf_printf(&out, "%sfor %s", t->deadline_s > 0 ? " and " : "", zp_show_dollars(arena, t->budget));
  return out.len ? out.data : NULL;
}

/* Why one is better than another: prices of an hour, device hours of a step, time. */
static const char *reason(zp_arena *arena, const zp_purchase *p, const zp_seller *sellers) {
  const zp_offer *a = &p->offers.data[p->best], *b = &p->offers.data[p->next];
  double hours = a->step_device_hours / b->step_device_hours;
  double time = a->size.best.estimate.step_s / b->size.best.estimate.step_s;
  const char *other = offer_name(arena, p, sellers, p->next);
  if (p->terms.objective == ZP_MINIMIZE_STEP_TIME)
    return zp_format(arena, "a step takes " ZP_ESTIMATED "%.3g times as long as on %s", time, other);
  double price = a->hour_dollars / b->hour_dollars;
  const char *at = fabs(price - 1) < 1e-9 ? "the same price" : zp_format(arena, "%.3g times the price", price);
  return zp_format(arena,
                   "a step takes " ZP_ESTIMATED
                   "%.3g times the device hours that %s needs, at %s of an hour: " ZP_ESTIMATED "%.3g times the cost",
                   hours, other, at, hours * price);
}

static void put_price(zp_page *page, const zp_offer *o, const zp_seller *seller) {
  zp_arena *arena = page->out.arena;
  if (o->hour_dollars <= 0) return;
  const char *energy = "";
  if (o->energy_dollars > 0)
    energy = zp_format(arena, ", %s of it energy at $%.3g a kilowatt-hour", zp_show_dollars(arena, o->energy_dollars),
                       seller->spec->cluster.energy_price);
  zp_page_field(page, "price", "%s a device hour%s; idle devices are paid for", zp_show_dollars(arena, o->hour_dollars),
                energy);
}

static void put_next(zp_page *page, const zp_purchase *p, const zp_seller *sellers) {
  zp_arena *arena = page->out.arena;
  if (p->next < 0) {
    zp_page_field(page, "next best", "no other choice %s", terms_words(arena, &p->terms) ? "meets the terms" : "fits");
    return;
  }
  const zp_offer *a = &p->offers.data[p->best], *b = &p->offers.data[p->next];
  bool cost = p->terms.objective == ZP_MINIMIZE_COST;
  double more = cost ? b->step_dollars / a->step_dollars : b->size.best.estimate.step_s / a->size.best.estimate.step_s;
  zp_page_field(page, "why", "%s", reason(arena, p, sellers));
  zp_page_field(page, "next best", "%s, " ZP_ESTIMATED "%.1f%% %s: %s", offer_name(arena, p, sellers, p->next),
                100 * (more - 1), cost ? "dearer" : "slower", figures(arena, p, p->next));
}

void zp_show_purchase(zp_page *page, const zp_purchase *p, const zp_seller *sellers) {
  zp_arena *arena = page->out.arena;
  const zp_offer *best = &p->offers.data[p->best];
  int *order, n = rank_offers(arena, p, &order);
  const char *terms = terms_words(arena, &p->terms);
  zp_page_text(page, ZP_STRONG, 2,
               zp_format(arena, "%s: %s is %s of %d choice%s%s%s", sellers[best->machine].spec->model->name,
                         offer_name(arena, p, sellers, p->best), objective_words(p), p->offers.len,
                         p->offers.len == 1 ? "" : "s", terms ? " that train " : "", terms ? terms : ""));
  zp_page_blank(page);
  zp_page_field(page, "cost", "%s", figures(arena, p, p->best));
  put_price(page, best, &sellers[best->machine]);
  if (p->terms.deadline_s > 0)
    zp_page_field(page, "deadline", ZP_ESTIMATED "%s before it",
                  zp_show_seconds(arena, p->terms.deadline_s - best->run_s));
  if (p->terms.budget > 0)
    zp_page_field(page, "budget", ZP_ESTIMATED "%s of it left",
                  zp_show_dollars(arena, p->terms.budget - best->size.run_dollars));
  put_next(page, p, sellers);
  if (p->stopped)
    zp_page_field(page, "not known", "%d of the choices: their searches reached the memory budget (--search-memory)",
                  p->stopped);
  zp_page_blank(page);
  put_table(page, p, sellers, order, n);
}

/* ---- no answer ---- */

/* "11.2 days too late and $12 k too dear" */
static const char *lack(zp_arena *arena, const zp_purchase *p, const zp_offer *o) {
  zp_buf out = zp_buf_new(arena);
  if (!o->in_time)
    zp_buf_printf(&out, ZP_ESTIMATED "%s too late", zp_show_seconds(arena, o->run_s - p->terms.deadline_s));
  if (!o->in_budget)
    zp_buf_printf(&out, "%s" ZP_ESTIMATED "%s too dear", out.len ? " and " : "",
                  zp_show_dollars(arena, o->size.run_dollars - p->terms.budget));
  return out.data;
}

void zp_show_no_purchase(zp_page *page, const zp_purchase *p, const zp_seller *sellers) {
  zp_arena *arena = page->out.arena;
  const char *model = sellers[0].spec->model->name;
  if (p->nearest < 0) {
    zp_page_text(page, ZP_STRONG, 2,
                 zp_format(arena, "error[Z0603]: %s fits on none of the %d choices of machine and number of devices",
                           model, p->offers.len));
    return;
  }
  const zp_offer *o = &p->offers.data[p->nearest];
  int *order, n = rank_offers(arena, p, &order);
  zp_page_text(page, ZP_STRONG, 2,
               p->offers.len == 1
                   ? zp_format(arena, "error[Z0605]: %s does not train %s %s",
                               offer_name(arena, p, sellers, p->nearest), model, terms_words(arena, &p->terms))
                   : zp_format(arena, "error[Z0605]: none of %d choices trains %s %s", p->offers.len, model,
                               terms_words(arena, &p->terms)));
  zp_page_field(page, "nearest", "%s is %s: %s", offer_name(arena, p, sellers, p->nearest), lack(arena, p, o),
                figures(arena, p, p->nearest));
  bool both = p->terms.deadline_s > 0 && p->terms.budget > 0;
  if (both && p->in_time >= 0)
    zp_page_field(page, "deadline", "the cheapest that meets it: %s, %s", offer_name(arena, p, sellers, p->in_time),
                  figures(arena, p, p->in_time));
  if (both && p->in_budget >= 0)
    zp_page_field(page, "budget", "the fastest that meets it: %s, %s", offer_name(arena, p, sellers, p->in_budget),
                  figures(arena, p, p->in_budget));
  if (both && p->in_time >= 0 && p->in_budget >= 0)
    zp_page_text(page, ZP_PLAIN, 2, "each of the two can be met, but not both by one choice");
  zp_page_blank(page);
  put_table(page, p, sellers, order, n);
}

/* ---- JSON ---- */

/* An index of `choices`; null: none. */
static void set_index(zp_json *j, const char *key, int index) {
  if (index < 0)
    zp_json_set_string(j, key, NULL);
  else
    zp_json_set_int(j, key, index);
}

static zp_json *offer_json(const zp_purchase *p, const zp_offer *o, const zp_seller *seller) {
  zp_json *j = zp_json_object();
  zp_json_set_string(j, "machine", seller->shown);
  zp_json_set_int(j, "devices", o->size.devices);
  zp_json_set_bool(j, "feasible", o->size.feasible);
  if (o->hour_dollars > 0) zp_json_set_real(j, "device_hour_dollars", o->hour_dollars);
  if (o->energy_dollars > 0) zp_json_set_real(j, "energy_dollars", o->energy_dollars);
  if (!o->size.feasible) {
    zp_json_set_bool(j, "known", !o->size.stopped);
    return j;
  }
  zp_json_set_real(j, "step_s", o->size.best.estimate.step_s);
  zp_json_set_real(j, "step_device_hours", o->step_device_hours);
  if (o->hour_dollars > 0) zp_json_set_real(j, "step_dollars", o->step_dollars);
  if (o->run_s > 0) zp_json_set_real(j, "run_s", o->run_s);
  if (o->size.run_dollars > 0) zp_json_set_real(j, "run_dollars", o->size.run_dollars);
  zp_json_set_bool(j, "in_time", o->in_time);
  zp_json_set_bool(j, "in_budget", o->in_budget);
  if (!o->in_time) zp_json_set_real(j, "late_s", o->run_s - p->terms.deadline_s);
  if (!o->in_budget) zp_json_set_real(j, "over_dollars", o->size.run_dollars - p->terms.budget);
  zp_json_set(j, "plan", zp_choice_json(&o->size.best.choice));
  return j;
}

zp_json *zp_purchase_json(const zp_purchase *p, const zp_seller *sellers) {
  zp_json *j = zp_json_object();
  zp_json_set_string(j, "objective", p->terms.objective == ZP_MINIMIZE_COST ? "cost" : "step_time");
  if (p->terms.deadline_s > 0) zp_json_set_real(j, "deadline_s", p->terms.deadline_s);
  if (p->terms.budget > 0) zp_json_set_real(j, "budget_dollars", p->terms.budget);
  zp_json *list = zp_json_set(j, "choices", zp_json_array());
  for (int i = 0; i < p->offers.len; i++) {
    const zp_offer *o = &p->offers.data[i];
    zp_json_append(list, offer_json(p, o, &sellers[o->machine]));
  }
  set_index(j, "best", p->best);
  set_index(j, "next_best", p->next);
  set_index(j, "nearest", p->nearest);
  set_index(j, "cheapest_in_time", p->in_time);
  set_index(j, "fastest_in_budget", p->in_budget);
  return j;
}
