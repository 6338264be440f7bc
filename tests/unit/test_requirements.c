/* SPDX-License-Identifier: Apache-2.0 */
/* What headers require is asserted, in release builds too: calls that break it end the process. */
#include <criterion/criterion.h>
#include <signal.h>
#include <zplan/cpu_kernels.h>
#include <zplan/cuts.h>
#include <zplan/json.h>
#include <zplan/machine.h>
#include <zplan/plan.h>
#include <zplan/report.h>
#include <zplan/rowkernel.h>
#include <zplan/schedule.h>

#define REFUSED(name, call)                                                                                            \
  Test(requirements, name, .signal = SIGABRT) { call; }

static const zp_choice two_stages = {.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1};

static void rewind_to_a_mark_of_another(void) {
  zp_arena *one = zp_arena_new("one"), *other = zp_arena_new("other");
  zp_alloc(one, 16);
  zp_alloc(other, 16);
  zp_arena_rewind(one, zp_arena_get_mark(other));
}

static void rate_of_no_size(void) {
  double share = 0;
  zp_rate_table table = {.axes = 1, .sides = {1}, .log_share = &share};
  zp_rate_at(&table, &(double){0});
}

REFUSED(marks_of_other_arenas, rewind_to_a_mark_of_another())
REFUSED(values_set_in_arrays, zp_json_set_int(zp_json_array(), "key", 1))
REFUSED(groups_of_graphs_with_backward_nodes, zp_fuse(&(zp_graph){.grad_in.len = 1}))
REFUSED(modes_of_stages_that_are_not, zp_choice_mode(&two_stages, 2))
REFUSED(chunks_that_are_not, zp_chunk_stage(&two_stages, 2, NULL))
REFUSED(orders_of_no_micro_batches, zp_order_1f1b(2, 0, 0, &(zp_action){0}))
REFUSED(groups_of_no_ranks, zp_machine_data_group(&(zp_machine){0}, 1, 1, 0, ZP_ORDER_TDP))
REFUSED(expert_groups_that_do_not_divide, zp_machine_expert_group(&(zp_machine){0}, 1, 1, 8, 3, ZP_ORDER_TDP))
REFUSED(rates_of_no_size, rate_of_no_size())
REFUSED(cuts_of_no_problem, zp_cut_refusal(&(zp_cut_problem){0}, &(int64_t){0}, 1))
REFUSED(searches_of_no_devices, zp_search(NULL, &(zp_spec){.plans.len = 1}, 0, NULL))
REFUSED(summaries_of_no_plan, zp_report_summary(NULL, &(zp_plan){0}))
REFUSED(kernels_of_no_dtype, zp_kernels_new(NULL, (zpk_dtype)ZPK_DTYPES))

/* Everything that makes a choice whole, broken one by one. */
Test(requirements, whole_choices) {
  int64_t cut[] = {0, 2, 5}, empty_stage[] = {0, 0, 5}, late[] = {1, 2, 5};
  zp_choice whole = two_stages;
  whole.cut = cut;
  cr_expect(zp_choice_is_whole(&whole, 5));
  cr_expect_not(zp_choice_is_whole(&whole, 6), "other units");
  zp_choice broken[8];
  for (int i = 0; i < 8; i++) broken[i] = whole;
  broken[0].tensor = 0;
  broken[1].expert = 2; /* does not divide data */
  broken[2].microbatch = 0;
  broken[3].zero = 4;
  broken[4].home[ZP_STATE_GRADIENTS].eighths = 1; /* of the device */
  broken[5].cut = empty_stage;
  broken[6].cut = late;
  broken[7].cut = NULL;
  for (int i = 0; i < 8; i++) cr_expect_not(zp_choice_is_whole(&broken[i], 5), "%d", i);
}
