/* SPDX-License-Identifier: Apache-2.0 */
/* Elaboration of one model: choose it, bind its arguments, execute its body, check the result. */
#include "elaborate.h"

bool zp_elab_eval(zp_elab *e, const zp_expr *expr, zp_value *value) {
  zp_evaluator evaluator = {.arena = e->arena,
                            .diags = e->diags,
                            .scope = e->frame->scope,
                            .user = e,
                            .call = zp_elab_call,
                            .tensor_operator = zp_elab_tensor_operator,
                            .tensor_name = zp_elab_check_name,
                            .seen = e->facts ? zp_elab_note_name : NULL};
  return zp_evaluate(&evaluator, expr, value);
}

/* ---- which model ---- */

/* The name and call that choose the model; name NULL: nobody says. */
typedef struct choice {
  const char *name;
  const zp_expr *call; /* CALL with arguments, or NULL */
  zp_span span;
} choice;

static choice read_choice(zp_elab *e, const zp_load_options *options, const zp_expr *model_call) {
  choice c = {.span = ZP_NO_SPAN};
  if (model_call) {
    bool is_call = model_call->kind == ZP_EXPR_CALL;
    c.name = zp_dotted_name(e->arena, is_call ? model_call->left : model_call);
    c.call = is_call ? model_call : NULL;
    c.span = model_call->span;
  }
  if (options->model && (!c.name || strcmp(options->model, c.name) != 0))
    c = (choice){.name = options->model, .span = ZP_NO_SPAN};
  return c;
}

static const zp_item *only_model(zp_elab *e, zp_module *main) {
  const zp_item *only = NULL;
  for (int i = 0; i < main->file->items.len; i++) {
    const zp_item *item = main->file->items.data[i];
    if (item->kind != ZP_ITEM_MODEL) continue;
    if (only) {
      zp_diag *d = zp_report(e->diags, ZP_Z0230, item->name.span, "this file has several models");
      zp_diag_also(d, only->name.span, "another one");
      zp_diag_help(d, "say which one: `train { model = %s }` or `--model %s`", item->name.text, item->name.text);
      return NULL;
    }
    only = item;
  }
  if (!only) {
    zp_diag *d = zp_report(e->diags, ZP_Z0230, ZP_NO_SPAN, "%s has no model", main->path);
    zp_diag_help(d, "write `model name(...) { ... }`, or choose one of a used file: `train { model = g.gpt2 }`");
  }
  return only;
}

static const zp_item *find_model(zp_elab *e, zp_module *main, const choice *c, zp_module **where) {
  *where = main;
  if (!c->name) return only_model(e, main);
  const zp_item *model = zp_module_find(main, c->name, 1u << ZP_ITEM_MODEL, where);
  if (model) return model;
  zp_strings names = {0};
  zp_module_names(e->arena, main, 1u << ZP_ITEM_MODEL, &names);
  zp_diag *d = zp_report(e->diags, ZP_Z0230, c->span, "there is no model `%s`", c->name);
  if (!zp_diag_did_you_mean(d, c->name, names.data, names.len) && names.len)
    zp_diag_help(d, "there is `%s`", names.data[0]);
  return NULL;
}

/* ---- running it ---- */

/* Arguments are written outside the model, so they see the `let` values of the main file. */
static bool bind_arguments(zp_elab *e, zp_module *main, const zp_item *model, const choice *c) {
  const char *names[ZP_MAX_ARGS];
  zp_slot slots[ZP_MAX_ARGS] = {0};
  zp_expr no_call = {.kind = ZP_EXPR_CALL, .span = model->name.span, .at = model->name.span};
  const zp_expr *call = c->call ? c->call : &no_call;
  if (!zp_elab_formal_names(e, model, names)) return false;
  zp_frame *inside = e->frame;
  zp_frame outside = {.kind = ZP_FRAME_MODEL, .item = model, .module = main, .scope = main->lets, .param_path = ""};
  e->frame = &outside;
  bool ok = zp_elab_collect(e, call, model->name.text, names, model->formals.len, slots);
  e->frame = inside;
  return ok && zp_elab_bind(e, call, model, slots);
}

