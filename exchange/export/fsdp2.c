/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a Python script that trains with PyTorch's fully_shard. The script is fsdp2_script.py.in with the plan's
 * constants after its mark; fsdp2_*.c have these. */
#include "fsdp2.h"

#include <zplan/quote.h>

#include <assert.h>

/* A row for every line of fsdp2_script.py.in. */
static const char *const script[] = {
#include "fsdp2_script_lines.h"
};

void zp_fsdp2_put_words(zp_fsdp2 *f, const char *name, const char *words) {
  zp_buf_printf(&f->out, "%s = %s\n", name, words);
}

void zp_fsdp2_put_int(zp_fsdp2 *f, const char *name, int64_t value) {
  zp_buf_printf(&f->out, "%s = %lld\n", name, (long long)value);
}

void zp_fsdp2_put_real(zp_fsdp2 *f, const char *name, double value) {
  zp_fsdp2_put_words(f, name, zp_export_number(f->e->arena, value));
}

void zp_fsdp2_put_flag(zp_fsdp2 *f, const char *name, bool value) {
  zp_fsdp2_put_words(f, name, value ? "True" : "False");
}

/* A JSON string is one of Python, too. */
void zp_fsdp2_put_text(zp_fsdp2 *f, const char *name, const char *value) {
  zp_fsdp2_put_words(f, name, zp_quote_json(f->e->arena, value));
}

static void put_head(zp_buf *out, const zp_exporter *e) {
  const zp_estimate *estimate = &e->plan->best.estimate;
  zp_export_comment(out,
                    zp_format(e->arena, "%s on %d x %s, for PyTorch " ZP_FSDP2_VERSION "; made by zplan export fsdp2.",
                              e->spec->model->name, e->plan->devices, e->spec->cluster.node.device.name));
  zp_export_comment(out, zp_format(e->arena, "%s.", zp_export_headline(e)));
  zp_export_comment(out, zp_format(e->arena, "zplan's estimates, %s: %s a step, at most %s on a device.",
                                   zp_trainer_phrase(e->arena, &e->spec->cluster),
                                   zp_show_seconds(e->arena, estimate->step_s),
                                   zp_show_bytes(e->arena, estimate->peak_bytes)));
  zp_buf_printf(out, "#\n#   torchrun ... %s [--weights model.safetensors] [--data FILES] [--save FILE] [--compile]\n",
                e->name);
  zp_export_differences(out, e);
}

void zp_export_fsdp2(zp_exporter *e) {
  zp_fsdp2 f = {.e = e, .out = zp_buf_new(e->arena)};
  zp_export_check_common(e);
  zp_export_check_loss(e);
  if (!zp_fsdp2_model(&f)) return;
  zp_fsdp2_plan(&f);
  zp_fsdp2_train(&f);
  zp_export_note(e, "every rank makes the whole model in host memory before it keeps its share");
  zp_buf out = zp_buf_new(e->arena);
  put_head(&out, e);
  zp_buf_puts(&out, "\n");
  bool placed = false;
  for (size_t i = 0; i < sizeof script / sizeof *script; i++) {
    zp_buf_puts(&out, script[i]);
    if (strcmp(script[i], "# ---- the plan ----\n") != 0) continue;
    zp_buf_puts(&out, f.out.data);
    placed = true;
  }
  assert(placed && "the script has no place for the plan");
  e->result->text = out.data;
}
