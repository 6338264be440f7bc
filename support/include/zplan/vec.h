/* SPDX-License-Identifier: Apache-2.0 */
/* Growable arrays inside an arena: a struct of data, len, cap that any header can declare.
 *
 *   ZP_VEC(zp_node) nodes = {0};
 *   zp_push(arena, &nodes, node);
 *   for (int i = 0; i < nodes.len; i++) use(nodes.data[i]);
 *
 * Growing moves the elements: keep indices, not pointers, across a push. */
#ifndef ZPLAN_VEC_H
#define ZPLAN_VEC_H

#include <zplan/arena.h>

#define ZP_VEC(type)                                                                                                   \
  struct {                                                                                                             \
    type *data;                                                                                                        \
    int len, cap;                                                                                                      \
  }

/* The first room is for exactly so many. */
#define zp_reserve(arena, vec, count)                                                                                  \
  do {                                                                                                                 \
    if ((vec)->cap < (count)) {                                                                                        \
      int zp_new_cap = (vec)->cap * 2;                                                                                 \
      if (zp_new_cap < (count)) zp_new_cap = (count);                                                                  \
      (vec)->data = zp_grow_room((arena), (vec)->data, sizeof *(vec)->data * (size_t)(vec)->cap,                       \
                                 sizeof *(vec)->data * (size_t)zp_new_cap);                                            \
      (vec)->cap = zp_new_cap;                                                                                         \
    }                                                                                                                  \
  } while (0)

#define zp_push(arena, vec, item)                                                                                      \
  do {                                                                                                                 \
    zp_reserve((arena), (vec), (vec)->cap ? (vec)->len + 1 : 8);                                                       \
    (vec)->data[(vec)->len++] = (item);                                                                                \
  } while (0)

typedef ZP_VEC(int) zp_ints;
typedef ZP_VEC(const char *) zp_strings;

#endif