static void check_block_names(zp_elab *e, zp_module *module) {
  for (int i = 0; i < module->file->items.len; i++) {
    const zp_item *item = module->file->items.data[i];
    if (item->kind != ZP_ITEM_BLOCK || !zp_is_builtin(item->name.text)) continue;
    zp_report(e->diags, ZP_Z0239, item->name.span, "`%s` is an operation of the language, a block cannot be called so",
              item->name.text);
  }
  for (int i = 0; i < module->uses.len; i++) check_block_names(e, module->uses.data[i]);
}

static void check_output(zp_elab *e, const zp_item *item) {
  const zp_segment *last = e->model->segments.len ? &e->model->segments.data[e->model->segments.len - 1] : NULL;
  if (!e->has_output) {
    zp_diag *d = zp_report(e->diags, ZP_Z0227, item->name.span, "model `%s` has no output", item->name.text);
    zp_diag_help(d, "end it with `output loss = cross_entropy(logits, labels)`");
  } else if (!last || last->graph->losses.len == 0) {
    zp_report(e->diags, ZP_Z0227, e->output_span, "a repeat follows the output");
  }
}

static void check_total(zp_elab *e, const zp_item *item) {
  double total = 0;
  for (int i = 0; i < e->model->params.len; i++) {
    const zp_param *param = &e->model->params.data[i];
    int64_t copies = param->segment < 0 ? 1 : e->model->segments.data[param->segment].count;
    total += (double)copies * (double)zp_shape_elements(&param->shape, 1);
  }
  if (total > 1e17) zp_report(e->diags, ZP_Z0211, item->name.span, "the model has %.2g parameters", total);
}

static void keep_symbols(zp_elab *e, const zp_item *item) {
  for (int i = 0; i < item->formals.len; i++) {
    const zp_value *value = zp_scope_get(e->frame->scope, item->formals.data[i].name.text);
    if (value && value->kind == ZP_VAL_NUMBER && value->extent) zp_push(e->arena, &e->model->symbols, value->extent);
  }
}

/* Labels and lengths are of something: tokens, or another input. */
static void check_inputs(zp_elab *e) {
  if (e->model->inputs.len == 0) return;
  for (int i = 0; i < e->model->inputs.len; i++) {
    const char *name = e->model->inputs.data[i].name;
    if (strcmp(name, "labels") != 0 && strcmp(name, "lengths") != 0) return;
  }
  const zp_input *first = &e->model->inputs.data[0];
  zp_diag *d = zp_report(e->diags, ZP_Z0238, first->span, "trainers feed `%s` alongside `tokens` only", first->name);
  zp_diag_help(d, "declare `input tokens: i32[B, S]`, too, and read it");
}

/* Numbers come first, then what has the names of `names` in their order, then the rest. */
static int place_of_input(const zp_input *input) {
  static const char *const names[] = {"tokens", "labels", "lengths"};
  enum { NAMES = sizeof names / sizeof *names };
  if (input->element == ZP_ELEM_FLOAT) return 0;
  int k = 0;
  while (k < NAMES && strcmp(input->name, names[k]) != 0) k++;
  return 1 + k;
}

/* In whatever order inputs are declared, they stand in one order in memory (zp_model_inputs_bytes). */
static void order_inputs(zp_model *model) {
  int n = model->inputs.len, next = 0;
  zp_input *ordered = ZP_NEW_ARRAY(model->arena, zp_input, n + 1);
  int *now = ZP_NEW_ARRAY(model->arena, int, n + 1);
  for (int place = 0; next < n; place++)
    for (int i = 0; i < n; i++) {
      if (place_of_input(&model->inputs.data[i]) != place) continue;
      ordered[next] = model->inputs.data[i];
      now[i] = next++;
    }
  for (int i = 0; i < n; i++) model->inputs.data[i] = ordered[i];
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int t = 0; t < graph->tensors.len; t++) {
      zp_tensor *tensor = &graph->tensors.data[t];
      if (tensor->role == ZP_ROLE_INPUT) tensor->index = now[tensor->index];
    }
  }
}

