/* zplan calibrate: runs the measuring programs, writes the file for --calibration. */
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_SECONDS = 30, LEAST_SECONDS = 10, MOST_SECONDS = 600, LINK_SHARE = 6 };
static const char default_file[] = "machine.zcal.json";

/* ---- running the programs ---- */

/* One line of output: name, value, unit, how, between tabs. */
static void take_row(zp_arena *arena, char *line, zp_calibration *c) {
  char *field[4] = {line};
  for (int i = 1; i < 4; i++) {
    field[i] = strchr(field[i - 1], '\t');
    if (!field[i]) return;
    *field[i]++ = '\0';
  }
  field[3][strcspn(field[3], "\n")] = '\0';
  zp_measurement row = {zp_strdup(arena, field[0]), strtod(field[1], NULL), zp_strdup(arena, field[2]),
                        zp_strdup(arena, field[3])};
  if (row.value > 0) zp_push(arena, &c->rows, row);
}

bool zp_run_measuring(zp_arena *arena, const char *const *argv, zp_calibration *c) {
  int fds[2];
  if (pipe(fds) != 0) return false;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody waits for a measurement that was interrupted */
    dup2(fds[1], STDOUT_FILENO);
    close(fds[0]);
    close(fds[1]);
    execvp(argv[0], (char *const *)(void *)argv);
    zp_say(stderr, "error[Z0704]: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }
  close(fds[1]);
  FILE *in = fdopen(fds[0], "r");
  char line[1024];
  while (pid > 0 && in && fgets(line, sizeof line, in)) take_row(arena, line, c);
  if (in) fclose(in);
  int status = 1;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool measure_compute(zp_run_state *run, double seconds, const char *folder, zp_calibration *c) {
  const char *binary = zp_format(run->arena, "%s/zplan-calibrate", zp_program_dir(run->arena));
  const char *argv[] = {binary, "compute", zp_format(run->arena, "%g", seconds), folder, NULL};
  if (zp_run_measuring(run->arena, argv, c)) return true;
  zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "cannot measure this machine: %s failed", binary);
  return false;
}

/* Where there is no GPU it says so, and the library's rates stay. */
static void measure_gpu(zp_run_state *run, double seconds, zp_calibration *c) {
  const char *binary = zp_format(run->arena, "%s/zplan-calibrate", zp_program_dir(run->arena));
  const char *argv[] = {binary, "gpu", zp_format(run->arena, "%g", seconds), NULL};
  int before = c->rows.len;
  if (zp_run_measuring(run->arena, argv, c)) return;
  c->rows.len = before;
  zp_say(stderr, "zplan: the GPU was not measured: %s failed\n", binary);
}

/* Without MPI only the links stay the library's. */
static void measure_links(zp_run_state *run, double seconds, zp_calibration *c) {
  const char *binary = zp_format(run->arena, "%s/zplan-calibrate-mpi", zp_program_dir(run->arena));
  zp_strings argv = {0};
  zp_push_mpirun(run->arena, &argv, 2, NULL);
  const char *rest[] = {binary, "links", zp_format(run->arena, "%g", seconds), NULL};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) zp_push(run->arena, &argv, rest[i]);
  int before = c->rows.len;
  if (!zp_run_measuring(run->arena, argv.data, c)) {
    c->rows.len = before;
    fprintf(stderr, "zplan: messages between ranks were not measured (is mpirun.openmpi installed?)\n");
  }
  zp_end_mpirun();
}

/* ---- the file ---- */

static const char *machine_name(zp_arena *arena) {
  FILE *f = fopen("/proc/cpuinfo", "r");
  char line[512];
  const char *name = "unknown processor";
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
      char *value = strchr(line, ':') + 1;
      value += strspn(value, " ");
      value[strcspn(value, "\n")] = '\0';
      name = zp_strdup(arena, value);
      break;
    }
  if (f) fclose(f);
  return zp_format(arena, "%s, %ld processors", name, sysconf(_SC_NPROCESSORS_ONLN));
}

static const char *today(zp_arena *arena) {
  time_t t = time(NULL);
  struct tm utc;
  char text[32] = "";
  if (gmtime_r(&t, &utc)) strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return zp_strdup(arena, text);
}

