/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for Megatron-LM: a shell file that sets one array, of the arguments that megatron_arguments.c lists. */
#include "megatron.h"

#include <zplan/quote.h>

/* A folder whose name begins with a dash would be a flag of its own. */
static const char *shown(zp_arena *arena, const zp_megatron_argument *a) {
  if (a->number || a->list) return a->value;
  const char *text = *a->value == '-' ? zp_format(arena, "./%s", a->value) : a->value;
  return zp_quote_shell(arena, text);
}

static void put_arguments(zp_buf *out, const zp_megatron *m) {
  zp_buf_puts(out, "\nMEGATRON_ARGS=(");
  for (int i = 0; i < m->arguments.len; i++) {
    const zp_megatron_argument *a = &m->arguments.data[i];
    if (a->title)
      zp_buf_printf(out, "\n  # %s\n", a->title);
    else if (a->value)
      zp_buf_printf(out, "  %s %s\n", zp_megatron_name(a->flag), shown(m->e->arena, a));
    else
      zp_buf_printf(out, "  %s\n", zp_megatron_name(a->flag));
  }
  zp_buf_puts(out, ")\n");
}

void zp_export_megatron(zp_exporter *e) {
  static const zp_megatron_words words = {.local = "--transformer-impl local", .data = "give --data-path"};
  zp_megatron m = {.e = e, .words = &words};
  if (!zp_megatron_collect(&m)) return;
  zp_buf out = zp_buf_new(e->arena);
  zp_export_head(&out, e, " (" ZP_MEGATRON_VERSION ")");
  zp_buf_puts(&out, "#   torchrun ... pretrain_gpt.py \"${MEGATRON_ARGS[@]}\"");
  zp_buf_puts(&out, zp_megatron_find(&m, ZP_MEGATRON_MOCK_DATA) ? "\n" : " --data-path ... --tokenizer-type ...\n");
  zp_export_differences(&out, e);
  if (zp_megatron_one_connection(&m))
    zp_buf_puts(
        &out,
        "\nexport CUDA_DEVICE_MAX_CONNECTIONS=1 # Megatron-LM requires it where tensors are split, before Blackwell\n");
  put_arguments(&out, &m);
  e->result->text = out.data;
}
