/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of the nodes of several types. */
#ifndef ZPLAN_SEARCH_NODE_ORDERS_H
#define ZPLAN_SEARCH_NODE_ORDERS_H

#include <zplan/plan.h>

/* May the first `devices` devices stand in another order than the written one? */
bool zp_orders_nodes(const zp_spec *spec, int devices);
/* The best plan of all orders; `written` is that of the written one. Requires: zp_orders_nodes. */
zp_plan *zp_search_node_orders(zp_arena *arena, zp_plan *written, const zp_search_options *options);

#endif
