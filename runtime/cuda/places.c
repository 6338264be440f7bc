/* SPDX-License-Identifier: Apache-2.0 */
/* Where CUDA's libraries may be. Wheels: pip puts those of NVIDIA into nvidia/PART/lib of a folder of packages
 * (cuda_nvrtc, cublas, nccl; since CUDA 13 all in cu13). Which folders of packages python3 has is read off the folder
 * of the python3 that a shell would find, so that no process need be started: a rank under mpirun had better not
 * fork. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zplan/cuda_places.h>

static void add(zpr_cuda_files *files, const char *folder, const char *name, const char *version) {
  if (files->n == ZPR_CUDA_FILES) return;
  char *path = files->path[files->n];
  int n = snprintf(path, ZPR_CUDA_PATH, "%s%s%s%s", folder, *folder ? "/" : "", name, version);
  if (n < 0 || n >= ZPR_CUDA_PATH || (*folder && access(path, R_OK) != 0)) return;
  for (int i = 0; i < files->n; i++)
    if (strcmp(files->path[i], path) == 0) return;
  files->n++;
}

static void add_below(zpr_cuda_files *files, const char *toolkit, const char *name, const char *version) {
  static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"};
  char folder[ZPR_CUDA_PATH];
  for (size_t i = 0; toolkit && *toolkit && i < sizeof folders / sizeof *folders; i++)
    if (snprintf(folder, sizeof folder, "%s/%s", toolkit, folders[i]) < (int)sizeof folder)
      add(files, folder, name, version);
}

/* ---- wheels ---- */

static void add_packages(zpr_cuda_files *files, const char *prefix, const char *name, const char *version) {
  static const char *const packages[] = {"lib/python3*/site-packages", "lib64/python3*/site-packages",
                                         "local/lib/python3*/dist-packages", "lib/python3/dist-packages"};
  for (size_t i = 0; i < sizeof packages / sizeof *packages; i++) {
    char pattern[ZPR_CUDA_PATH];
    glob_t found = {0};
    int n = snprintf(pattern, sizeof pattern, "%s/%s/nvidia/*/lib", prefix, packages[i]);
    if (n > 0 && n < (int)sizeof pattern && glob(pattern, 0, NULL, &found) == 0)
      for (size_t k = 0; k < found.gl_pathc; k++) add(files, found.gl_pathv[k], name, version);
    globfree(&found);
  }
}

/* The folder above that of the file: "/opt/venv" of "/opt/venv/bin/python3". In place; false: there is none. */
static bool to_prefix(char *path) {
  for (int i = 0; i < 2; i++) {
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = '\0';
  }
  return true;
}

/* The python3 that a shell would start. */
static bool find_python(char *path) {
  const char *folders = getenv("PATH");
  while (folders && *folders) {
    size_t length = strcspn(folders, ":");
    int n = snprintf(path, ZPR_CUDA_PATH, "%.*s/python3", (int)length, folders);
    if (n > 0 && n < ZPR_CUDA_PATH && access(path, X_OK) == 0) return true;
    folders += length + (folders[length] == ':');
  }
  return false;
}

/* Those of a virtual environment, or of where python3 is installed, then the user's own. */
static void add_wheels(zpr_cuda_files *files, const char *name, const char *version) {
  char python[ZPR_CUDA_PATH], user[ZPR_CUDA_PATH];
  if (!find_python(python)) return;
  char *real = realpath(python, NULL);
  if (to_prefix(python)) add_packages(files, python, name, version);
  if (real && to_prefix(real)) add_packages(files, real, name, version);
  free(real);
  const char *home = getenv("HOME");
  if (home && *home && snprintf(user, sizeof user, "%s/.local", home) < (int)sizeof user)
    add_packages(files, user, name, version);
}

/* ---- all places ---- */

void zpr_cuda_find_files(const char *name, zpr_cuda_files *files) {
  files->n = 0;
  const char *const named[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH")};
  char version[16];
  for (int i = 0; i < 2; i++)
    for (int major = ZPR_CUDA_NEWEST; major >= ZPR_CUDA_OLDEST; major--) {
      snprintf(version, sizeof version, ".%d", major);
      add_below(files, named[i], name, version);
    }
  for (int major = ZPR_CUDA_NEWEST; major >= ZPR_CUDA_OLDEST; major--) {
    snprintf(version, sizeof version, ".%d", major);
    add(files, "", name, version);
    add_wheels(files, name, version);
    add_below(files, "/usr/local/cuda", name, version);
  }
}

void zpr_cuda_find_file(const char *name, zpr_cuda_files *files) {
  files->n = 0;
  add(files, "", name, "");
  add_wheels(files, name, "");
}

/* Release notes of CUDA: 12.0 drops Kepler (below sm_50), 12.8 brings Blackwell (sm_100 and above), 13.0 drops Maxwell,
 * Pascal and Volta (below sm_75). */
bool zpr_cublas_serves(int major, int minor, int capability) {
  if (major >= 13) return capability >= 75;
  if (major == 12) return capability >= 50 && (capability < 100 || minor >= 8);
  return false;
}
