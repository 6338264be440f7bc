/* SPDX-License-Identifier: Apache-2.0 */
/* Starts compilers and waits for them. */
#include "process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

bool zp_run_compiler(zp_arena *arena, zp_strings *argv, const char *what, const char **error) {
  zp_push(arena, argv, NULL);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(argv->data[0], (char *const *)(void *)argv->data);
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) < 0) {
    *error = zp_format(arena, "could not start %s: %s", argv->data[0], strerror(errno));
    return false;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    *error = zp_format(arena, "the compiler `%s` was not found", argv->data[0]);
  else
    *error = zp_format(arena, "the compiler `%s` failed on %s", argv->data[0], what);
  return false;
}

bool zp_is_on_path(const char *tool) {
  const char *path = getenv("PATH");
  char file[4096];
  while (path && *path) {
    size_t n = strcspn(path, ":");
    snprintf(file, sizeof file, "%.*s/%s", (int)n, path, tool);
    if (access(file, X_OK) == 0) return true;
    path += n + (path[n] == ':');
  }
  return false;
}
