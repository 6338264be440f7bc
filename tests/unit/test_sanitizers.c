/* SPDX-License-Identifier: Apache-2.0 */
/* The build with sanitizers ends a process at the first fault, whether it says where (ZPLAN_UB_MESSAGES) or not. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include "planted.h"

#ifdef __SANITIZE_ADDRESS__
#ifdef ZPLAN_UB_MESSAGES
#define UNDEFINED .exit_code = 1
#else
#define UNDEFINED .signal = SIGILL
#endif
#define ADDRESS .exit_code = 1

Test(sanitizers, numbers_as_they_should_be) {
  int x[4] = {0};
  planted_write(x, 3);
  cr_expect_eq(planted_sum(INT_MAX, -1), INT_MAX - 1);
  cr_expect_eq(planted_shift(1, 30), 1 << 30);
  cr_expect_eq(planted_quotient(7, 2), 3);
  cr_expect_eq(planted_row(3) + planted_read(x, 3), 5);
}

/* What a sanitizer says there is no failure of this program. */
Test(sanitizers, overflow, UNDEFINED) {
  cr_redirect_stderr();
  planted_sum(INT_MAX, 1);
}
Test(sanitizers, shift, UNDEFINED) {
  cr_redirect_stderr();
  planted_shift(1, 32);
}
Test(sanitizers, quotient, UNDEFINED) {
  cr_redirect_stderr();
  planted_quotient(INT_MIN, -1);
}
Test(sanitizers, bounds, UNDEFINED) {
  cr_redirect_stderr();
  planted_row(4);
}

Test(sanitizers, read_beyond, ADDRESS) {
  cr_redirect_stderr();
  planted_read(malloc(4 * sizeof(int)), 4);
}
Test(sanitizers, write_beyond, ADDRESS) {
  int x[4];
  cr_redirect_stderr();
  planted_write(x, 4);
}
Test(sanitizers, read_of_what_was_freed, ADDRESS) {
  int *volatile x = malloc(4 * sizeof *x); /* volatile: the compiler, too, finds this one */
  cr_redirect_stderr();
  free(x);
  planted_read(x, 0);
}
Test(sanitizers, leak, ADDRESS) {
  cr_redirect_stderr();
  int *x = malloc(4 * sizeof *x);
  planted_write(x, 0);
}
#else
Test(sanitizers, of_the_other_build) { cr_skip_test("this build has none"); }
#endif
