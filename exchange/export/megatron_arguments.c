/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of Megatron-LM for a plan, as a list: by the table that imports read launches with. megatron_*.c have
 * its sections. */
#include "megatron.h"

#include <assert.h>

typedef enum takes { NONE, INT, REAL, TEXT } takes;
static const struct {
  const char *name;
  takes takes;
} flags[] = {
#define FLAG_ROW(id, flag, takes, file) {flag, takes},
    ZP_MEGATRON_FLAGS(FLAG_ROW)
#undef FLAG_ROW
};
static const size_t n_flags = sizeof flags / sizeof *flags;

const char *zp_megatron_name(zp_megatron_flag flag) {
  assert(flag < n_flags);
  return flags[flag].name;
}

const zp_megatron_argument *zp_megatron_find(const zp_megatron *m, zp_megatron_flag flag) {
  for (int i = 0; i < m->arguments.len; i++)
    if (!m->arguments.data[i].title && m->arguments.data[i].flag == flag) return &m->arguments.data[i];
  return NULL;
}

bool zp_megatron_one_connection(const zp_megatron *m) { return m->e->choice->tensor > 1 && m->e->choice->zero < 2; }

static void put(zp_megatron *m, zp_megatron_flag flag, takes kind, const char *value, bool list) {
  assert(flag < n_flags && flags[flag].takes == kind);
  zp_megatron_argument argument = {.flag = flag, .value = value, .number = kind == INT || kind == REAL, .list = list};
  zp_push(m->e->arena, &m->arguments, argument);
}

void zp_megatron_put(zp_megatron *m, zp_megatron_flag flag) { put(m, flag, NONE, NULL, false); }

void zp_megatron_put_int(zp_megatron *m, zp_megatron_flag flag, int64_t value) {
  put(m, flag, INT, zp_format(m->e->arena, "%lld", (long long)value), false);
}

void zp_megatron_put_real(zp_megatron *m, zp_megatron_flag flag, double value) {
  put(m, flag, REAL, zp_export_number(m->e->arena, value), false);
}

void zp_megatron_put_words(zp_megatron *m, zp_megatron_flag flag, const char *words) {
  put(m, flag, TEXT, words, true);
}

void zp_megatron_put_text(zp_megatron *m, zp_megatron_flag flag, const char *text) { put(m, flag, TEXT, text, false); }

void zp_megatron_section(zp_megatron *m, const char *title) {
  zp_megatron_argument argument = {.title = title};
  zp_push(m->e->arena, &m->arguments, argument);
}

bool zp_megatron_collect(zp_megatron *m) {
  zp_exporter *e = m->e;
  zp_export_check_common(e);
  zp_export_check_loss(e);
  zp_export_check_schedule(e);
  const char *reason = NULL;
  zp_export_refusal of_model = {.of_model = true, .span = ZP_NO_SPAN};
  m->gpt = zp_gpt_recognise(e->arena, e->spec->model, &reason, &of_model.span);
  if (!m->gpt) {
    of_model.reason =
        zp_format(e->arena, "`%s` is not a model that %s has: %s", e->spec->model->name, e->program, reason);
    zp_push(e->arena, &e->result->refusals, of_model);
    return false;
  }
  if (m->gpt->documents) {
    of_model.span = m->gpt->documents->span;
    of_model.reason =
        "attention masks by the documents of positions, which Megatron-LM finds by a token (--reset-attention-mask)";
    zp_push(e->arena, &e->result->refusals, of_model);
    return false;
  }
  zp_megatron_parallel(m);
  zp_megatron_memory(m);
  zp_megatron_model(m);
  zp_megatron_experts(m);
  zp_megatron_train(m);
  return true;
}