/* Those of `tokens` where the model has them, else of the first input that has some. */
static int64_t positions_of_inputs(const zp_model *model) {
  for (int i = 0; i < model->inputs.len; i++)
    if (strcmp(model->inputs.data[i].name, "tokens") == 0 && model->inputs.data[i].shape.rank == 2)
      return model->inputs.data[i].shape.dim[1];
  for (int i = 0; i < model->inputs.len; i++) {
    const zp_input *input = &model->inputs.data[i];
    if (input->shape.rank == (input->element == ZP_ELEM_I32 ? 2 : 3)) return input->shape.dim[1];
  }
  return 1;
}

static void finish(zp_elab *e) {
  zp_model *model = e->model;
  order_inputs(model);
  for (int s = 0; s < model->segments.len; s++) zp_graph_infer_parts(model->segments.data[s].graph);
  const zp_graph *last = model->segments.data[model->segments.len - 1].graph;
  const zp_node *loss = &last->nodes.data[last->tensors.data[last->losses.data[0]].producer];
  model->vocabulary = zp_shape_cols(&last->tensors.data[loss->in.data[0]].shape);
  model->sequence = positions_of_inputs(model);
  zp_model_find_ranges(model);
  const zp_node *wrong = zp_model_find_biases(model);
  if (wrong)
    zp_report(e->diags, ZP_Z0208, wrong->span,
              "the `bias` of a gate moves by its load: nothing else may read it, nor gates with another `bias_rate`");
  for (int i = 0; i < model->inputs.len && !zp_model_reads_tokens(model); i++)
    if (strcmp(model->inputs.data[i].name, "tokens") == 0) model->vocabulary = model->inputs.data[i].limit;
}

static bool run_model(zp_elab *e, zp_module *main, zp_module *where, const zp_item *item, const choice *c) {
  int errors = zp_diags_errors(e->diags);
  e->model = zp_model_new(e->arena, item->name.text);
  e->model->span = item->span;
  zp_frame frame = {.kind = ZP_FRAME_MODEL,
                    .item = item,
                    .module = where,
                    .scope = zp_scope_new(e->arena, where->lets),
                    .param_path = ""};
  e->frame = &frame;
  check_block_names(e, main);
  if (!bind_arguments(e, main, item, c)) return false;
  keep_symbols(e, item);
  zp_elab_statements(e, &item->body);
  if (zp_diags_errors(e->diags) == errors) check_output(e, item);
  if (zp_diags_errors(e->diags) == errors) zp_elab_check_usage(e);
  if (zp_diags_errors(e->diags) == errors) check_inputs(e);
  if (zp_diags_errors(e->diags) == errors) check_total(e, item);
  if (zp_diags_errors(e->diags) > errors) return false;
  finish(e);
  return true;
}

bool zp_elaborate(zp_arena *arena, zp_diags *diags, zp_spec *spec, zp_module *main, const zp_load_options *options,
                  const zp_expr *model_call, double default_dropout) {
  zp_elab e = {.arena = arena,
               .diags = diags,
               .segment = -1,
               .dropout = default_dropout,
               .library_dir = options->library_dir,
               .facts = options->facts};
  zp_taken_names_give(arena, &e.segment_names, "begin"); /* a repeat variable of that name is begin_2 */
  zp_taken_names_give(arena, &e.segment_names, "end");
  choice c = read_choice(&e, options, model_call);
  zp_module *where;
  const zp_item *item = find_model(&e, main, &c, &where);
  if (!item || !run_model(&e, main, where, item, &c)) return false;
  spec->model = e.model;
  return true;
}
