/* SPDX-License-Identifier: Apache-2.0 */
/* Token files in llm.c's shard format (256 int32 header words: magic, version, count; then the tokens: uint16, or
 * uint32 for large vocabularies). Memory does not grow with the tokens. The file is written alongside its target and
 * takes its place when it is complete; an error or a signal takes it away. */
#include "make_data_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_WORDS = 256 };

/* The formats of llm.c: GPT-2's and Llama 3's. */
static const struct shard_format {
  int32_t magic, version;
  size_t width;
} narrow = {20240520, 1, sizeof(uint16_t)}, wide = {20240801, 7, sizeof(uint32_t)};

struct zp_shard_file {
  zp_data_job *job;
  FILE *out;
  const char *path; /* alongside the target */
  const struct shard_format *format;
  int64_t count;
};

static bool cannot_write(zp_data_job *job, const char *path) {
  zp_report(job->diags, ZP_Z0805, ZP_NO_SPAN, "cannot write %s: %s", path, strerror(errno));
  return false;
}

int64_t zp_shard_tokens(const zp_shard_file *shard) { return shard->count; }

bool zp_shard_put(void *user, const int32_t *ids, int n) {
  zp_shard_file *w = user;
  uint16_t block[512];
  w->count += n;
  if (w->count > INT32_MAX) {
    zp_report(w->job->diags, ZP_Z0805, ZP_NO_SPAN,
              "%lld tokens are more than one shard can count (2147483647); write several shards", (long long)w->count);
    return false;
  }
  if (w->format == &wide)
    return fwrite(ids, sizeof *ids, (size_t)n, w->out) == (size_t)n || cannot_write(w->job, w->path);
  for (int done = 0, now; done < n; done += now) {
    now = n - done < 512 ? n - done : 512;
    for (int i = 0; i < now; i++) block[i] = (uint16_t)ids[done + i];
    if (fwrite(block, sizeof *block, (size_t)now, w->out) != (size_t)now) return cannot_write(w->job, w->path);
  }
  return true;
}

static bool write_header(zp_shard_file *w) {
  int32_t header[HEADER_WORDS] = {w->format->magic, w->format->version, (int32_t)w->count};
  return fwrite(header, sizeof header, 1, w->out) == 1 || cannot_write(w->job, w->path);
}

/* A token file may be made again; anything else of that name is not ours. */
static bool is_shard(zp_data_job *job, const char *path, off_t bytes) {
  int32_t magic = 0;
  FILE *in = fopen(path, "rb");
  bool ours =
      bytes == 0 || (in && fread(&magic, sizeof magic, 1, in) == 1 && (magic == narrow.magic || magic == wide.magic));
  if (in) fclose(in);
  if (ours) return true;
  zp_diag *d = zp_report(job->diags, ZP_Z0805, ZP_NO_SPAN, "%s is there already, and is no token file", path);
  zp_diag_help(d, "--force replaces it");
  return false;
}

/* The target is replaced when it is complete, so it must be a file of its own. */
static bool can_replace(zp_data_job *job, int first_input) {
  const zp_data_job *o = job;
  struct stat target, input;
  if (stat(o->output, &target) != 0) return true;
  if (!S_ISREG(target.st_mode)) {
    zp_report(job->diags, ZP_Z0805, ZP_NO_SPAN, "cannot write %s: it is no regular file", o->output);
    return false;
  }
  for (int i = first_input; i < o->files.len; i++)
    if (stat(o->files.data[i], &input) == 0 && input.st_dev == target.st_dev && input.st_ino == target.st_ino) {
      zp_report(job->diags, ZP_Z0805, ZP_NO_SPAN, "%s is the input and the output", o->output);
      return false;
    }
  return o->force || is_shard(job, o->output, target.st_size);
}

/* An interrupted run takes its unfinished file with it. */
static const char *volatile unfinished;

static void remove_unfinished(int signal_number) {
  if (unfinished) unlink(unfinished);
  raise(signal_number); /* SA_RESETHAND: ends the process as it would have ended */
}

static void clean_up_on_signals(const char *temp) {
  static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction action = {.sa_handler = remove_unfinished, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)}, before;
  unfinished = temp;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
}

zp_shard_file *zp_shard_open(zp_data_job *job, int64_t vocabulary, int first_input) {
  zp_shard_file *w = ZP_NEW(job->arena, zp_shard_file);
  if (!can_replace(job, first_input)) return NULL;
  *w = (zp_shard_file){.job = job, .format = vocabulary > UINT16_MAX + 1 ? &wide : &narrow};
  w->path = zp_format(job->arena, "%s.tmp-%d", job->output, (int)getpid());
  clean_up_on_signals(w->path);
  w->out = fopen(w->path, "wb");
  if (w->out && write_header(w)) return w;
  if (!w->out) cannot_write(job, w->path);
  zp_shard_close(w, false);
  return NULL;
}

bool zp_shard_close(zp_shard_file *w, bool good) {
  zp_data_job *job = w->job;
  bool ok = good && (fseek(w->out, 0, SEEK_SET) == 0 || cannot_write(job, w->path)) && write_header(w);
  ok = ok && ((fflush(w->out) == 0 && fsync(fileno(w->out)) == 0) || cannot_write(job, w->path));
  if (w->out && fclose(w->out) != 0 && ok) ok = cannot_write(job, w->path);
  if (ok && rename(w->path, job->output) != 0) ok = cannot_write(job, job->output);
  unfinished = NULL;
  if (!ok && w->out) remove(w->path);
  return ok;
}
