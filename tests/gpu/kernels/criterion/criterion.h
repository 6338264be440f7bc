/* A stand-in for Criterion: as much of it as the unit tests of device kernels use, for a machine that has nothing but
 * a GPU. Every test runs in a process of its own (../main.c). */
#ifndef ZPLAN_GPU_CRITERION_H
#define ZPLAN_GPU_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gpu_test {
  const char *suite, *name;
  void (*run)(void);
  struct gpu_test *next;
} gpu_test;

/* Before and after each test of a suite; NULL: nothing. */
typedef struct gpu_suite {
  const char *name;
  void (*init)(void), (*fini)(void);
  struct gpu_suite *next;
} gpu_suite;

void gpu_add_test(gpu_test *test);
void gpu_add_suite(gpu_suite *suite);

/* Tells a condition that does not hold, and ends the test if it is fatal. */
void gpu_check(bool good, bool fatal, const char *file, int line, const char *condition, const char *format, ...);
/* Ends the test, which says nothing here. */
_Noreturn void gpu_skip(const char *format, ...);

#define Test(suite_, name_, ...)                                                                                       \
  static void suite_##_##name_(void);                                                                                  \
  __attribute__((constructor)) static void add_##suite_##_##name_(void) {                                              \
    static gpu_test test = {#suite_, #name_, suite_##_##name_, NULL};                                                  \
    gpu_add_test(&test);                                                                                               \
  }                                                                                                                    \
  static void suite_##_##name_(void)

#define TestSuite(name_, ...)                                                                                          \
  __attribute__((constructor)) static void add_suite_##name_(void) {                                                   \
    static gpu_suite suite = {.name = #name_, __VA_ARGS__};                                                            \
    gpu_add_suite(&suite);                                                                                             \
  }                                                                                                                    \
  _Static_assert(1, "takes the semicolon")

#define GPU_CHECK(fatal, good, condition, ...) gpu_check(good, fatal, __FILE__, __LINE__, condition, "" __VA_ARGS__)
#define GPU_COMPARE(fatal, a, b, op, ...) GPU_CHECK(fatal, (a)op(b), #a " " #op " " #b, __VA_ARGS__)

#define cr_assert(a, ...) GPU_CHECK(true, (a), #a, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) GPU_COMPARE(true, a, b, ==, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) GPU_COMPARE(true, a, b, <, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) GPU_COMPARE(true, a, b, <=, __VA_ARGS__)
#define cr_assert_null(a, ...) GPU_COMPARE(true, a, NULL, ==, __VA_ARGS__)
#define cr_assert_not_null(a, ...) GPU_COMPARE(true, a, NULL, !=, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) GPU_CHECK(true, strcmp(a, b) == 0, #a " is " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...)                                                                               \
  GPU_CHECK(true, fabs((a) - (b)) <= (e), #a " within " #e " of " #b, __VA_ARGS__)
#define cr_assert_fail(...) GPU_CHECK(true, false, "", __VA_ARGS__)
#define cr_expect(a, ...) GPU_CHECK(false, (a), #a, __VA_ARGS__)
#define cr_expect_eq(a, b, ...) GPU_COMPARE(false, a, b, ==, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) GPU_COMPARE(false, a, b, <, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) GPU_COMPARE(false, a, b, <=, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) GPU_COMPARE(false, a, b, >, __VA_ARGS__)
#define cr_expect_null(a, ...) GPU_COMPARE(false, a, NULL, ==, __VA_ARGS__)
#define cr_expect_not_null(a, ...) GPU_COMPARE(false, a, NULL, !=, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) GPU_CHECK(false, memcmp(a, b, n) == 0, #a " is " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...)                                                                               \
  GPU_CHECK(false, fabs((a) - (b)) <= (e), #a " within " #e " of " #b, __VA_ARGS__)
#define cr_skip_test(...) gpu_skip("" __VA_ARGS__)

#endif
