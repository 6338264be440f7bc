/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that wait for other ranks and cannot be asked: when a line comes, and when the end. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "internal.h"
#include "watch.h"

/* Seconds to the first alarm; 0: none. */
static int first_alarm(int warn, int end) {
  zpr_options options = {.wait_warn = warn, .wait_end = end};
  zpr_watch_call(&options, "to start");
  return (int)alarm(0);
}

Test(watch, a_line_and_the_end_are_asked_for_apart) {
  static const struct {
    int warn, end, first_s;
  } cases[] = {{0, 0, 0}, {40, 0, 40}, {0, 100, 100}, {40, 100, 40}, {100, 70, 70}, {1, 0, 30}, {0, 1, 60}, {1, 2, 30}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int first_s = first_alarm(cases[i].warn, cases[i].end);
    cr_expect(first_s == cases[i].first_s, "--wait-warn %d --wait-end %d: %d s", cases[i].warn, cases[i].end, first_s);
  }
}

static int status_after(int warn, int end, int alarms) {
  pid_t child = fork();
  if (child == 0) {
    first_alarm(warn, end);
    for (int i = 0; i < alarms; i++) raise(SIGALRM);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(watch, the_end_ends_the_process) {
  cr_expect_eq(status_after(40, 100, 1), 0);
  cr_expect_eq(status_after(40, 100, 2), ZPR_EXIT_FAILED);
  cr_expect_eq(status_after(0, 100, 1), ZPR_EXIT_FAILED, "without the line the end stays");
}
