/* SPDX-License-Identifier: Apache-2.0 */
/* Which library and kernels multiply: a function of the processor's features. And every library on random products
 * against sums in f64. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"
#include "narrow_testing.h"
#include "products/products.h"

enum { WIDE = ZPR_AVX2 | ZPR_AVX512, ALL = WIDE | ZPR_AVX512_BF16 };

/* ---- OpenBLAS's core ---- */

Test(choice, cores_follow_features) {
  static const struct {
    unsigned features;
    const char *core;
  } table[] = {{0, NULL}, {ZPR_AVX2, "Haswell"}, {WIDE, "SkylakeX"}, {ALL, "Cooperlake"}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const char *core = zpr_openblas_core(table[i].features);
    cr_assert((core == NULL) == (table[i].core == NULL) && (!core || strcmp(core, table[i].core) == 0),
              "features %u: %s", table[i].features, core ? core : "none");
  }
}

Test(choice, no_core_needs_what_the_processor_lacks) {
  for (unsigned features = 0; features <= ALL; features++) {
    const char *core = zpr_openblas_core(features);
    if (core) cr_assert((zpr_openblas_core_features(core) & ~features) == 0, "%s for features %u", core, features);
  }
}

Test(choice, features_of_cores) {
  cr_assert(zpr_openblas_core_features("Prescott") == 0);
  cr_assert(zpr_openblas_core_features("haswell") == ZPR_AVX2); /* as users may write it */
  cr_assert(zpr_openblas_core_features("Zen") == ZPR_AVX2);
  cr_assert(zpr_openblas_core_features("a core of next year") == ALL);
}

/* ---- which library ---- */

static bool product(const zpr_operands *p) { return p != NULL; }

static zpr_library a_library(const char *name, unsigned features, bool f64) {
  zpr_library l = {.name = name, .features = features, .f32 = product, .variable = "VARIABLE"};
  strcpy(l.version, "1.2.3");
  strcpy(l.kernels, "Old");
  if (f64) l.f64 = product;
  if (!f64 && features == ALL) l.bf16 = product;
  return l;
}

/* OpenBLAS takes a processor that it does not know for a Prescott: the trainer's products are as wide as the
 * processor. */
Test(choice, unknown_processor_with_avx512) {
  zpr_library openblas = a_library("OpenBLAS", 0, true), onednn = a_library("oneDNN", WIDE, false);
  zpr_products use = zpr_choose_products(WIDE, &openblas, &onednn, NULL);
  cr_assert(use.f32 == &onednn && use.f64 == &openblas && use.bf16 == NULL);
  cr_assert_str_eq(zpr_openblas_core(WIDE), "SkylakeX"); /* and this is what OpenBLAS is told */
}

Test(choice, wider_kernels_win) {
  static const struct {
    unsigned openblas, onednn;
    bool second;
  } table[] = {{ALL, ALL, true}, {WIDE, WIDE, true},   {WIDE, ZPR_AVX2, false}, {ZPR_AVX2, ZPR_AVX2, true},
               {0, 0, false},    {ZPR_AVX2, 0, false}, {0, ZPR_AVX2, true}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    zpr_library openblas = a_library("OpenBLAS", table[i].openblas, true);
    zpr_library onednn = a_library("oneDNN", table[i].onednn, false);
    cr_assert((zpr_choose_products(ALL, &openblas, &onednn, NULL).f32 == &onednn) == table[i].second, "row %d", (int)i);
  }
}

Test(choice, bf16_where_the_processor_has_it) {
  zpr_library openblas = a_library("OpenBLAS", ALL, true), onednn = a_library("oneDNN", ALL, false);
  cr_assert(zpr_choose_products(ALL, &openblas, &onednn, NULL).bf16 == &onednn);
  cr_assert(zpr_choose_products(WIDE, &openblas, &onednn, NULL).bf16 == NULL);
  cr_assert(zpr_choose_products(ALL, &openblas, &onednn, "openblas").bf16 == NULL);
}

