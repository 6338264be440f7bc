/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread's call from another process replaces. */
#include <zplan/hosted.h>

#include <stdarg.h>
#include <stdlib.h>

static _Thread_local zp_hosted *current; /* NULL: this is the command */

zp_hosted *zp_host_replace(zp_hosted *host) {
  zp_hosted *before = current;
  current = host;
  return before;
}

bool zp_is_hosted(void) { return current != NULL; }

bool zp_host_leaves(void) { return current && current->leave && *current->leave; }

FILE *zp_stream(FILE *out) {
  if (!current) return out;
  return out == stdout ? current->out : out == stderr ? current->err : out;
}

void zp_hold_descriptor(int descriptor) {
  if (current) current->descriptor = descriptor;
}

void zp_give_up(int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (current) {
    current->status = status;
    vsnprintf(current->why, sizeof current->why, format, args);
    va_end(args);
    longjmp(current->failed, 1);
  }
  fputs("error: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(status);
}
