/* The screens that a command writes to. */
#include "driver.h"

#include <stdio.h>

zp_page zp_page_for(const zp_run_state *run, FILE *out, int label) {
  return zp_page_new(run->arena, zp_screen_of(fileno(out), (zp_color_choice)run->options.color), label);
}

void zp_print_lines(const zp_run_state *run, FILE *out, const char *lines) {
  zp_page page = zp_page_for(run, out, 0);
  zp_page_lines(&page, lines);
  zp_page_put(&page, out);
}
