/* Where Adafactor's statistics are: those of all trained parameters of a stage one behind the other, run by run. */
#include "adafactor.h"

zpr_statistics zpr_statistics_of(const zpr_param *param) {
  zpr_statistics s = {.height = 1, .width = 1, .elements = 1};
  for (int d = 0; d < param->rank; d++) s.elements *= param->shape[d];
  s.width = param->rank > 0 ? param->shape[param->rank - 1] : 1;
  if (param->rank > 1) s.height = param->shape[param->rank - 2];
  s.rows = param->rank > 1 ? s.elements / s.width : 0;
  s.cols = s.elements / s.height;
  return s;
}

static int64_t before(const zpr_run *run, int k) {
  int64_t n = 0;
  for (int i = 0; i < k && !run->frozen; i++) {
    zpr_statistics s = zpr_statistics_of(&run->params[i]);
    n += s.rows + s.cols;
  }
  return n;
}

int64_t zpr_statistics_at(const zpr *c, const zpr_run *run, int64_t i, int k) {
  int64_t at = i * before(run, run->n_params) + before(run, k);
  for (const zpr_run *r = c->stage->runs; r < run; r++) at += r->count * before(r, r->n_params);
  return at;
}
