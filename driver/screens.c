/* SPDX-License-Identifier: Apache-2.0 */
/* The screens that a command writes to. */
#include "driver.h"

#include <stdio.h>
#include <unistd.h>
#include <zplan/hosted.h>
#include <zplan/interrupt.h>

zp_page zp_page_for(const zp_run_state *run, FILE *out, int label) {
  return zp_page_new(run->arena, zp_screen_of(fileno(zp_stream(out)), (zp_color_choice)run->options.color), label);
}

void zp_print_lines(const zp_run_state *run, FILE *out, const char *lines) {
  zp_page page = zp_page_for(run, out, 0);
  zp_page_lines(&page, lines);
  zp_page_put(&page, out);
}

void zp_begin_work(const zp_run_state *run, const char *what) {
  if (zp_is_hosted()) return; /* standard error is the host's, and there is one status line for a process */
  bool terminal = isatty(STDERR_FILENO);
  zp_status_form form = terminal ? ZP_STATUS_TERMINAL : run->options.progress ? ZP_STATUS_LOG : ZP_STATUS_NONE;
  zp_status_begin(form, zp_screen_of(STDERR_FILENO, ZP_COLOR_NEVER).width, what);
}

zp_plan *zp_search_patiently(zp_run_state *run, const zp_spec *spec, int devices, const zp_search_options *options) {
  zp_begin_work(run, "searching");
  zp_interrupt_catch();
  zp_plan *plan = zp_search(run->arena, spec, devices, options);
  run->interrupted |= zp_interrupt_release();
  zp_status_end();
  return plan;
}
