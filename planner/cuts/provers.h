/* SPDX-License-Identifier: Apache-2.0 */
/* Inside this folder: what is behind the rows of provers.c. */
#ifndef ZPLAN_CUT_PROVERS_H
#define ZPLAN_CUT_PROVERS_H

#include <zplan/cuts.h>

/* branch_labels.c: labels of first and last stages; 1F1B. */
zp_cut_proof zp_prove_by_labels(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                                zp_cut_depth turn);
/* chain_branch.c: a tree of fixed chunks, pruned by chains of actions; any schedule. */
zp_cut_proof zp_prove_by_chains(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                                zp_cut_depth turn);
/* chunk_chains.c: means of chains over all cuts of several chunks a stage, whatever fits. A bound alone. */
zp_cut_proof zp_prove_by_means(const zp_cut_problem *problem, const zp_cut_task *task, zp_cut_effort *effort,
                               zp_cut_depth turn);

/* Has the problem everything that cuts.h requires of it? O(places); every prover asserts it. */
bool zp_cut_problem_is_sound(const zp_cut_problem *problem);

#endif
