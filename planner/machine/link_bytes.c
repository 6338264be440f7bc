/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of collectives by link class: inside a node and between nodes.
 *
 * A pass over an array of B bytes: a reduce-scatter, an all-gather, or an exchange in which every member has B / n for
 * each. Ring: every member sends (n - 1) / n of B to the next one, and one of those in a node has its next one in
 * another: so few cross, however many members a node has. Where everybody sends to everybody, each of c members in a
 * node sends n - c messages out of it, which is most for the fullest node, or for one with half of the group. In two
 * levels over N nodes with m members each a member sends the other m - 1 in its node N parts each, and one to the same
 * place of every other node: out of a node goes what of a ring does, within a member of it. */
#include <zplan/rates.h>

#include <assert.h>

zp_class_bytes zp_pass_bytes(const zp_group_link *link, zp_algorithm algorithm, double bytes) {
  assert(link->n >= 1 && link->nodes >= 1 && link->fullest >= 1 && bytes >= 0);
  double one = bytes / link->n, all_but_one = bytes - one;
  int c = 2 * link->fullest > link->n ? (link->n + 1) / 2 : link->fullest;
  if (link->n == 1) return (zp_class_bytes){0};
  if (algorithm == ZP_ALGORITHM_FLAT)
    return (zp_class_bytes){(link->fullest - 1) * one, link->nodes > 1 ? (double)c * (link->n - c) * one : 0};
  if (algorithm == ZP_ALGORITHM_TWO_LEVELS) {
    assert(link->n == link->nodes * link->local);
    return (zp_class_bytes){(double)(link->local - 1) * link->nodes * one,
                            (double)link->local * (link->nodes - 1) * one};
  }
  return (zp_class_bytes){(1 - (link->nodes > 1 ? (double)link->nodes / link->n : 0)) * all_but_one,
                          link->nodes > 1 ? all_but_one : 0};
}
