/* SPDX-License-Identifier: Apache-2.0 */
/* zplan FILE.dz: searches, prints the summary, writes the plan file. --gpus auto, --gpus LOW..HIGH, --sensitivity and
 * --pareto ask for a table instead. */
#include "purchase.h"
#include <zplan/hosted.h>
#include <zplan/software.h>

#include <stdio.h>

static const zp_graph *local_piece(const zp_lowered *l, int piece) {
  const zp_graph *whole = l->sharding->local[l->pieces->piece[piece].whole];
  return zp_piece_localize(whole, l->pieces, piece, l->sharding->sequence);
}

/* --dump-after=PASS: the intermediate forms, for people who work on the compiler. */
static void dump(zp_run_state *run, const zp_plan *plan) {
  const char *pass = run->options.dump;
  const zp_lowered *l = plan->program->lowered;
  if (strcmp(pass, "moves") == 0) {
    zp_say(stdout, "%s", zp_moves_text(run->arena, plan->program));
    return;
  }
  for (int s = 0; s < l->n_segments; s++) {
    const zp_segment *segment = l->segments[s].segment; /* or a piece of one, where a stage begins inside a layer */
    zp_say_lines(stdout, "segment %s x %lld\n", segment->name, (long long)segment->count);
    if (strcmp(pass, "graph") == 0)
      zp_say(stdout, "%s", zp_graph_text(run->arena, segment->graph));
    else if (strcmp(pass, "shard") == 0)
      zp_say(stdout, "%s",
             zp_graph_text(run->arena, s < l->pieces->n_whole ? l->sharding->local[s] : local_piece(l, s)));
    else if (strcmp(pass, "differentiate") == 0)
      zp_say(stdout, "%s", zp_graph_text(run->arena, l->segments[s].graph));
    else {
      zp_say(stdout, "%s", zp_procedure_text(run->arena, &l->segments[s].forward));
      zp_say(stdout, "%s", zp_procedure_text(run->arena, &l->segments[s].backward));
    }
  }
}

/* purchase: what chose the machine, taken; NULL: nothing did. */
static int write_plan(zp_run_state *run, const zp_plan *plan, const zp_relaxations *nearest, zp_json *purchase) {
  zp_json *json = zp_plan_to_json(run->arena, plan);
  zp_set_model_folder(run->arena, json, plan->spec, run->options.output ? run->options.output : "plan");
  if (nearest) {
    if (plan->miss.have_bytes > 0) zp_json_set(json, "miss", zp_miss_json(&plan->miss));
    zp_json_set(json, "nearest", zp_relaxations_json(nearest));
  }
  if (purchase) zp_json_set(json, "purchase", purchase);
  zp_poor_use poor; /* takes about as long as the search did, and is no decision of a file */
  const zp_options *o = &run->options;
  bool asked = o->json && o->verbose && !o->output && plan->feasible && !run->interrupted;
  if (asked && zp_find_poor_use(run->arena, plan, &poor)) zp_json_set(json, "poor_use", zp_poor_use_json(plan, &poor));
  return zp_write_plan(run, json);
}

/* ---- tables ---- */

static bool several_counts(const zp_options *o) { return o->gpus_auto || o->gpus_high; }

static int print_answer(zp_run_state *run, const zp_page *page, zp_json *json, bool feasible) {
  if (run->options.json) {
    zp_print_json(run->arena, json);
  } else {
    zp_json_free(json);
    zp_page_put(page, feasible ? stdout : stderr);
  }
  return feasible ? ZP_EXIT_OK : ZP_EXIT_INFEASIBLE;
}

/* Some size had no plan when the search ran out of memory: that nothing fits would be a guess. */
static int refuse_unknown(zp_run_state *run) {
  zp_diag *d = zp_report(run->diags, ZP_Z0604, ZP_NO_SPAN, "no plan was found, and not all sizes could be settled");
  zp_diag_help(d, "give the search more with --search-memory");
  zp_flush_diags(run);
  return ZP_EXIT_ERROR;
}

