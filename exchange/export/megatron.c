/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as the arguments of Megatron-LM: a shell file that sets one array. This file writes it; megatron_*.c have its
 * sections. */
#include "megatron.h"

#include <zplan/quote.h>

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

static const char *name_of(zp_megatron_flag flag, takes wanted) {
  assert(flags[flag].takes == wanted);
  (void)wanted;
  return flags[flag].name;
}

void zp_megatron_put(zp_megatron *m, zp_megatron_flag flag) { zp_buf_printf(&m->out, "  %s\n", name_of(flag, NONE)); }

void zp_megatron_put_int(zp_megatron *m, zp_megatron_flag flag, int64_t value) {
  zp_buf_printf(&m->out, "  %s %lld\n", name_of(flag, INT), (long long)value);
}

void zp_megatron_put_real(zp_megatron *m, zp_megatron_flag flag, double value) {
  zp_buf_printf(&m->out, "  %s %s\n", name_of(flag, REAL), zp_export_number(m->e->arena, value));
}

void zp_megatron_put_words(zp_megatron *m, zp_megatron_flag flag, const char *words) {
  zp_buf_printf(&m->out, "  %s %s\n", name_of(flag, TEXT), words);
}

/* A folder whose name begins with a dash would be a flag of its own. */
void zp_megatron_put_text(zp_megatron *m, zp_megatron_flag flag, const char *text) {
  if (*text == '-') text = zp_format(m->e->arena, "./%s", text);
  zp_megatron_put_words(m, flag, zp_quote_shell(m->e->arena, text));
}

void zp_megatron_section(zp_megatron *m, const char *title) { zp_buf_printf(&m->out, "\n  # %s\n", title); }

/* The comment in front of the array. */
static void put_head(zp_buf *out, const zp_exporter *e) {
  const zp_estimate *estimate = &e->plan->best.estimate;
  zp_export_comment(out, zp_format(e->arena,
                                   "%s on %d x %s, for Megatron-LM (" ZP_MEGATRON_VERSION "); made by zplan "
                                   "export megatron.",
                                   e->spec->model->name, e->plan->devices, e->spec->cluster.node.device.name));
  zp_export_comment(out, zp_format(e->arena, "%s.", zp_export_headline(e)));
  zp_export_comment(out, zp_format(e->arena, "zplan's estimates, %s: %s a step, at most %s on a device.",
                                   zp_trainer_phrase(e->arena, &e->spec->cluster),
                                   zp_show_seconds(e->arena, estimate->step_s),
                                   zp_show_bytes(e->arena, estimate->peak_bytes)));
  zp_buf_puts(out, "#\n");
  zp_buf_printf(out, "#   source %s\n", e->name);
  zp_buf_puts(out, "#   torchrun ... pretrain_gpt.py \"${MEGATRON_ARGS[@]}\"");
  zp_buf_puts(out, e->spec->train.data.kind == ZP_DATA_SYNTHETIC ? "\n" : " --data-path ... --tokenizer-type ...\n");
}

static void put_notes(zp_buf *out, const zp_exporter *e) {
  if (e->result->notes.len == 0) return;
  zp_buf_puts(out, "#\n# What differs from the plan:\n");
  for (int i = 0; i < e->result->notes.len; i++)
    zp_export_comment(out, zp_format(e->arena, "- %s.", e->result->notes.data[i]));
}

void zp_export_megatron(zp_exporter *e) {
  zp_megatron m = {.e = e, .out = zp_buf_new(e->arena)};
  zp_export_check_common(e);
  zp_export_check_loss(e);
  zp_export_check_schedule(e);
  const char *reason = NULL;
  zp_export_refusal of_model = {.of_model = true, .span = ZP_NO_SPAN};
  m.gpt = zp_gpt_recognise(e->arena, e->spec->model, &reason, &of_model.span);
  if (!m.gpt) {
    of_model.reason = zp_format(e->arena, "`%s` is not a model that Megatron-LM has: %s", e->spec->model->name, reason);
    zp_push(e->arena, &e->result->refusals, of_model);
    return;
  }
  if (m.gpt->documents) {
    of_model.span = m.gpt->documents->span;
    of_model.reason =
        "attention is told the documents of positions, which Megatron-LM finds by a token (--reset-attention-mask)";
    zp_push(e->arena, &e->result->refusals, of_model);
    return;
  }
  zp_megatron_parallel(&m);
  zp_megatron_memory(&m);
  zp_megatron_model(&m);
  zp_megatron_experts(&m);
  zp_megatron_train(&m);
  zp_buf out = zp_buf_new(e->arena);
  put_head(&out, e);
  put_notes(&out, e);
  bool fsdp = e->choice->zero >= 2;
  if (e->choice->tensor > 1 && !fsdp)
    zp_buf_puts(
        &out,
        "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1 # Megatron-LM asks for it where tensors are split, before Blackwell\n");
  zp_buf_printf(&out, "\nMEGATRON_ARGS=(%s)\n", m.out.data);
  e->result->text = out.data;
}
