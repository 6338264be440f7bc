/* SPDX-License-Identifier: Apache-2.0 */
/* The status line, printed by a thread, so that work that waits for another program is reported, too. One for the
 * process: there is one terminal. */
#include <zplan/screen.h>
#include <zplan/status_line.h>

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct {
  bool works; /* the thread runs */
  pthread_t thread;
  zp_status_form form;
  int columns;
  const char *what;
  double begun_s, known_s; /* known_s: when `known` was made */
  bool shown;
  char known[256];
} line;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* On a terminal the last column stays free: a full line would wrap there. */
static void print(void) {
  char text[sizeof line.known + 64];
  snprintf(text, sizeof text, "%s: %.0f s%s%s", line.what, now_s() - line.begun_s, line.known[0] ? ", " : "",
           line.known);
  if (line.form == ZP_STATUS_TERMINAL) {
    text[zp_fitting_bytes(text, line.columns - 1)] = '\0';
    fprintf(stderr, "\r\x1b[K%s", text);
  } else {
    fprintf(stderr, "%s\n", text);
  }
  fflush(stderr);
  line.shown = true;
}

static void *print_on(void *unused) {
  pthread_mutex_lock(&lock);
  double every_s = line.form == ZP_STATUS_LOG ? 10 : 0.25, next_s = line.begun_s + (every_s > 1 ? every_s : 1);
  while (line.works) {
    struct timespec until = {(time_t)next_s, (long)(1e9 * (next_s - (double)(time_t)next_s))};
    pthread_cond_timedwait(&ended, &lock, &until);
    if (!line.works || now_s() < next_s) continue;
    print();
    next_s = now_s() + every_s;
  }
  pthread_mutex_unlock(&lock);
  return unused;
}

/* Signals are for the work. */
static bool start_thread(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(&line.thread, NULL, print_on, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}

void zp_status_begin(zp_status_form form, int columns, const char *what) {
  zp_status_end();
  if (form == ZP_STATUS_NONE) return;
  line.form = form;
  line.columns = columns;
  line.what = what;
  line.begun_s = line.known_s = now_s();
  line.known[0] = '\0';
  line.works = true;
  line.works = start_thread();
}

bool zp_status_due(void) { return line.works && now_s() - line.known_s >= 0.2; }

void zp_status_say(const char *format, ...) {
  if (!line.works) return;
  va_list args;
  va_start(args, format);
  pthread_mutex_lock(&lock);
  vsnprintf(line.known, sizeof line.known, format, args);
  line.known_s = now_s();
  pthread_mutex_unlock(&lock);
  va_end(args);
}

void zp_status_end(void) {
  if (!line.works) return;
  pthread_mutex_lock(&lock);
  line.works = false;
  pthread_cond_signal(&ended);
  pthread_mutex_unlock(&lock);
  pthread_join(line.thread, NULL);
  if (line.shown && line.form == ZP_STATUS_TERMINAL) fputs("\r\x1b[K", stderr);
  fflush(stderr);
  line.shown = false;
}