Test(choice, what_is_missing_and_what_is_asked_for) {
  zpr_library openblas = a_library("OpenBLAS", ALL, true), onednn = a_library("oneDNN", ALL, false), none = {0};
  zpr_products use = zpr_choose_products(ALL, &openblas, &none, NULL);
  cr_assert(use.f32 == &openblas && use.f64 == &openblas && use.bf16 == NULL);
  use = zpr_choose_products(ALL, &none, &onednn, NULL);
  cr_assert(use.f32 == &onednn && use.f64 == NULL && use.bf16 == &onednn);
  use = zpr_choose_products(ALL, &none, &none, NULL);
  cr_assert(use.f32 == NULL && use.f64 == NULL && use.bf16 == NULL);
  use = zpr_choose_products(ALL, &openblas, &onednn, "openblas");
  cr_assert(use.f32 == &openblas);
  use = zpr_choose_products(ALL, &openblas, &onednn, "onednn");
  cr_assert(use.f32 == &onednn && use.f64 == &openblas); /* f64 has one library */
  use = zpr_choose_products(ALL, &openblas, &none, "onednn");
  cr_assert(use.f32 == NULL);
}

Test(choice, narrow_kernels_are_told) {
  char text[320];
  zpr_library old = a_library("OpenBLAS", 0, true), middle = a_library("OpenBLAS", ZPR_AVX2, true);
  zpr_narrow_kernels(WIDE, &old, text, sizeof text);
  cr_assert(strstr(text, "avx2 and avx512 of") && strstr(text, "four times") && strstr(text, "VARIABLE"), "%s", text);
  zpr_narrow_kernels(ALL, &middle, text, sizeof text);
  cr_assert(strstr(text, "leave avx512 of") && strstr(text, "two times"), "%s", text);
  zpr_narrow_kernels(ZPR_AVX2, &middle, text, sizeof text);
  cr_assert_str_empty(text);
  zpr_narrow_kernels(0, &old, text, sizeof text);
  cr_assert_str_empty(text);
}

/* ---- what OpenBLAS runs on this machine; every test is a process of its own ---- */

Test(openblas, without_a_variable_it_is_as_wide_as_the_processor) {
  char text[320];
  unsetenv("OPENBLAS_CORETYPE");
  const zpr_library *openblas = zpr_openblas();
  cr_assert(openblas->name, "OpenBLAS is not on this machine");
  zpr_narrow_kernels(zpr_processor_features(), openblas, text, sizeof text);
  cr_assert_str_empty(text);
}

/* Whatever model it takes the processor for. */
Test(openblas, it_is_told_the_core) {
  unsetenv("OPENBLAS_CORETYPE");
  const char *core = zpr_openblas_core(zpr_processor_features());
  cr_assert(zpr_openblas()->name);
  cr_assert((core == NULL) == (getenv("OPENBLAS_CORETYPE") == NULL));
  if (core) cr_assert_str_eq(getenv("OPENBLAS_CORETYPE"), core);
}

#if defined(__x86_64__)
Test(openblas, the_users_variable_wins) {
  setenv("OPENBLAS_CORETYPE", "Prescott", true);
  cr_assert_str_eq(zpr_openblas()->kernels, "Prescott");
  cr_assert_str_eq(getenv("OPENBLAS_CORETYPE"), "Prescott");
}
#endif

/* ---- random products against sums in f64 ---- */

static uint64_t state = 0x9E3779B97F4A7C15u;

static uint64_t random_bits(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 16;
}

static double random_value(void) { return (double)(random_bits() % 2000001) / 1e6 - 1; }

/* Small ones and edges of the kernels' blocks are as frequent as large ones. */
static int64_t random_side(void) {
  static const int64_t most[] = {4, 20, 70, 200};
  return 1 + (int64_t)(random_bits() % (uint64_t)most[random_bits() % 4]);
}

static void *random_matrix(zpk_dtype d, int64_t count) {
  void *x = malloc((size_t)(count * zpk_bytes(d)));
  for (int64_t i = 0; i < count; i++) put_as(d, x, i, random_value());
  return x;
}

/* An element's error is at most its number of roundings times the unit of what it is summed in times the sum of its
 * terms' magnitudes; in 16 bits the result is rounded once more. */
static double bound_of(zpk_dtype d, int64_t k, double magnitudes) {
  double unit = d == ZPK_F64 ? ldexp(1, -53) : ldexp(1, -24);
  return ((double)k + 2) * unit * magnitudes + (zpk_is_narrow(d) ? narrow_unit(d) * magnitudes : 0);
}