/* Row by row as they are found, so that an interrupted sweep leaves what it has. */
static int print_sweep(zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  zp_ints counts = zp_sweep_counts(run->arena, spec, o->gpus_low, o->gpus_high);
  zp_sizes sizes = {0};
  zp_table table = zp_sizes_table(spec);
  zp_page titles = zp_page_for(run, stdout, 0), last = zp_page_for(run, stdout, 0);
  zp_page_titles(&titles, &table);
  if (!o->json) zp_page_put(&titles, stdout);
  for (int i = 0; i < counts.len; i++) {
    zp_size size = zp_plan_size(run->arena, spec, counts.data[i]);
    zp_push(run->arena, &sizes, size);
    if (o->json) continue;
    zp_page row = zp_page_for(run, stdout, 0);
    zp_add_size(run->arena, &table, spec, &size, zp_first_fit(&sizes));
    zp_page_last_row(&row, &table);
    zp_page_put(&row, stdout);
    if (fflush(zp_stream(stdout)) != 0) return ZP_EXIT_ERROR;
  }
  zp_page_left_out(&last, &table);
  zp_show_sizes_legend(&last, &table);
  if (o->json)
    zp_print_json(run->arena, zp_sizes_json(&sizes));
  else
    zp_page_put(&last, stdout);
  if (zp_first_fit(&sizes)) return ZP_EXIT_OK;
  for (int i = 0; i < sizes.len; i++)
    if (sizes.data[i].stopped) return refuse_unknown(run);
  zp_say_lines(stderr, "error[Z0603]: %s fits on none of these numbers of devices\n", spec->model->name);
  return ZP_EXIT_INFEASIBLE;
}

static int print_sizes(zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  if (o->gpus_auto) {
    zp_begin_work(run, "planning sizes");
    zp_fewest fewest = zp_find_fewest(run->arena, spec);
    zp_status_end();
    if (!fewest.found && fewest.stopped) return refuse_unknown(run);
    zp_page page = zp_page_for(run, fewest.found ? stdout : stderr, 0);
    zp_show_fewest(&page, spec, &fewest);
    return print_answer(run, &page, zp_fewest_json(&fewest), fewest.found);
  }
  return print_sweep(run, spec);
}

static int print_pareto(zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  zp_ints counts = {0};
  if (o->gpus_high) {
    counts = zp_sweep_counts(run->arena, spec, o->gpus_low, o->gpus_high);
  } else if (o->gpus_auto) {
    zp_fewest fewest = zp_find_fewest(run->arena, spec);
    for (int i = 0; i < fewest.sizes.len && fewest.found; i++)
      zp_push(run->arena, &counts, fewest.sizes.data[i].devices);
  } else {
    zp_push(run->arena, &counts, zp_rank_count(run, spec, 0));
  }
  zp_begin_work(run, "planning the front");
  zp_pareto front = zp_find_pareto(run->arena, spec, counts.data, counts.len);
  zp_status_end();
  if (front.points.len == 0 && front.stopped) return refuse_unknown(run);
  if (front.stopped)
    zp_say_lines(stderr, "zplan: searches reached their memory budget (--search-memory): plans may be missing\n");
  if (front.points.len == 0 && counts.len == 1) { /* the usual answer: why, and what would fit */
    const zp_plan *plan = zp_search(run->arena, spec, counts.data[0], NULL);
    zp_print_no_plan(run, plan);
  }
  zp_page page = zp_page_for(run, front.points.len ? stdout : stderr, 0);
  if (front.points.len)
    zp_show_pareto(&page, spec, &front);
  else if (counts.len != 1)
    zp_page_lines(&page, "error[Z0603]: nothing fits on any of these numbers of devices\n");
  return print_answer(run, &page, zp_pareto_json(&front), front.points.len > 0);
}

