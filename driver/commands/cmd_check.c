/* SPDX-License-Identifier: Apache-2.0 */
/* zplan check: what the file says, without a plan. */
#include "driver.h"

#include <zplan/sparse.h>
#include <zplan/recipe.h>
#include <stdio.h>

static int64_t layers_of(const zp_model *model) {
  int64_t layers = 0;
  for (int s = 0; s < model->segments.len; s++)
    if (model->segments.data[s].is_repeat) layers += model->segments.data[s].count;
  return layers;
}

static void add_nodes(zp_json *list, int nodes, const zp_node_type *node) {
  zp_json *j = zp_json_append(list, zp_json_object());
  zp_json_set_int(j, "nodes", nodes);
  zp_json_set_string(j, "node", node->name);
  zp_json_set_int(j, "devices_per_node", node->devices);
  zp_json_set_string(j, "device", node->device.name);
}

static zp_json *cluster_json(const zp_cluster *cluster) {
  zp_json *o = zp_json_object(), *groups = zp_json_set(o, "node_groups", zp_json_array());
  zp_json_set_string(o, "name", cluster->name);
  zp_json_set_int(o, "devices", cluster->ranks);
  if (cluster->groups.len == 0) add_nodes(groups, cluster->nodes, &cluster->node);
  for (int g = 0; g < cluster->groups.len; g++)
    add_nodes(groups, cluster->groups.data[g].nodes, &cluster->groups.data[g].type);
  return o;
}

static void print_json(zp_run_state *run, const zp_spec *spec) {
  const zp_model *model = spec->model;
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "model", model->name);
  zp_json_set_int(o, "parameters", zp_model_parameters(model));
  if (zp_model_has_frozen(model)) zp_json_set_int(o, "trained_parameters", zp_model_trained_parameters(model));
  zp_json_set_int(o, "active_parameters", zp_model_active_parameters(model));
  zp_json_set_int(o, "sequence", model->sequence);
  zp_json_set_int(o, "vocabulary", model->vocabulary);
  zp_json_set_real(o, "flop_per_sequence", zp_model_flop_per_sequence(model));
  zp_json *segments = zp_json_set(o, "segments", zp_json_array());
  for (int s = 0; s < model->segments.len; s++) {
    zp_json *j = zp_json_append(segments, zp_json_object());
    zp_json_set_string(j, "name", model->segments.data[s].name);
    zp_json_set_int(j, "count", model->segments.data[s].count);
    zp_json_set_int(j, "ops", model->segments.data[s].graph->nodes.len);
  }
  zp_json *params = zp_json_set(o, "parameter_list", zp_json_array());
  for (int p = 0; p < model->params.len; p++) {
    zp_json *j = zp_json_append(params, zp_json_object());
    zp_json_set_string(j, "name", model->params.data[p].name);
    zp_json *shape = zp_json_set(j, "shape", zp_json_array());
    for (int i = 0; i < model->params.data[p].shape.rank; i++)
      zp_json_append_int(shape, model->params.data[p].shape.dim[i]);
    if (model->params.data[p].frozen) zp_json_set_bool(j, "frozen", true);
  }
  if (spec->cluster.name) zp_json_set(o, "cluster", cluster_json(&spec->cluster));
  zp_say(stdout, "%s\n", zp_json_text(run->arena, o, true));
  zp_json_free(o);
}

static void put_nodes(zp_buf *out, int nodes, const zp_node_type *node) {
  zp_buf_printf(out, "  %d x %s: %d x %s\n", nodes, node->name, node->devices, node->device.name);
}

/* Node types in the order in which ranks fill them. */
static void put_cluster(zp_buf *out, const zp_cluster *cluster) {
  if (!cluster->name) return;
  zp_buf_printf(out, "cluster %s: %d node%s, %lld devices\n", cluster->name, cluster->nodes,
                cluster->nodes == 1 ? "" : "s", (long long)cluster->ranks);
  if (cluster->groups.len == 0) put_nodes(out, cluster->nodes, &cluster->node);
  for (int g = 0; g < cluster->groups.len; g++)
    put_nodes(out, cluster->groups.data[g].nodes, &cluster->groups.data[g].type);
}

