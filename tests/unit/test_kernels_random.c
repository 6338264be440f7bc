/* SPDX-License-Identifier: Apache-2.0 */
/* Philox against the known answers of its authors' test file, and the moments of the initial weights. */
#include <criterion/criterion.h>
#include <math.h>
#include <zplan/zpk.h>

static void known(const uint32_t in[4], uint32_t key0, uint32_t key1, const uint32_t want[4]) {
  uint32_t word[4] = {in[0], in[1], in[2], in[3]};
  zpk_philox(word, key0, key1);
  for (int i = 0; i < 4; i++) cr_expect_eq(word[i], want[i], "word %d: %08x", i, word[i]);
}

/* philox4x32 10 lines of kat_vectors in Random123. */
Test(kernels_random, philox_known_answers) {
  known((uint32_t[]){0, 0, 0, 0}, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  uint32_t ones = 0xffffffff;
  known((uint32_t[]){ones, ones, ones, ones}, ones, ones, (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  known((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0,
        (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

Test(kernels_random, uniform_uses_the_documented_counter) {
  uint64_t seed = 0x0123456789abcdef;
  uint32_t word[4] = {1234 / 4, 7u << 16 | 9, 55, 3};
  zpk_philox(word, 0x89abcdef, 0x01234567);
  for (uint64_t i = 0; i < 4; i++)
    cr_expect_eq(zpk_philox_uniform(seed, 3, 55, 7, 9, 1232 + i), word[i] / 4294967296.0);
}

Test(kernels_random, normal_weights_have_the_right_moments) {
  enum { COUNT = 200000 };
  double sum = 0, squares = 0, cubes = 0, fourth = 0, neighbours = 0, last = 0;
  for (uint64_t e = 0; e < COUNT; e++) {
    double z = (zpk_initial_weight(42, 0xdeadbeefcafef00d, e, 0, 0.5, 0.02) - 0.5) / 0.02;
    sum += z;
    squares += z * z;
    cubes += z * z * z;
    fourth += z * z * z * z;
    neighbours += z * last;
    last = z;
  }
  /* Five standard errors of each moment of 200,000 normal numbers. */
  cr_expect_float_eq(sum / COUNT, 0, 5 * sqrt(1.0 / COUNT));
  cr_expect_float_eq(squares / COUNT, 1, 5 * sqrt(2.0 / COUNT));
  cr_expect_float_eq(cubes / COUNT, 0, 5 * sqrt(15.0 / COUNT));
  cr_expect_float_eq(fourth / COUNT, 3, 5 * sqrt(96.0 / COUNT));
  cr_expect_float_eq(neighbours / COUNT, 0, 5 * sqrt(1.0 / COUNT));
}

Test(kernels_random, other_kinds_of_weights) {
  double low = 1, high = 0, sum = 0;
  for (uint64_t e = 0; e < 10000; e++) {
    double u = zpk_initial_weight(1, 2, e, 1, -3, 5);
    cr_assert(u >= -3 && u < 5);
    low = fmin(low, u);
    high = fmax(high, u);
    sum += u;
  }
  cr_expect(low < -2.9 && high > 4.9);
  cr_expect_float_eq(sum / 10000, 1, 0.15);
  cr_expect_eq(zpk_initial_weight(1, 2, 77, 2, 1.25, 9), 1.25);
}

Test(kernels_random, weights_depend_on_seed_name_and_element) {
  double w = zpk_initial_weight(1, 2, 3, 0, 0, 1);
  cr_expect_eq(w, zpk_initial_weight(1, 2, 3, 0, 0, 1));
  cr_expect_neq(w, zpk_initial_weight(2, 2, 3, 0, 0, 1));
  cr_expect_neq(w, zpk_initial_weight(1, 3, 3, 0, 0, 1));
  cr_expect_neq(w, zpk_initial_weight(1, 2, 4, 0, 0, 1));
  cr_expect_neq(w, zpk_initial_weight(1, 2, 3 + ((uint64_t)1 << 34), 0, 0, 1));
}

Test(kernels_random, weights_do_not_depend_on_the_range) {
  for (int kind = 0; kind < 3; kind++)
    for (uint64_t first = 0; first < 5; first++)
      for (int64_t n = 0; n < 10; n++) {
        double range[11];
        range[n] = 77;
        zpk_initial_weights(1, 2, first, n, kind, 0.5, 2, range);
        for (int64_t i = 0; i < n; i++)
          cr_assert_eq(range[i], zpk_initial_weight(1, 2, first + (uint64_t)i, kind, 0.5, 2));
        cr_assert_eq(range[n], 77);
      }
}