/* The option that asks for a table; NULL: an ordinary plan is wanted. */
static const char *table_option(const zp_options *o) {
  return o->pareto ? "--pareto" : o->sensitivity ? "--sensitivity" : several_counts(o) ? "--gpus" : NULL;
}

static int refuse_combination(const zp_options *o) {
  const char *table = table_option(o), *with = o->output ? "-o" : o->dump ? "--dump-after" : NULL;
  if (table && with) return zp_usage_error("%s answers with a table: it does not go with %s", table, with);
  if (o->pareto && o->sensitivity) return zp_usage_error("--pareto and --sensitivity are two tables: ask for one");
  if (o->sensitivity && several_counts(o)) return zp_usage_error("--sensitivity is about one number of devices");
  if (several_counts(o) && o->load.nodes) return zp_usage_error("--nodes does not go with several numbers of devices");
  return ZP_EXIT_OK;
}

void zp_refuse_devices(zp_run_state *run, const zp_spec *spec, int most) {
  if (spec->cluster.groups.len > 0)
    zp_report(run->diags, ZP_Z0405, spec->cluster.span, "the nodes of `%s` have %d devices", spec->cluster.name, most);
  else
    zp_report(run->diags, ZP_Z0405, spec->cluster.span, "nodes of `%s` have no network cards: %d devices are the most",
              spec->cluster.node.name, most);
  zp_flush_diags(run);
}

static int plan_tables(zp_run_state *run) {
  zp_json *json;
  zp_spec *spec = zp_load_input(run, &json);
  if (!spec) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (json) {
    zp_json_free(json);
    return zp_usage_error("%s is about a .dz file, not a plan", table_option(&run->options));
  }
  int most = zp_most_devices(spec);
  if (run->options.gpus_high > most) {
    zp_refuse_devices(run, spec, most);
    return ZP_EXIT_ERROR;
  }
  if (!run->options.json && spec->cluster.software)
    zp_print_lines(run, stdout, zp_format(run->arena, "%s\n", zp_trainer_phrase(run->arena, &spec->cluster)));
  return run->options.pareto ? print_pareto(run, spec) : print_sizes(run, spec);
}

/* ---- one plan ---- */

static int print_sensitivity(zp_run_state *run, const zp_plan *plan) {
  zp_begin_work(run, "planning machines");
  zp_sensitivities all = zp_find_sensitivity(run->arena, plan);
  zp_status_end();
  zp_page page = zp_page_for(run, stdout, 0);
  zp_show_sensitivity(&page, plan, &all);
  return print_answer(run, &page, zp_sensitivity_json(plan, &all), true);
}

int zp_cmd_plan(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (refuse_combination(o) != ZP_EXIT_OK || !zp_check_prices(run)) return ZP_EXIT_USAGE;
  zp_json *purchase = NULL;
  zp_plan *plan = NULL;
  if (!o->pareto && zp_wants_purchase(run)) {
    int status = zp_plan_purchase(run, &plan, &purchase);
    if (status != ZP_EXIT_OK) return status;
  }
  if (!plan && (o->pareto || several_counts(o))) return plan_tables(run);
  if (!plan) plan = zp_obtain_plan(run, 0);
  if (!plan) return o->files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  zp_warn_ungenerated(run, plan->spec);
  if (o->dump && plan->feasible) {
    dump(run, plan);
    return zp_prove_plan(run, plan) ? ZP_EXIT_OK : ZP_EXIT_BUG;
  }
  if (!o->json && plan->feasible && !o->sensitivity) zp_show_plan(run, plan, true, NULL);
  zp_relaxations nearest = {0};
  if (!plan->feasible) nearest = zp_print_no_plan(run, plan);
  if (o->sensitivity) return plan->feasible ? print_sensitivity(run, plan) : ZP_EXIT_INFEASIBLE;
  int status = write_plan(run, plan, plan->feasible ? NULL : &nearest, purchase);
  return status == ZP_EXIT_OK && !plan->feasible ? ZP_EXIT_INFEASIBLE : status;
}
