/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a Python script that trains with PyTorch's fully_shard. The script is fsdp2_script.py.in with the plan's
 * constants and the model's modules after their marks; fsdp2_*.c have the constants. */
#include "fsdp2.h"

#include <zplan/quote.h>

#include <assert.h>

/* A row for every line of fsdp2_*.py.in. */
static const char *const script[] = {
#include "fsdp2_script_lines.h"
};
static const char *const gpt2[] = {
#include "fsdp2_gpt2_lines.h"
};
static const char *const llama[] = {
#include "fsdp2_llama_lines.h"
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

static void put_lines(zp_buf *out, const char *const *line, size_t n) {
  for (size_t i = 0; i < n; i++) zp_buf_puts(out, line[i]);
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
  zp_export_title(&out, e, "PyTorch " ZP_FSDP2_VERSION);
  zp_buf_printf(&out, "#\n#   torchrun ... %s [--weights model.safetensors] [--data FILES] [--save FILE] [--compile]\n",
                e->name);
  zp_export_differences(&out, e);
  zp_buf_puts(&out, "\n");
  int marks = 0;
  for (size_t i = 0; i < sizeof script / sizeof *script; i++) {
    bool plan = strcmp(script[i], "# ---- the plan ----\n") == 0;
    bool model = strcmp(script[i], "# ---- the model, with the plan's names ----\n") == 0;
    zp_buf_puts(&out, script[i]);
    marks += plan || model;
    if (plan) zp_buf_puts(&out, f.out.data);
    if (model && zp_fsdp2_is_llama(f.gpt)) put_lines(&out, llama, sizeof llama / sizeof *llama);
    if (model && !zp_fsdp2_is_llama(f.gpt)) put_lines(&out, gpt2, sizeof gpt2 / sizeof *gpt2);
  }
  assert(marks == 2 && "the script has no place for the plan or the model");
  e->result->text = out.data;
}
