/* SPDX-License-Identifier: Apache-2.0 */
/* zplan machines: nodes and devices by name, as the library has them. */
#include "machines.h"
#include "new_file.h"

static zp_json *as_json(zp_run_state *run, const zp_machine_row *row, const zp_cluster *c) {
  const zp_node_type *node = &c->node;
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "name", zp_plain_name(run->arena, row->name));
  zp_json_set_string(o, "node", zp_machine_node(run->arena, row, 0));
  zp_json_set_string(o, "device", node->device.name);
  zp_json_set_int(o, "devices", node->devices);
  zp_json_set_int(o, "memory_bytes", node->device.memory_bytes);
  zp_json_set_real(o, "memory_bytes_per_s", node->device.memory_bytes_per_s);
  zp_json_set_real(o, "half_flop_per_s", node->device.flop_per_s_half);
  zp_json_set_real(o, "link_bytes_per_s", node->link.bytes_per_s);
  zp_json_set_int(o, "nics", node->nics);
  zp_json_set_real(o, "nic_bytes_per_s", node->nic.bytes_per_s);
  zp_json_set_string(o, "source", row->source);
  return o;
}

static const zp_column columns[] = {
    {"name", 13, 13, 0}, {"a node", 10, 14, 0}, {"memory", 7, 0, 0}, {"16 bit", 12, 0, 0}, {"source", 20, 20, 0}};

static void add_row(zp_arena *arena, zp_table *table, const zp_machine_row *row, const zp_cluster *c) {
  const zp_node_type *node = &c->node;
  const char *cells[] = {zp_plain_name(arena, row->name),
                         zp_format(arena, "%d" ZP_GLUE "x" ZP_GLUE "%s", node->devices, node->device.name),
                         zp_show_bytes(arena, node->device.memory_bytes),
                         zp_format(arena, "%.0f TFLOP/s", node->device.flop_per_s_half / 1e12), row->source};
  zp_table_add(arena, table, cells);
}

int zp_cmd_machines(zp_run_state *run) {
  const zp_options *o = &run->options;
  zp_json *all = o->json ? zp_json_array() : NULL;
  zp_table table = {.columns = columns, .n = sizeof columns / sizeof *columns};
  int found = 0;
  for (int i = 0; i < zp_machine_count(); i++) {
    const zp_machine_row *row = zp_machine_at(i);
    const char *name = zp_plain_name(run->arena, row->name), *word;
    if (!zp_has_words(&o->files, zp_format(run->arena, "%s %s %s %s", name, row->name, row->node, row->source)))
      continue;
    const zp_cluster *c = zp_cluster_of_block(run, zp_machine_block(run, name, 1, &word));
    if (!c) return zp_flush_diags(run), ZP_EXIT_BUG;
    if (o->json)
      zp_json_append(all, as_json(run, row, c));
    else
      add_row(run->arena, &table, row, c);
    found++;
  }
  if (o->json) {
    zp_print_json(run->arena, all);
  } else if (found) {
    const char *shown, *word;
    zp_this_machine(run, &word, &shown);
    zp_table_add_text(run->arena, &table, zp_format(run->arena, "this: %s, the machine that zplan runs on", shown));
    zp_page page = zp_page_for(run, stdout, 0);
    zp_page_table(&page, &table);
    zp_page_lines(&page, "\nzplan FILE.dz --machine NAME --gpus N; a machine of your own is a `cluster` block\n");
    zp_page_put(&page, stdout);
  }
  if (found) return ZP_EXIT_OK;
  if (!o->json) zp_say_lines(stderr, "no machine has these words; `zplan machines` lists all\n");
  return ZP_EXIT_ERROR;
}
