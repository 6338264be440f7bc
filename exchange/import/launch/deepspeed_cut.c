/* SPDX-License-Identifier: Apache-2.0 */
/* Where DeepSpeed's pipeline divides its modules (0.19.8: runtime/pipe/module.py, _partition_layers; runtime/utils.py,
 * partition_uniform and partition_balanced). The list of modules is Python: it is taken to be the embedding, the
 * layers, and the last norm with the head, which a note says. */
#include "deepspeed_import.h"

#include <math.h>
#include <strings.h>

enum { MOST_UNITS = 512 }; /* the balanced cut takes units^2 x stages steps */

static const char path[] = "pipeline.partition_method";

/* ---- weights ---- */

/* Marks the units that a word of a "type:" pattern names. Patterns are regular expressions over names of Python's
 * classes; these words are in the names that programs give them. false: another word. */
static bool mark(const zp_launch_words *words, const char *word, double *weight) {
  int n = words->units.len;
  bool layers = launch_among("transformer block decoder", word), embedding = launch_among("embed embedding", word);
  for (int i = 0; i < n; i++)
    if (words->units.data[i].layer ? layers : embedding && (i == 0 || (i == n - 1 && words->tied))) weight[i] = 1;
  return layers || embedding;
}

static bool mark_pattern(config *d, const char *pattern, double *weight) {
  launch *l = d->l;
  for (const char *at = pattern; *at; at += strspn(at, "|")) {
    size_t n = strcspn(at, "|");
    char *word = zp_strndup(l->arena, at, n);
    for (char *c = word; *c; c++)
      if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    if (!mark(l->words, word, weight)) {
      zp_diag *diag =
          launch_refuse(l, config_at(d, path), "`%s` has `%s`: the classes of the modules are Python", path, word);
      zp_diag_help(diag,
                   "of a pattern the words transformer, block, decoder, embed and embedding are read, with | between");
      return false;
    }
    at += n;
  }
  return *pattern != '\0';
}

/* ---- cuts: where every stage begins, and the end ---- */

/* Equal numbers; the first stages have one more where they do not divide. */
static void cut_uniform(int n, int64_t stages, int *begin) {
  int64_t each = n / stages, more = n % stages;
  for (int64_t s = 0; s <= stages; s++) begin[s] = (int)(s * each + (s < more ? s : more));
}

/* Sums of weights as even as they get when every stage is added to the best division of what comes before it: the
 * least difference between the largest and the smallest sum, of equals the latest begin. */
static void cut_balanced(zp_arena *arena, const double *weight, int n, int64_t stages, int *begin) {
  typedef struct best {
    double least, most;
    int from;
  } best;
  int m = (int)stages;
  best *table = ZP_NEW_ARRAY(arena, best, (n + 1) * (m + 1));
  double *sum = ZP_NEW_ARRAY(arena, double, n + 1); /* of the first i weights */
  for (int i = 0; i < n; i++) sum[i + 1] = sum[i] + weight[i];
  for (int i = 0; i < (n + 1) * (m + 1); i++) table[i] = (best){INFINITY, i ? INFINITY : 0, 0};
  for (int i = 1; i <= n; i++)
    for (int s = 1; s <= m && s <= i; s++) {
      best *to = &table[i * (m + 1) + s];
      for (int k = s - 1; k < i; k++) {
        const best *before = &table[k * (m + 1) + s - 1];
        best is = {fmin(before->least, sum[i] - sum[k]), fmax(before->most, sum[i] - sum[k]), k};
        if (isfinite(is.most) && is.most - is.least <= to->most - (isfinite(to->most) ? to->least : 0)) *to = is;
      }
    }
  begin[m] = n;
  for (int s = m; s > 0; s--) begin[s - 1] = table[begin[s] * (m + 1) + s].from;
}

/* ---- the pin ---- */

static void pin(config *d, int64_t stages, const int *begin) {
  launch *l = d->l;
  int64_t *layers = ZP_NEW_ARRAY(l->arena, int64_t, stages);
  for (int64_t s = 0; s < stages; s++) {
    for (int i = begin[s]; i < begin[s + 1]; i++) layers[s] += l->words->units.data[i].layer;
    if (layers[s] > 0) continue;
    launch_refuse(l, config_at(d, path), "`%s` gives stage %lld of %lld no layers: a plan's stages have some", path,
                  (long long)s, (long long)stages);
    return;
  }
  launch_pin_cut(l, layers, stages, config_from(d, path));
}

void deepspeed_cut(config *d, int64_t stages) {
  launch *l = d->l;
  const char *method = config_text(d, path, NULL);
  int n = l->words->units.len;
  if (!method) {
    launch_note(l,
                "where stages begin is Python: the plan cuts where it finds best; -- %s=parameters is DeepSpeed's "
                "default, uniform and type:transformer are its others",
                path);
    return;
  }
  if (n < stages || n > MOST_UNITS) {
    launch_complain(l, config_at(d, path), "%d modules do not divide over %lld stages, or are more than %d", n,
                    (long long)stages, MOST_UNITS);
    return;
  }
  double *weight = ZP_NEW_ARRAY(l->arena, double, n);
  int *begin = ZP_NEW_ARRAY(l->arena, int, stages + 1);
  bool uniform = strcasecmp(method, "uniform") == 0 || n == stages, typed = strncasecmp(method, "type:", 5) == 0;
  if (typed) {
    if (!mark_pattern(d, method + 5, weight) && launch_is_sound(l))
      launch_complain(l, config_at(d, path), "`%s` names no classes", path);
  } else if (strcasecmp(method, "parameters") == 0) {
    for (int i = 0; i < n; i++) weight[i] = (double)l->words->units.data[i].parameters;
  } else if (strcasecmp(method, "uniform") != 0) {
    launch_complain(l, config_at(d, path), "`%s` is parameters, uniform or type:PATTERN, not `%s`", path, method);
  }
  if (!launch_is_sound(l)) return;
  launch_note(l,
              "`%s` (%s) divides a list of modules that is Python: the embedding, every layer, and the last norm with "
              "the head are taken as one each",
              path, method);
  if (uniform)
    cut_uniform(n, stages, begin);
  else
    cut_balanced(l->arena, weight, n, stages, begin);
  pin(d, stages, begin);
}
