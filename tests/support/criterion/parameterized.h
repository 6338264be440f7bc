/* SPDX-License-Identifier: Apache-2.0 */
/* A test that runs once for each of its parameters (criterion.h). */
#ifndef ZPLAN_TEST_PARAMETERIZED_H
#define ZPLAN_TEST_PARAMETERIZED_H
#pragma GCC system_header

#include "criterion.h"

#define cr_make_param_array(type, array, n)                                                                            \
  (struct criterion_test_params) { sizeof(type), n, array }

#define ParameterizedTestParameters(suite_, name_)                                                                     \
  static struct criterion_test_params params_of_##suite_##_##name_(void)

#define ParameterizedTest(param_, suite_, name_, ...)                                                                  \
  static void suite_##_##name_(param_);                                                                                \
  static void run_##suite_##_##name_(void *param) { suite_##_##name_(param); }                                         \
  ZPT_TEST(suite_, name_, params_of_##suite_##_##name_, __VA_ARGS__)                                                   \
  static void suite_##_##name_(param_)

#endif
