/* SPDX-License-Identifier: Apache-2.0 */
/* The random stream that every plan shares. */
#include <criterion/criterion.h>
#include <zplan/philox.h>

/* The three philox4x32-10 vectors of Random123's kat_vectors file: counter, key, result. */
static const uint32_t known[][10] = {
    {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
    {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
     0x6d5451fd},
    {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
     0x24126ea1},
};

Test(philox, known_answers) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint32_t out[4];
    zp_philox4x32(known[i] + 4, known[i], out);
    for (int w = 0; w < 4; w++) cr_assert_eq(out[w], known[i][6 + w], "vector %zu word %d: %08x", i, w, out[w]);
  }
}

/* The words of one counter in order, and every coordinate changes the number. */
Test(philox, uniform_places_its_coordinates) {
  uint32_t key[2] = {7, 1}, counter[4] = {2, 5u << 16 | 9, 3, 4}, out[4];
  zp_philox4x32(key, counter, out);
  uint64_t seed = (uint64_t)1 << 32 | 7;
  for (uint64_t w = 0; w < 4; w++) cr_assert_eq(zp_philox_uniform(seed, 4, 3, 5, 9, 8 + w), out[w] / 4294967296.0);
  double here = zp_philox_uniform(1, 1, 1, 1, 1, 1);
  cr_assert_neq(here, zp_philox_uniform(2, 1, 1, 1, 1, 1));
  cr_assert_neq(here, zp_philox_uniform(1, 2, 1, 1, 1, 1));
  cr_assert_neq(here, zp_philox_uniform(1, 1, 2, 1, 1, 1));
  cr_assert_neq(here, zp_philox_uniform(1, 1, 1, 2, 1, 1));
  cr_assert_neq(here, zp_philox_uniform(1, 1, 1, 1, 2, 1));
  cr_assert_neq(here, zp_philox_uniform(1, 1, 1, 1, 1, 2));
}

/* 40,000 draws: the mean of a uniform has standard deviation 0.29/200 = 0.0014; 5 of them are allowed. */
Test(philox, mean_of_many) {
  double sum = 0;
  for (uint64_t i = 0; i < 40000; i++) {
    double u = zp_philox_uniform(99, 0, i / 1000, 3, 0, i % 1000);
    cr_assert(u >= 0 && u < 1);
    sum += u;
  }
  cr_assert_float_eq(sum / 40000, 0.5, 0.0072);
}