/* What the file holds now; NULL: no calibration. */
static const zp_calibration *read_old(zp_arena *arena, const char *path) {
  size_t len;
  const char *error;
  const char *text = access(path, R_OK) == 0 ? zp_read_file(arena, path, &len, &error) : NULL;
  zp_json *json = text ? zp_json_parse(arena, text, len, &error) : NULL;
  const zp_calibration *old = json ? zp_calibration_read(arena, json, &error) : NULL;
  zp_json_free(json);
  return old;
}

/* "+12%" against the file that is replaced. */
static const char *change_of(zp_arena *arena, const zp_calibration *old, const zp_measurement *row) {
  double before = old ? zp_calibration_value(old, row->name, 0) : 0;
  return before > 0 ? zp_format(arena, "%+.0f%%", 100 * (row->value / before - 1)) : old ? "new" : "";
}

/* Rows without sizes; those of products and of attention are hundreds and only in the file. */
static void print_rows(zp_run_state *run, const zp_calibration *c, const zp_calibration *old) {
  for (int i = 0; i < c->rows.len; i++) {
    const zp_measurement *row = &c->rows.data[i];
    if ((strstr(row->name, "gemm_") || strstr(row->name, "attention_")) && strchr(row->name, 'x')) continue;
    const char *value = strcmp(row->unit, "s") == 0 ? zp_show_seconds(run->arena, row->value)
                        : row->value < 1000
                            ? zp_format(run->arena, "%.3g %s", row->value, row->unit)
                            : zp_format(run->arena, "%s%s", zp_show_count(run->arena, row->value), row->unit);
    zp_say(stdout, "  %-26s %16s %*s   %s\n", row->name, value, old ? 6 : 0, change_of(run->arena, old, row), row->how);
  }
}

void zp_warn_busy(void) {
  double load;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (getloadavg(&load, 1) == 1 && processors > 0 && load > 0.5 * (double)processors)
    fprintf(stderr, "warning: the machine is busy (load %.1f on %ld processors): measured times are too long\n", load,
            processors);
}

static int cannot_write(zp_run_state *run, const char *error) {
  zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the calibration: %s", error);
  zp_flush_diags(run);
  return ZP_EXIT_ERROR;
}

int zp_cmd_calibrate(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (o->files.len) return zp_usage_error("`zplan calibrate` takes no file; -o says where to write");
  if (o->seconds && (o->seconds < LEAST_SECONDS || o->seconds > MOST_SECONDS))
    return zp_usage_error("-t wants %d to %d seconds, not %lld", LEAST_SECONDS, MOST_SECONDS, (long long)o->seconds);
  const char *path = o->output ? o->output : default_file, *slash = strrchr(path, '/');
  const char *folder = slash ? zp_strndup(run->arena, path, (size_t)(slash - path)) : ".";
  double seconds = o->seconds ? (double)o->seconds : DEFAULT_SECONDS;
  const char *error = NULL;
  if (!zp_can_write(run->arena, path, &error)) return cannot_write(run, error);
  const zp_calibration *old = read_old(run->arena, path); /* what this one is compared with, and takes the place of */
  if (!old && !zp_may_replace(run, path, NULL)) return ZP_EXIT_ERROR;
  zp_calibration c = {.machine = machine_name(run->arena), .date = today(run->arena)};
  zp_say(stderr, "measuring %s for about %.0f s\n", c.machine, seconds);
  zp_warn_busy();
  if (!measure_compute(run, seconds * (LINK_SHARE - 1) / LINK_SHARE, folder, &c)) {
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  measure_links(run, seconds / LINK_SHARE, &c);
  measure_gpu(run, seconds / LINK_SHARE, &c);
  zp_calibration_fit_gpu(run->arena, &c);
  zp_json *json = zp_calibration_json(&c);
  const char *text = zp_json_text(run->arena, json, true);
  zp_json_free(json);
  if (!zp_write_file(run->arena, path, text, strlen(text), &error)) return cannot_write(run, error);
  print_rows(run, &c, old);
  if (old)
    zp_say(stdout, "%%: against what %s held before, of %s on %s\n", path, old->date ? old->date : "an unknown day",
           old->machine ? old->machine : "an unknown machine");
  zp_say(stdout, "calibration written to %s (zplan FILE.dz --calibration %s)\n", path, path);
  return ZP_EXIT_OK;
}
