/* SPDX-License-Identifier: Apache-2.0 */
/* What a program must compute: the loss and the gradients of the model's logical graphs, the whole batch at once,
 * nothing sharded or lowered; and the comparison with what program_machine.h left in the arenas. */
#ifndef PROGRAM_REFERENCE_H
#define PROGRAM_REFERENCE_H

#include "program_machine.h"

typedef struct pm_reference {
  double loss;
  double ***grad; /* [param][iteration][logical element] */
} pm_reference;

static inline void pm_fill_outside(zp_interpreter *in, const zp_model *model, int64_t iteration, int64_t batch) {
  for (int t = 0; t < in->graph->tensors.len; t++) {
    const zp_tensor *x = &in->graph->tensors.data[t];
    int64_t n = zp_shape_elements(&x->shape, batch), S = model->sequence;
    for (int64_t i = 0; i < n; i++) {
      if (x->role == ZP_ROLE_INPUT) in->value[t][i] = pm_token(model, x->index, i / S, i % S);
      if (x->role == ZP_ROLE_PARAM)
        in->value[t][i] = pm_weight(model, x->index, model->params.data[x->index].segment < 0 ? 0 : iteration, i);
    }
  }
}

static inline void pm_hand_over(const zp_interpreter *from, int a, const zp_interpreter *to, int b, int64_t batch) {
  int64_t n = zp_shape_elements(&from->graph->tensors.data[a].shape, batch);
  memcpy(to->value[b], from->value[a], (size_t)n * 8);
}

static inline pm_reference pm_run_reference(zp_arena *memory, const zp_spec *spec, int64_t batch) {
  const zp_model *model = spec->model;
  pm_reference ref = {.grad = ZP_NEW_ARRAY(memory, double **, model->params.len)};
  ZP_VEC(zp_interpreter *) units = {0};
  for (int p = 0; p < model->params.len; p++) {
    const zp_param *param = &model->params.data[p];
    int64_t copies = param->segment < 0 ? 1 : model->segments.data[param->segment].count;
    ref.grad[p] = ZP_NEW_ARRAY(memory, double *, copies);
    for (int64_t k = 0; k < copies; k++)
      ref.grad[p][k] = ZP_NEW_ARRAY(memory, double, zp_shape_elements(&param->shape, 1));
  }
  for (int s = 0; s < model->segments.len; s++) {
    const zp_segment *segment = &model->segments.data[s];
    zp_graph *graph = zp_differentiate(zp_fuse(zp_graph_localize_trivial(segment->graph)));
    for (int64_t k = 0; k < segment->count; k++) {
      zp_interpreter *in = zp_interpreter_new(memory, graph, batch),
                     *below = units.len ? units.data[units.len - 1] : NULL;
      in->loss_scale = 1.0 / (double)(spec->train.batch * model->sequence);
      in->instance = (uint64_t)k;
      pm_fill_outside(in, model, k, batch);
      for (int i = 0; i < graph->params.len; i++) { /* shared parameters: all units add to one gradient */
        int param = graph->params.data[i].param;
        in->param_grad[i] = ref.grad[param][model->params.data[param].segment < 0 ? 0 : k];
      }
      if (below) pm_hand_over(below, below->graph->carry_out.data[0], in, graph->carry_in.data[0], batch);
      zp_interpret(in, 0, graph->n_forward);
      zp_push(memory, &units, in);
    }
  }
  for (int j = units.len - 1; j >= 0; j--) {
    zp_interpreter *in = units.data[j], *above = j + 1 < units.len ? units.data[j + 1] : NULL;
    if (above) pm_hand_over(above, above->graph->grad_out.data[0], in, in->graph->grad_in.data[0], batch);
    zp_interpret(in, in->graph->n_forward, in->graph->nodes.len);
    ref.loss += in->loss;
  }
  return ref;
}

/* ---- comparison ---- */

typedef struct pm_compare {
  const pm_reference *reference;
  double **sum; /* [param]: of shared parameters, over the stages that hold them: [tensor rank][local element] */
} pm_compare;

static inline void pm_compare_elements(pm *m, int param, int64_t iteration, int t, const double *grad,
                                       const double *expected) {
  const zp_param *p = &m->l->spec->model->params.data[param];
  double largest = 1e-3;
  for (int64_t i = 0; i < zp_shape_elements(&p->shape, 1); i++) largest = fmax(largest, fabs(expected[i]));
  for (int64_t i = 0; i < m->l->param_elements[param]; i++) {
    int64_t e = pm_logical_element(&p->shape, &m->l->sharding->param[param], t, i);
    double want = e < 0 ? 0 : expected[e];
    cr_assert(fabs(grad[i] - want) <= 1e-11 * largest, "%s %lld[%lld], tensor rank %d of %d: %.15g, expected %.15g",
              p->name, (long long)iteration, (long long)i, t, m->t, grad[i], want);
  }
}

static inline void pm_compare_param(pm *m, int s, int param, int64_t iteration, int64_t offset, void *arg) {
  pm_compare *c = arg;
  for (int t = 0; t < m->t; t++) {
    const double *grad = pm_flat(m, s, t, true) + offset;
    if (m->l->spec->model->params.data[param].segment >= 0) {
      pm_compare_elements(m, param, iteration, t, grad, c->reference->grad[param][iteration]);
      continue;
    }
    int64_t n = m->l->param_elements[param];
    if (!c->sum[param]) c->sum[param] = ZP_NEW_ARRAY(m->memory, double, m->t *n);
    for (int64_t i = 0; i < n; i++) c->sum[param][t * n + i] += grad[i];
  }
}

static inline void pm_expect_equal(pm *m, const pm_reference *reference) {
  const zp_model *model = m->l->spec->model;
  pm_compare c = {reference, ZP_NEW_ARRAY(m->memory, double *, model->params.len)};
  cr_assert(fabs(m->loss - reference->loss) <= 1e-12 * fabs(reference->loss), "loss %.15g, expected %.15g", m->loss,
            reference->loss);
  for (int s = 0; s < m->program->choice.pipeline; s++) pm_for_params(m, s, pm_compare_param, &c);
  for (int p = 0; p < model->params.len; p++)
    for (int t = 0; t < m->t && c.sum[p]; t++)
      pm_compare_elements(m, p, 0, t, c.sum[p] + t * m->l->param_elements[p], reference->grad[p][0]);
}

#endif
