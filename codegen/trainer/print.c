/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a generated trainer.c. */
#include "decode.h"
#include "wrap.h"
#include "sparse.h"

#include <assert.h>
#include <zplan/quote.h>
#include <zplan/zpk.h>

static void emit_kernel_declarations(zp_emit *e) {
  int n = zp_kernels_count(e->kernels);
  if (e->gpu) {
    zp_buf_line(&e->out,
                "/* All device kernels, compiled from kernels.cu; kernels_image.S puts them into the trainer. */");
    zp_buf_line(&e->out, "extern const char kernels_image[], kernels_image_end[];");
  }
  if (n > 0 && e->gpu)
    zp_buf_line(&e->out, "/* Row kernels: the runtime looks them up by name. */");
  else if (n > 0)
    zp_buf_line(&e->out, "/* Row kernels, in kernels.o (LLVM IR alongside it in kernels.ll). */");
  for (int i = 0; i < n; i++) {
    const char *symbol = zp_kernels_symbol(e->kernels, i);
    int tiles = e->gpu ? zp_kernels_cuda_tiles(e->kernels, i) : 0;
    if (e->gpu)
      zp_buf_printf(&e->out, "static zpr_device_kernel %s = {.name = \"%s\"%s};", symbol, symbol,
                    tiles ? zp_format(e->arena, ", .tiles = %d", tiles) : "");
    else
      zp_buf_printf(&e->out, "zpk_row_kernel %s;", symbol);
    zp_buf_printf(&e->out, " /* %s */\n", zp_quote_c_comment(e->arena, zp_kernels_describe(e->kernels, i)));
  }
  if (n > 0 || e->gpu) zp_buf_puts(&e->out, "\n");
}

static zp_emit begin(zp_arena *arena, const zp_plan *plan, const zp_diags *diags) {
  return (zp_emit){.arena = arena,
                   .plan = plan,
                   .program = plan->program,
                   .lowered = plan->program->lowered,
                   .model = plan->spec->model,
                   .diags = diags,
                   .gpu = !plan->spec->cluster.node.device.is_cpu};
}

const char *zp_trainer_cannot_decode(zp_arena *arena, const zp_plan *plan, zp_span *where) {
  zp_emit e = begin(arena, plan, NULL);
  zp_no_decoding no;
  if (zp_find_decoding(&e, &no)) return NULL;
  *where = no.span;
  return no.why;
}

zp_trainer_text zp_trainer_print(zp_arena *arena, const zp_plan *plan, const zp_diags *diags, const char *arch,
                                 zp_trainer_extras extras) {
  assert(plan->feasible && (arch || plan->spec->cluster.node.device.is_cpu));
  zp_emit e = begin(arena, plan, diags);
  e.profile = extras.profile;
  if (extras.decode) e.decoding = zp_find_decoding(&e, &(zp_no_decoding){0});
  assert(!extras.decode || e.decoding);
  e.calls = zp_emit_find_calls(&e);
  e.kernels = zp_kernels_new(arena, zp_trainer_dtype(plan));
  /* Procedures go to a buffer of their own: the kernels that they use are declared above them. */
  e.out = zp_buf_new(arena);
  for (int s = 0; s < e.lowered->n_segments; s++)
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
      if (!zp_emit_variant(&e, s, mode)) continue;
      zp_emit_procedures(&e, s, mode);
    }
  zp_buf procedures = e.out;
  e.out = zp_buf_new(arena);
  zp_emit_header(&e, "Trainer", e.gpu ? arch : NULL);
  zp_buf_line(&e.out, "#include <zplan/rt.h>");
  zp_buf_puts(&e.out, "\n");
  if (zp_emit_mixed(&e))
    zp_buf_line(&e.out, "typedef uint16_t real; /* operands: %s, computed with in f32 */",
                zp_trainer_dtype(plan) == ZPK_F16 ? "f16" : "bf16");
  else
    zp_buf_line(&e.out, "typedef %s real;", e.lowered->compute_bytes == 8 ? "double" : "float");
  if (zp_emit_mixed(&e))
    zp_buf_line(&e.out, "typedef float grad; /* gradients of parameters, which are added up */");
  else
    zp_buf_line(&e.out, "typedef real grad;");
  zp_buf_puts(&e.out, "\n");
  zp_emit_tables(&e);
  zp_print_layouts(&e.out, e.model, &plan->program->choice, e.gpu);
  emit_kernel_declarations(&e);
  zp_buf_put(&e.out, procedures.data, procedures.len);
  zp_emit_walks(&e);
  zp_emit_order(&e);
  zp_emit_profile_tables(&e);
  zp_emit_program(&e);
  return (zp_trainer_text){
      .trainer_c = zp_wrap(arena, e.out.data), .kernels = e.kernels, .makefile = zp_emit_makefile(&e, arch)};
}
