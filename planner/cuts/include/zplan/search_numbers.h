/* SPDX-License-Identifier: Apache-2.0 */
/* Every tolerance and every limit of effort of the search and of its cuts: name, value, unit, reason. Limits of room in
 * memory tables that only save work (slots of caches) stand where the tables are. ZP_GAP_TOLERANCE of plan.h, which
 * plan files state, is twice ZP_BOUND_SLACK: a bound and a best plan may each be off by that much. */
#ifndef ZPLAN_SEARCH_NUMBERS_H
#define ZPLAN_SEARCH_NUMBERS_H

/* Shares. */
#define ZP_SEARCH_SHARES(X)                                                                                            \
  X(ZP_BOUND_SLACK, 1e-9, "of a time", "bounds are that much lower: sums of up to a million rounded terms")            \
  X(ZP_PATH_SLACK, 1e-10, "of a time", "of a chain over the places of a cut: some thousand terms")                     \
  X(ZP_LABEL_SLACK, 1e-11, "of a time", "of a label: some hundred terms")                                              \
  X(ZP_ROUNDING, 1e-12, "of a value", "a few operations; the same number computed in two ways")                        \
  X(ZP_FILL_SLACK, 2e-9, "of a time", "cuts for a longest stage that was found to within ZP_BOUND_SLACK")              \
  X(ZP_EXACT_STEP, 1e-9, "of a value", "bisections end: results of this are compared as if they were exact")           \
  X(ZP_UPDATE_STEP, 1e-7, "of a time", "bisection ends: an update is a small part of a step")                          \
  X(ZP_CLOSE_STEP, 1e-6, "of a value", "bisections end: a bound, or the bytes of the nearest miss")                    \
  X(ZP_COARSE_STEP, 1e-3, "of a time", "bisection ends: a first look that later ones sharpen")                         \
  X(ZP_NEAR, 1e-3, "of a time", "gaps below this are closed by one search of labels")                                  \
  X(ZP_VERY_NEAR, 1e-4, "of a time", "the same where labels say most: lower targets cost less than wide rounds")       \
  X(ZP_GAME_STEP, 1e-10, "of a cut's time", "a simplex step that gains less is none")                                  \
  X(ZP_GAME_PIVOT, 1e-9, "of a cut's time", "smaller pivots would amplify rounding")                                   \
  X(ZP_GAME_SHARE, 1e-6, "of a mean", "chains that count less in it are not taken into the tree")                      \
  X(ZP_GAME_ROOM, 1.01, "of a time", "all units on one place weigh so much: shares that no cut allows are not tried")  \
  X(ZP_LITTLE, 0.01, "of the way to the target",                                                                       \
    "means that raise the bound by less, one after the other, are enough")                                             \
  X(ZP_TOWARDS_CUTS, 0.3, "of a step", "shares move so far to the best ones for the cuts seen (Wentges 1997)")         \
  X(ZP_TOWARDS_CHUNKS, 0.5, "of a step", "the same before cuts are known: fewer rounds")                               \
  X(ZP_SLOWER_STAGE, 1.1, "of the longest stage", "a stage is made so long to see what a cut waits for then")          \
  X(ZP_FIRST_TARGET, 0.5, "of the way to the best plan", "labels try it first: either outcome brings the two closer")  \
  X(ZP_FOUND_TARGET, 0.1, "of the way to the best plan", "labels, after a plan was found: their bounds say more")      \
  X(ZP_NEAR_TARGET, 0.25, "of the way to the best plan", "chains, after a search: little is left to search")           \
  X(ZP_FOR_EARLY, 0.4, "of the search's memory", "degrees are measured before a plan is known: the most can wait")     \
  X(ZP_FOR_PROCEDURES, 0.6, "of the search's memory", "degrees are measured: all that is below needs the rest")        \
  X(ZP_FOR_POINTS, 0.75, "of the search's memory", "degrees are looked into, families opened")                         \
  X(ZP_FOR_MORE, 0.85, "of the search's memory", "what is begun of that goes on, so that it was not in vain")          \
  X(ZP_FOR_CUTS, 0.95, "of the search's memory", "branch and bound, simulations: what is left is for the best plan")   \
  X(ZP_LOGITS_SHARE, 1.0 / 16, "of a rank's memory", "logits that take less are not worth making in chunks")           \
  X(ZP_UNBALANCED, 1.01, "of the mean", "longest stages above this make cuts inside layers worth looking at")          \
  X(ZP_ALTERNATIVES_RANGE, 1.25, "of the best time", "slower alternatives are not looked for unless a number is asked")