/* ", of which a token uses 12,879,925,248": with experts. */
static const char *active_text(zp_arena *arena, const zp_model *model) {
  int64_t active = zp_model_active_parameters(model);
  return active == zp_model_parameters(model)
             ? ""
             : zp_format(arena, ", of which a token uses %s", zp_show_whole(arena, active));
}

/* ", of which 294,912 are trained": with frozen ones. */
static const char *trained_text(zp_arena *arena, const zp_model *model) {
  if (!zp_model_has_frozen(model)) return "";
  return zp_format(arena, ", of which %s are trained", zp_show_whole(arena, zp_model_trained_parameters(model)));
}

/* "groups: `*.bias` 25 parameters, learning rate x 1, weight decay 0". */
static void put_groups(zp_buf *out, const zp_spec *spec) {
  const zp_train *train = &spec->train;
  for (int g = 0; g < train->groups.len; g++) {
    int64_t elements = 0;
    int params = 0;
    const zp_param *last = NULL;
    for (int i = 0; i < spec->model->params.len; i++) {
      const zp_param *param = &spec->model->params.data[i];
      if (zp_group_of(train, param) != g) continue;
      params++;
      last = param;
      elements += zp_shape_elements(&param->shape, 1) *
                  (param->segment < 0 ? 1 : spec->model->segments.data[param->segment].count);
    }
    if (!last) continue;
    const zp_param_group *group = &train->groups.data[g];
    zp_buf_printf(out, "group %s: %d parameter%s, %s elements, learning rate x %g, weight decay %s\n", group->pattern,
                  params, params == 1 ? "" : "s", zp_show_whole(out->arena, elements), group->lr_factor,
                  group->decays ? zp_format(out->arena, "%g", group->weight_decay) : "as without a group");
  }
}

/* "muon: 12 matrices of the layers, 220.2 M FLOP a step for Newton-Schulz; 8 parameters take adamw". */
static void put_muon(zp_buf *out, const zp_spec *spec) {
  int64_t matrices = 0;
  int others = 0;
  double flop = 0;
  for (int i = 0; i < spec->model->params.len; i++) {
    const zp_param *param = &spec->model->params.data[i];
    bool orthogonal = zp_recipe_of(&spec->train, param).orthogonal;
    int64_t copies = orthogonal ? spec->model->segments.data[param->segment].count : 0;
    others += !orthogonal;
    matrices += copies;
    if (orthogonal) flop += (double)copies * zp_orthogonal_flop(param);
  }
  if (matrices == 0) return;
  zp_buf_printf(out, "muon: %s matrices of the layers, %s FLOP a step for Newton-Schulz; %d parameter%s adamw\n",
                zp_show_whole(out->arena, matrices), zp_show_count(out->arena, flop), others,
                others == 1 ? " takes" : "s take");
}

static void put_model(zp_buf *out, const zp_model *m) {
  zp_arena *arena = out->arena;
  zp_buf_line(out, "%s: %s parameters (%s)%s%s, %lld layers, sequence %lld, vocabulary %lld, %s FLOP a sequence",
              m->name, zp_show_whole(arena, zp_model_parameters(m)),
              zp_show_count(arena, (double)zp_model_parameters(m)), active_text(arena, m), trained_text(arena, m),
              (long long)layers_of(m), (long long)m->sequence, (long long)m->vocabulary,
              zp_show_count(arena, zp_model_flop_per_sequence(m)));
  zp_strings attention = zp_attention_texts(arena, m);
  for (int i = 0; i < attention.len; i++) zp_buf_line(out, "attention %s", attention.data[i]);
}

int zp_cmd_check(zp_run_state *run) {
  zp_json *json;
  run->options.load.model_only = true;
  zp_spec *spec = zp_load_input(run, &json);
  if (json) zp_json_free(json);
  if (!spec) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  zp_flush_diags(run);
  if (run->options.json) {
    print_json(run, spec);
  } else {
    zp_buf out = zp_buf_new(run->arena);
    put_model(&out, spec->model);
    put_groups(&out, spec);
    put_muon(&out, spec);
    put_cluster(&out, &spec->cluster);
    zp_print_lines(run, stdout, out.data);
  }
  return ZP_EXIT_OK;
}
