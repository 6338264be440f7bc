/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine, and how many devices: `plan` with several --machine or --cluster, or with `minimize(cost)`, `deadline`
 * or `budget` in its plan block. All inputs are read before anything is planned; the best choice is then
 * planned as if it alone had been named. */
#include "purchase.h"

#include <stdlib.h>

static bool same_name(zp_arena *arena, const char *a, const char *b) {
  return strcmp(zp_plain_name(arena, a), zp_plain_name(arena, b)) == 0;
}

/* ---- --price ---- */

/* "NAME=DOLLARS" or "DOLLARS": where the number begins. NULL after saying that it is none. */
static const char *number_of_price(const char *text) {
  const char *equals = strrchr(text, '='), *number = equals ? equals + 1 : text;
  char *end;
  double dollars = strtod(number, &end);
  if (end != number && !*end && dollars > 0 && dollars <= 1e6) return number;
  zp_usage_error("--price wants dollars of a device hour, above 0, such as 2.5 or dgx-h100=2.5, not `%s`", text);
  return NULL;
}

static bool is_price_of(zp_arena *arena, const char *price, const char *name) {
  const char *equals = strrchr(price, '=');
  return !equals || (name && same_name(arena, zp_strndup(arena, price, (size_t)(equals - price)), name));
}

bool zp_lay_price(zp_run_state *run, const char *name) {
  zp_options *o = &run->options;
  const char *number = NULL;
  for (int i = 0; i < o->prices.len; i++) {
    const char *price = o->prices.data[i];
    if (!is_price_of(run->arena, price, name)) continue;
    bool own = strchr(price, '=') != NULL;
    if (number && !own) continue; /* that of a name counts, whatever the order */
    if (!(number = number_of_price(price))) return false;
    if (own) break;
  }
  if (!number) return true;
  zp_strings own = o->set, price = {0};
  zp_push(run->arena, &price, zp_format(run->arena, "cluster.price=%s", number));
  zp_lay_settings_over(run, &own, &price);
  return true;
}

static bool is_price_of_any(zp_arena *arena, const char *price, const zp_strings *names) {
  for (int i = 0; i < names->len; i++)
    if (is_price_of(arena, price, names->data[i])) return true;
  return is_price_of(arena, price, NULL);
}

bool zp_check_prices(zp_run_state *run) {
  const zp_options *o = &run->options;
  for (int i = 0; i < o->prices.len; i++) {
    const char *price = o->prices.data[i];
    if (!number_of_price(price)) return false;
    if (!is_price_of_any(run->arena, price, &o->machines) && !is_price_of_any(run->arena, price, &o->clusters))
      return zp_usage_error("--price %s: no machine or cluster here has that name", price), false;
  }
  return true;
}

/* ---- which machines ---- */

/* Those of the command line; the file's own where it names none. 0 after saying what is wrong. */
static int list_sellers(zp_run_state *run, zp_seller *sellers) {
  const zp_options *o = &run->options;
  int n = 0;
  if (o->machines.len + o->clusters.len > ZP_MOST_SELLERS)
    return zp_usage_error("at most %d machines are compared, %d were given", ZP_MOST_SELLERS,
                          o->machines.len + o->clusters.len),
           0;
  for (int i = 0; i < o->machines.len; i++) sellers[n++] = (zp_seller){.name = o->machines.data[i], .is_machine = true};
  for (int i = 0; i < o->clusters.len; i++) sellers[n++] = (zp_seller){.name = o->clusters.data[i]};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      if (same_name(run->arena, sellers[i].name, sellers[k].name))
        return zp_usage_error("`%s` is listed twice", sellers[i].name), 0;
  if (n == 0) sellers[n++] = (zp_seller){0};
  return n;
}

/* The options as if this one alone had been named, with so many devices; 0: as many as the command line says. */
static bool choose(zp_run_state *run, const zp_options *own, const zp_seller *seller, int devices) {
  zp_options *o = &run->options;
  *o = *own;
  o->machines = o->clusters = (zp_strings){0};
  o->machine = seller->is_machine ? seller->name : NULL;
  o->load.cluster = seller->is_machine ? NULL : seller->name;
  if (devices) {
    o->load.gpus = devices;
    o->gpus_low = o->gpus_high = 0;
  }
  return zp_choose_machine(run);
}

/* Numbers of devices of one machine: that of --gpus, those of its range, or all up to the cluster as it is written. */
static bool count(zp_run_state *run, zp_seller *seller) {
  const zp_options *o = &run->options;
  const zp_spec *spec = seller->spec;
  int most = zp_most_devices(spec), low = o->gpus_high ? o->gpus_low : 1, high = o->gpus_high;
  if (o->load.gpus || o->load.nodes) {
    zp_push(run->arena, &seller->counts, zp_rank_count(run, spec, 0));
    return true;
  }
  if (!high) high = spec->cluster.ranks < most ? (int)spec->cluster.ranks : most;
  if (high > most) return zp_refuse_devices(run, spec, most), false;
  seller->counts = zp_sweep_counts(run->arena, spec, low, high);
  return true;
}

