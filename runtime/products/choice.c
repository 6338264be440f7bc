/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels a processor shall run, as functions of its features. A library that goes by the processor's model runs
 * the oldest kernels on every model that is younger than itself: OpenBLAS 0.3.21 takes Prescott's (SSE3) on some Xeons
 * with AVX-512. */
#include "products.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { ALL = ZPR_AVX2 | ZPR_AVX512 | ZPR_AVX512_BF16 };

/* Cores of OpenBLAS for x86-64 and what their kernels use. Those with a wish are asked for, the first whose features
 * are there. Older cores than Haswell are never asked for: processors without AVX2 are older than any OpenBLAS in use,
 * so it knows their models, and what they have instead (FMA4, for one). */
static const struct {
  const char *core;
  unsigned features;
  bool wished;
} cores[] = {{"Cooperlake", ALL, true},   {"SkylakeX", ZPR_AVX2 | ZPR_AVX512, true},
             {"Haswell", ZPR_AVX2, true}, {"SapphireRapids", ALL, false},
             {"Zen", ZPR_AVX2, false},    {"Excavator", 0, false},
             {"Steamroller", 0, false},   {"Piledriver", 0, false},
             {"Bulldozer", 0, false},     {"Sandybridge", 0, false},
             {"Nehalem", 0, false},       {"Dunnington", 0, false},
             {"Penryn", 0, false},        {"Core2", 0, false},
             {"Prescott", 0, false},      {"Northwood", 0, false},
             {"Banias", 0, false},        {"Katmai", 0, false},
             {"Coppermine", 0, false},    {"Atom", 0, false},
             {"Nano", 0, false},          {"Bobcat", 0, false},
             {"Barcelona", 0, false},     {"Opteron", 0, false},
             {"Opteron_SSE3", 0, false},  {"Athlon", 0, false}};
enum { CORES = sizeof cores / sizeof *cores };

const char *zpr_openblas_core(unsigned features) {
  for (int i = 0; i < CORES; i++)
    if (cores[i].wished && (cores[i].features & ~features) == 0) return cores[i].core;
  return NULL;
}

unsigned zpr_openblas_core_features(const char *core) {
  for (int i = 0; i < CORES; i++)
    if (strcasecmp(cores[i].core, core) == 0) return cores[i].features;
  return ALL;
}

/* ---- libraries ---- */

/* The more features its kernels use the faster a library is; of two that use the same oneDNN is not slower (figures in
 * docs/design/021), but for those that it has no kernels of its own for. */
static bool onednn_is_better(const zpr_library *onednn, const zpr_library *openblas) {
  enum { WIDTHS = ZPR_AVX2 | ZPR_AVX512 }; /* what f32 products gain by */
  if (!openblas->f32) return true;
  return (onednn->features & WIDTHS) != 0 && (onednn->features & WIDTHS) >= (openblas->features & WIDTHS);
}

zpr_products zpr_choose_products(unsigned processor, const zpr_library *openblas, const zpr_library *onednn,
                                 const char *only) {
  bool has_openblas = openblas->name && !(only && strcmp(only, "openblas") != 0);
  bool has_onednn = onednn->name && !(only && strcmp(only, "onednn") != 0);
  zpr_products use = {.f32 = has_openblas ? openblas : NULL, .f64 = openblas->name ? openblas : NULL};
  if (has_onednn && (!has_openblas || onednn_is_better(onednn, openblas))) use.f32 = onednn;
  if (has_onednn && onednn->bf16 && (processor & onednn->features & ZPR_AVX512_BF16)) use.bf16 = onednn;
  return use;
}

void zpr_narrow_kernels(unsigned processor, const zpr_library *library, char *text, size_t size) {
  static const char *const names[] = {
      [ZPR_AVX2] = "avx2", [ZPR_AVX512] = "avx512", [ZPR_AVX2 | ZPR_AVX512] = "avx2 and avx512"};
  unsigned unused = processor & ~library->features & (ZPR_AVX2 | ZPR_AVX512);
  text[0] = 0;
  if (unused == 0) return;
  snprintf(
      text, size,
      "%s %s runs its %s kernels, which leave %s of this processor unused: products take about %s times as long; the "
      "variable %s chooses its kernels",
      library->name, library->version, library->kernels, names[unused],
      unused == (ZPR_AVX2 | ZPR_AVX512) ? "four" : "two", library->variable);
}
