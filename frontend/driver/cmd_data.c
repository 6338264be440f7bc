/* zplan data: text files to byte tokens, in llm.c's shard format (256 int32 header words: magic 20240520, version 1,
 * count; then uint16 tokens). Streams: memory does not grow with the input. */
#include "driver.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_WORDS = 256, MAGIC = 20240520, VERSION = 1, BLOCK = 1 << 16 };

static bool fail(zp_run_state *run, zp_diag_code code, const char *what, const char *path) {
  zp_report(run->diags, code, ZP_NO_SPAN, "%s %s: %s", what, path, strerror(errno));
  return false;
}

static bool append_file(zp_run_state *run, const char *path, FILE *out, const char *out_path, int64_t *count) {
  FILE *in = fopen(path, "rb");
  if (!in) return fail(run, ZP_Z0801, "cannot read", path);
  unsigned char *bytes = ZP_NEW_ARRAY(run->arena, unsigned char, BLOCK);
  uint16_t *tokens = ZP_NEW_ARRAY(run->arena, uint16_t, BLOCK);
  bool ok = true;
  size_t n;
  while (ok && (n = fread(bytes, 1, BLOCK, in)) > 0) {
    for (size_t i = 0; i < n; i++) tokens[i] = bytes[i];
    ok = fwrite(tokens, sizeof *tokens, n, out) == n || fail(run, ZP_Z0805, "cannot write", out_path);
    *count += (int64_t)n;
  }
  if (ok && ferror(in)) ok = fail(run, ZP_Z0801, "cannot read", path);
  fclose(in);
  return ok;
}

static bool write_tokens(zp_run_state *run, const char *temp, int64_t *count) {
  const zp_options *o = &run->options;
  FILE *out = fopen(temp, "wb");
  if (!out) return fail(run, ZP_Z0805, "cannot write", temp);
  int32_t header[HEADER_WORDS] = {MAGIC, VERSION};
  bool ok = fwrite(header, sizeof header, 1, out) == 1 || fail(run, ZP_Z0805, "cannot write", temp);
  for (int i = 0; ok && i < o->files.len; i++) ok = append_file(run, o->files.data[i], out, temp, count);
  if (ok && *count > INT32_MAX) {
    zp_report(run->diags, ZP_Z0805, ZP_NO_SPAN,
              "%lld tokens are more than one shard can count (2147483647); write several shards", (long long)*count);
    ok = false;
  }
  header[2] = (int32_t)*count;
  ok = ok && ((fseek(out, 0, SEEK_SET) == 0 && fwrite(header, sizeof header, 1, out) == 1 && fflush(out) == 0 &&
               fsync(fileno(out)) == 0) ||
              fail(run, ZP_Z0805, "cannot write", temp));
  if (fclose(out) != 0 && ok) ok = fail(run, ZP_Z0805, "cannot write", temp);
  return ok;
}

/* The target is replaced when it is complete, so it must be a file of its own. */
static bool can_replace(zp_run_state *run) {
  const zp_options *o = &run->options;
  struct stat target, input;
  if (stat(o->output, &target) != 0) return true;
  if (!S_ISREG(target.st_mode)) {
    zp_report(run->diags, ZP_Z0805, ZP_NO_SPAN, "cannot write %s: it is no regular file", o->output);
    return false;
  }
  for (int i = 0; i < o->files.len; i++)
    if (stat(o->files.data[i], &input) == 0 && input.st_dev == target.st_dev && input.st_ino == target.st_ino) {
      zp_report(run->diags, ZP_Z0805, ZP_NO_SPAN, "%s is the input and the output", o->output);
      return false;
    }
  return true;
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

int zp_cmd_data(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (o->files.len == 0 || !o->output) return zp_usage_error("usage: zplan data FILES... -o TOKENS.bin");
  if (!can_replace(run)) {
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  const char *temp = zp_format(run->arena, "%s.tmp-%d", o->output, (int)getpid());
  int64_t count = 0;
  clean_up_on_signals(temp);
  bool ok = write_tokens(run, temp, &count);
  if (ok && rename(temp, o->output) != 0) ok = fail(run, ZP_Z0805, "cannot write", o->output);
  unfinished = NULL;
  if (!ok) {
    remove(temp);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  printf("%s: %lld tokens (bytes, vocabulary 256)\n", o->output, (long long)count);
  return ZP_EXIT_OK;
}