/* Counts. */
#define ZP_SEARCH_COUNTS(X)                                                                                            \
  X(ZP_MOST_WORK, 200000000, "simulated actions", "branch and bound over cuts: one to five seconds")                   \
  X(ZP_MOST_CHUNK_WORK, 6000000, "simulated actions", "many cuts of several chunks: improved, but seldom settled")     \
  X(ZP_MOST_LABEL_WORK, 100000000, "simulated actions", "1F1B that the bound hangs on: labels say little more")        \
  X(ZP_MOST_LEAST_WORK, 1200000000, "simulated actions", "other points that the bound hangs on: some seconds")         \
  X(ZP_MOST_SEARCH_WORK, 128000000, "units of work", "of a search but for branch and bound: about a minute")           \
  X(ZP_MOST_MISS_WORK, 2000000, "units of work", "then the nearest miss so far is reported: about a second")           \
  X(ZP_ROBUST_PART, 20, "1 / work of the search", "then of each space that a less exposed plan is looked for in")      \
  X(ZP_LEAST_ROBUST_WORK, 100000, "units of work", "some milliseconds for that, however little the search did")        \
  X(ZP_EXPOSED_RANKS, 64, "ranks", "that share a state: with fewer a plan is not called exposed")                      \
  X(ZP_POLISH_PART, 4, "1 / work of the search", "then of the best plan's decisions alone, where a gap is left")       \
  X(ZP_LEAST_POLISH_WORK, 240000, "units of work", "for that, however little the search did")                          \
  X(ZP_VARIANT_WORK, 300, "units of work", "making procedures takes as long as laying out so many stages")             \
  X(ZP_ACTIONS_A_UNIT, 25, "simulated actions", "take as long as a unit of work: laying out a stage")                  \
  X(ZP_LOSS_ROWS_CPU, 256, "tokens", "of a chunk of the loss: products with more rows are as fast")                    \
  X(ZP_LOSS_ROWS_GPU, 1024, "tokens", "of a chunk of the loss: the weight's gradient is read and written for each")    \
  X(ZP_DEFAULT_TOP, 3, "plans", "alternatives on the first screen")                                                    \
  X(ZP_MOST_BEHIND, 128, "points", "that cannot be the best plan: the first ones make the best alternatives")          \
  X(ZP_LABELS_DEEP_PART, 2, "1 / work left", "labels, deep: chains come after them")                                   \
  X(ZP_LABELS_PART, 64, "1 / work left", "labels at first, where they say little")                                     \
  X(ZP_CHAINS_DEEP_PART, 4, "1 / work left", "chains, deep: other points are left open, too")                          \
  X(ZP_CHAINS_PART, 16, "1 / work left", "chains at first: other points want their share")                             \
  X(ZP_LABEL_NUMBERS, 8, "numbers an action", "looking at a number of a label takes that part of an action")           \
  X(ZP_CHAIN_ENDS, 4, "ends of chunks an action", "a chain or a sum over that many takes as long as an action")        \
  X(ZP_GAME_ENTRIES, 8, "entries an action", "filling in a row or a column of the matrix game")                        \
  X(ZP_GAME_SOLVED, 16, "entries an action", "solving the game: dense rows, one after the other")                      \
  X(ZP_IMPROVE_PART, 4, "1 / work left", "moving single units before the tree, and a row for every stage")             \
  X(ZP_CLIMB_CUTS, 64, "cuts", "moving single units of 1F1B is not begun with work for fewer simulations")             \
  X(ZP_STAGE_WORK, 512, "simulated actions", "laying out and pricing a stage takes so long")                           \
  X(ZP_CHUNKS_WORK, 1024, "simulated actions", "the same of several chunks")                                           \
  X(ZP_CHUNKS_MISSED, 64, "simulated actions", "laying one out that does not fit")                                     \
  X(ZP_CHUNKS_KNOWN, 16, "simulated actions", "finding what was laid out and priced before")                           \
  X(ZP_LABELS_SAY_MOST, 8, "micro-batches a stage", "from there on labels leave little to the tree")                   \
  X(ZP_WIDER, 4, "factor", "labels a node in the next round, and gaps that are near in the next search")               \
  X(ZP_MOST_SUFFIXES, 16, "labels a node", "each is held against every prefix")                                        \
  X(ZP_MOST_SINCE, 12, "means", "in a row that raise the bound by little end the root")                                \
  X(ZP_MOST_ROUNDS, 24, "chains", "before cuts are known: later ones add next to nothing")                             \
  X(ZP_MOST_CHAINS, 128, "chains", "of a tree: every node asks all of them")                                           \
  X(ZP_MOST_SEEN, 256, "cuts", "columns of a game, whose work grows with their square")                                \
  X(ZP_MOST_ACTIONS, 1 << 21, "actions", "orders that branch and bound by chains simulates")                           \
  X(ZP_MOST_LABELS, 1 << 24, "numbers", "of labels, one a node: larger graphs of stages are left to their bounds")     \
  X(ZP_MOST_EDGES, 1 << 20, "edges", "cuts of a problem as a graph: larger ones are left to their bounds")             \
  X(ZP_MOST_CUTS, 4096, "cuts", "of a point that are all considered one by one")                                       \
  X(ZP_MOST_CHUNK_CUTS, 32768, "cuts", "into several chunks a stage that are few: settled, wherever state is")         \
  X(ZP_MOST_FREE_CHUNKS, 64, "chunks", "of all stages, where every cut of them is looked for")                         \
  X(ZP_MOST_FREE_ACTIONS, 2048, "actions",                                                                             \
    "of orders, where every cut is looked for among more than ZP_MOST_CHUNK_CUTS")                                     \
  X(ZP_MOST_FREE_RANGES, 1 << 17, "ranges of units", "over all chunks: as above")                                      \
  X(ZP_MOST_FREE_STEPS, 10000, "ends of chunks", "tried to find any cut of several chunks a stage that fits")          \
  X(ZP_MOST_FREE_MICROBATCH, 64, "sequences", "without a constraint on the micro-batch")                               \
  X(ZP_CHUNKED_MISSES, 32, "points", "of several chunks a stage that are asked for the nearest miss")

#define ZP_SEARCH_SHARE(name, value, unit, reason) static const double name = value;
ZP_SEARCH_SHARES(ZP_SEARCH_SHARE)
#undef ZP_SEARCH_SHARE
enum {
#define ZP_SEARCH_COUNT(name, value, unit, reason) name = value,
  ZP_SEARCH_COUNTS(ZP_SEARCH_COUNT)
#undef ZP_SEARCH_COUNT
};

#endif
