/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for Criterion: as much of it as the unit tests use. Criterion starts a test as a new program, whose
 * libraries are loaded again, and each of its checks is a hundred instructions that the compiler expands: with
 * sanitizers that was a sixth of what the unit tests cost. Here a test is a fork, and a check that holds is a
 * comparison. Who runs tests: main.c beside this; gpu/kernels/main.c on a machine that has nothing but a GPU. */
#ifndef ZPLAN_TEST_CRITERION_H
#define ZPLAN_TEST_CRITERION_H
#pragma GCC system_header /* as Criterion's: a comparison of two types is the test's own affair */

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a test or a suite says of itself. exit_code, signal: how the test's process must end. timeout: seconds of
 * processor time. */
typedef struct zpt_options {
  void (*init)(void), (*fini)(void);
  int exit_code, signal;
  double timeout;
} zpt_options;

struct criterion_test_params {
  size_t size, length;
  void *params;
};

typedef struct zpt_test {
  const char *suite, *name;
  void (*run)(void *param);
  struct criterion_test_params (*params)(void); /* NULL: none, one run */
  zpt_options options;
  struct zpt_test *next;
} zpt_test;

typedef struct zpt_suite {
  const char *name;
  zpt_options options;
  struct zpt_suite *next;
} zpt_suite;

void zpt_add_test(zpt_test *test);
void zpt_add_suite(zpt_suite *suite);

/* Tells a condition that does not hold, and ends the test if it is fatal. */
void zpt_failed(bool fatal, const char *file, int line, const char *condition, const char *format, ...);
/* Ends the test, which says nothing here. */
_Noreturn void zpt_skip(const char *format, ...);

#define ZPT_TEST(suite_, name_, params_, ...)                                                                          \
  __attribute__((constructor)) static void add_##suite_##_##name_(void) {                                              \
    static zpt_test test = {#suite_, #name_, run_##suite_##_##name_, params_, {__VA_ARGS__}, NULL};                    \
    zpt_add_test(&test);                                                                                               \
  }

#define Test(suite_, name_, ...)                                                                                       \
  static void suite_##_##name_(void);                                                                                  \
  static void run_##suite_##_##name_(void *param) {                                                                    \
    (void)param;                                                                                                       \
    suite_##_##name_();                                                                                                \
  }                                                                                                                    \
  ZPT_TEST(suite_, name_, NULL, __VA_ARGS__)                                                                           \
  static void suite_##_##name_(void)

#define TestSuite(name_, ...)                                                                                          \
  __attribute__((constructor)) static void add_suite_##name_(void) {                                                   \
    static zpt_suite suite = {#name_, {__VA_ARGS__}, NULL};                                                            \
    zpt_add_suite(&suite);                                                                                             \
  }                                                                                                                    \
  _Static_assert(1, "takes the semicolon")

#define ZPT_CHECK(fatal, good, condition, ...)                                                                         \
  ((good) ? (void)0 : zpt_failed(fatal, __FILE__, __LINE__, condition, "" __VA_ARGS__))
#define ZPT_COMPARE(fatal, a, b, op, ...) ZPT_CHECK(fatal, (a)op(b), #a " " #op " " #b, __VA_ARGS__)
#define ZPT_NULL(fatal, a, op, ...) ZPT_CHECK(fatal, (a)op NULL, #a " " #op " NULL", __VA_ARGS__)
#define ZPT_TEXT(fatal, a, b, op, ...) ZPT_CHECK(fatal, strcmp(a, b) op 0, #a " " #op " " #b, __VA_ARGS__)
#define ZPT_BYTES(fatal, a, b, op, n, ...) ZPT_CHECK(fatal, memcmp(a, b, n) op 0, #a " " #op " " #b, __VA_ARGS__)
#define ZPT_NEAR(fatal, a, b, e, ...) ZPT_CHECK(fatal, fabs((a) - (b)) <= (e), #a " within " #e " of " #b, __VA_ARGS__)

#define cr_assert(a, ...) ZPT_CHECK(true, (a), #a, __VA_ARGS__)
#define cr_assert_not(a, ...) ZPT_CHECK(true, !(a), "not " #a, __VA_ARGS__)
#define cr_assert_fail(...) ZPT_CHECK(true, false, "", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) ZPT_COMPARE(true, a, b, ==, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) ZPT_COMPARE(true, a, b, !=, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) ZPT_COMPARE(true, a, b, <, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) ZPT_COMPARE(true, a, b, <=, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) ZPT_COMPARE(true, a, b, >, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) ZPT_COMPARE(true, a, b, >=, __VA_ARGS__)
#define cr_assert_null(a, ...) ZPT_NULL(true, a, ==, __VA_ARGS__)
#define cr_assert_not_null(a, ...) ZPT_NULL(true, a, !=, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) ZPT_TEXT(true, a, b, ==, __VA_ARGS__)
#define cr_assert_str_empty(a, ...) ZPT_TEXT(true, a, "", ==, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) ZPT_BYTES(true, a, b, ==, n, __VA_ARGS__)
#define cr_assert_arr_neq(a, b, n, ...) ZPT_BYTES(true, a, b, !=, n, __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...) ZPT_NEAR(true, a, b, e, __VA_ARGS__)

#define cr_expect(a, ...) ZPT_CHECK(false, (a), #a, __VA_ARGS__)
#define cr_expect_not(a, ...) ZPT_CHECK(false, !(a), "not " #a, __VA_ARGS__)
#define cr_expect_fail(...) ZPT_CHECK(false, false, "", __VA_ARGS__)
#define cr_expect_eq(a, b, ...) ZPT_COMPARE(false, a, b, ==, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) ZPT_COMPARE(false, a, b, !=, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) ZPT_COMPARE(false, a, b, <, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) ZPT_COMPARE(false, a, b, <=, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) ZPT_COMPARE(false, a, b, >, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) ZPT_COMPARE(false, a, b, >=, __VA_ARGS__)
#define cr_expect_null(a, ...) ZPT_NULL(false, a, ==, __VA_ARGS__)
#define cr_expect_not_null(a, ...) ZPT_NULL(false, a, !=, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) ZPT_TEXT(false, a, b, ==, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) ZPT_TEXT(false, a, b, !=, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) ZPT_BYTES(false, a, b, ==, n, __VA_ARGS__)
#define cr_expect_arr_neq(a, b, n, ...) ZPT_BYTES(false, a, b, !=, n, __VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...) ZPT_NEAR(false, a, b, e, __VA_ARGS__)

#define cr_skip_test(...) zpt_skip("" __VA_ARGS__)

#endif