/* Reads all; false with *status after saying what is wrong. */
static bool load(zp_run_state *run, const zp_options *own, zp_seller *sellers, int n, int *status) {
  for (int i = 0; i < n; i++) {
    zp_json *json = NULL;
    *status = ZP_EXIT_USAGE;
    run->diags = zp_diags_new(run->arena);
    if (!choose(run, own, &sellers[i], 0)) return false;
    sellers[i].spec = zp_load_input(run, &json);
    *status = ZP_EXIT_ERROR;
    if (json) {
      zp_json_free(json);
      *status = zp_usage_error("%s is planned already: a machine is chosen for a .dz file", own->files.data[0]);
      return false;
    }
    if (!sellers[i].spec || !count(run, &sellers[i])) return false;
    sellers[i].shown = sellers[i].name ? sellers[i].name : sellers[i].spec->cluster.name;
  }
  return true;
}

/* ---- terms ---- */

bool zp_asks_terms(const zp_terms *terms) {
  return terms->objective != ZP_MINIMIZE_STEP_TIME || terms->deadline_s > 0 || terms->budget > 0;
}

bool zp_wants_purchase(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (o->machines.len + o->clusters.len > 1) return true;
  zp_terms terms;
  return zp_peek_terms(run, &terms) && zp_asks_terms(&terms);
}

void zp_note_terms(const zp_run_state *run, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  const zp_terms *terms = &spec->plans.data[spec->plan].terms;
  double seconds = (double)spec->train.steps * plan->best.estimate.step_s;
  double dollars = seconds / 3600 * plan->devices * zp_cluster_price(&spec->cluster, plan->devices);
  if (terms->deadline_s > 0 && seconds > terms->deadline_s)
    zp_say_line(stderr, "note: the training takes ~%s, the deadline is %s", zp_show_seconds(run->arena, seconds),
                zp_show_seconds(run->arena, terms->deadline_s));
  if (terms->budget > 0 && dollars > terms->budget)
    zp_say_line(stderr, "note: the training costs ~%s, the budget is %s", zp_show_dollars(run->arena, dollars),
                zp_show_dollars(run->arena, terms->budget));
}

/* ---- the verb ---- */

static int refuse(const zp_options *own) {
  if (own->gpus_auto)
    return zp_usage_error("--gpus auto finds the fewest devices that fit; to choose between machines or by cost, "
                          "deadline or budget give a range: --gpus 8..64");
  const char *with = own->dump ? "--dump-after" : own->sensitivity ? "--sensitivity" : NULL;
  if (with) return zp_usage_error("%s is about one machine and one number of devices: name them", with);
  return ZP_EXIT_OK;
}

static int print_none(zp_run_state *run, const zp_purchase *p, const zp_seller *sellers) {
  zp_page page = zp_page_for(run, stderr, 10);
  if (p->nearest < 0 && p->stopped)
    zp_page_lines(&page, "error[Z0604]: no plan was found, and not all choices could be settled (--search-memory)\n");
  else
    zp_show_no_purchase(&page, p, sellers);
  zp_page_put(&page, stderr);
  if (run->options.json) {
    zp_json *json = zp_json_object();
    zp_json_set_bool(json, "feasible", false);
    zp_json_set(json, "purchase", zp_purchase_json(p, sellers));
    zp_print_json(run->arena, json);
  }
  return p->nearest < 0 && p->stopped ? ZP_EXIT_ERROR : ZP_EXIT_INFEASIBLE;
}

int zp_plan_purchase(zp_run_state *run, zp_plan **plan, zp_json **json) {
  const zp_options own = run->options;
  zp_seller sellers[ZP_MOST_SELLERS];
  const zp_spec *specs[ZP_MOST_SELLERS];
  zp_ints counts[ZP_MOST_SELLERS];
  int status = refuse(&own), n = status == ZP_EXIT_OK ? list_sellers(run, sellers) : 0;
  *plan = NULL;
  if (n == 0) return ZP_EXIT_USAGE;
  if (!load(run, &own, sellers, n, &status)) return status;
  for (int i = 0; i < n; i++) specs[i] = sellers[i].spec, counts[i] = sellers[i].counts;
  zp_begin_work(run, "planning machines");
  zp_purchase p = zp_find_purchase(run->arena, specs, counts, n);
  zp_status_end();
  if (p.best < 0) return print_none(run, &p, sellers);
  zp_page page = zp_page_for(run, stdout, 10);
  zp_show_purchase(&page, &p, sellers);
  zp_page_blank(&page);
  if (!own.json) zp_page_put(&page, stdout);
  *json = zp_purchase_json(&p, sellers);
  const zp_offer *best = &p.offers.data[p.best];
  bool quiet = run->quiet;
  run->quiet = true; /* warnings were shown when it was read */
  run->diags = zp_diags_new(run->arena);
  if (choose(run, &own, &sellers[best->machine], best->size.devices)) *plan = zp_obtain_plan(run, 0);
  run->quiet = quiet;
  if (*plan) return ZP_EXIT_OK;
  zp_flush_diags(run);
  zp_json_free(*json);
  *json = NULL;
  return ZP_EXIT_ERROR;
}