static void check_product(zpr *c, int number) {
  zpk_dtype d = c->program->dtype;
  int64_t m = random_side(), n = random_side(), k = random_side();
  bool ta = random_bits() & 1, tb = random_bits() & 1, accumulate = (random_bits() & 1) && !zpk_is_narrow(d);
  int64_t pad = (int64_t)(random_bits() % 3), lda = (ta ? m : k) + 3 * pad, ldb = (tb ? k : n) + pad, ldy = n + 7 * pad;
  void *a = random_matrix(d, (ta ? k : m) * lda), *b = random_matrix(d, (tb ? n : k) * ldb);
  void *y = random_matrix(d, m * ldy), *before = malloc((size_t)(m * ldy * zpk_bytes(d)));
  for (int64_t i = 0; !accumulate && i < m; i++) /* nothing of what is overwritten may stay */
    for (int64_t j = 0; j < n; j++) put_as(d, y, i * ldy + j, NAN);
  memcpy(before, y, (size_t)(m * ldy * zpk_bytes(d)));
  zpr_gemm(c, ta, tb, m, n, k, a, lda, b, ldb, accumulate, y, ldy);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < ldy; j++) {
      double got = get_as(d, y, i * ldy + j), want = j >= n || accumulate ? get_as(d, before, i * ldy + j) : 0;
      double magnitudes = fabs(want);
      for (int64_t e = 0; j < n && e < k; e++) {
        double term = get_as(d, a, ta ? e * lda + i : i * lda + e) * get_as(d, b, tb ? j * ldb + e : e * ldb + j);
        want += term;
        magnitudes += fabs(term);
      }
      double bound = j < n ? bound_of(d, k, magnitudes) : 0;
      cr_assert(fabs(got - want) <= bound,
                "product %d, %d x %d x %d, trans %d %d, accumulate %d: [%d][%d] is %.9g, not %.9g", number, (int)m,
                (int)n, (int)k, ta, tb, accumulate, (int)i, (int)j, got, want);
    }
  free(a), free(b), free(y), free(before);
}

static void check_products(zpk_dtype dtype, const char *library, int threads) {
  enum { PRODUCTS = 60 };
  zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1};
  zpr_stage stage = {.arena_bytes = 256 + ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES};
  program.stages = &stage;
  zpr_options options = zpr_default_options;
  options.threads = threads;
  options.products = library;
  int argc = 0;
  char **argv = NULL;
  zpr c;
  zpr_open(&c, &program, &options, &argc, &argv);
  for (int i = 0; i < PRODUCTS; i++) check_product(&c, i);
  zpr_close(&c);
}

/* OpenBLAS with the kernels of a core, where the processor can run them. */
static void check_core(zpk_dtype dtype, const char *core) {
  if (zpr_openblas_core_features(core) & ~zpr_processor_features())
    cr_skip_test("the processor has no %s", zpr_features_text(zpr_openblas_core_features(core)));
  setenv("OPENBLAS_CORETYPE", core, true);
  check_products(dtype, "openblas", 1);
  cr_assert_str_eq(zpr_openblas()->kernels, core);
}

static void check_onednn(zpk_dtype dtype, const char *isa, int threads) {
  if (isa) setenv("ONEDNN_MAX_CPU_ISA", isa, true);
  if (!zpr_onednn()->name) cr_skip_test("oneDNN is not on this machine");
  check_products(dtype, "onednn", threads);
}

Test(random, f32_onednn) { check_onednn(ZPK_F32, NULL, 1); }
Test(random, f32_onednn_threads) { check_onednn(ZPK_F32, NULL, 3); }
Test(random, f32_onednn_avx2) { check_onednn(ZPK_F32, "AVX2", 1); }
Test(random, bf16_onednn) { check_onednn(ZPK_BF16, NULL, 1); }
Test(random, bf16_onednn_threads) { check_onednn(ZPK_BF16, NULL, 3); }
Test(random, bf16_onednn_widened) { check_onednn(ZPK_BF16, "AVX512_CORE", 1); }
Test(random, f16_onednn) { check_onednn(ZPK_F16, NULL, 1); }
Test(random, bf16_openblas) { check_products(ZPK_BF16, "openblas", 1); }
Test(random, f32_openblas) { check_products(ZPK_F32, "openblas", 2); }
Test(random, f64_openblas) { check_products(ZPK_F64, NULL, 2); }
#if defined(__x86_64__)
Test(random, f32_prescott) { check_core(ZPK_F32, "Prescott"); }
Test(random, f32_haswell) { check_core(ZPK_F32, "Haswell"); }
Test(random, f32_skylakex) { check_core(ZPK_F32, "SkylakeX"); }
Test(random, f32_cooperlake) { check_core(ZPK_F32, "Cooperlake"); }
Test(random, f64_haswell) { check_core(ZPK_F64, "Haswell"); }
Test(random, f64_skylakex) { check_core(ZPK_F64, "SkylakeX"); }
Test(random, f64_cooperlake) { check_core(ZPK_F64, "Cooperlake"); }
#endif
