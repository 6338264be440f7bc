/* zplan data: text files to tokens, bytes or those of a tokenizer, in llm.c's shard format (256 int32 header words:
 * magic, version, count; then the tokens: uint16, or uint32 for large vocabularies). Memory does not grow with the
 * input. */
#include "make_data.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_WORDS = 256, BYTE_VOCABULARY = 256, BLOCK = 1 << 16 };

/* The formats of llm.c: GPT-2's and Llama 3's. */
static const struct shard_format {
  int32_t magic, version;
  size_t width;
} narrow = {20240520, 1, sizeof(uint16_t)}, wide = {20240801, 7, sizeof(uint32_t)};

typedef struct shard_writer {
  zp_run_state *run;
  FILE *out;
  const char *path;
  const struct shard_format *format;
  zp_tokenizer *tokenizer; /* NULL: a byte is a token */
  int64_t count;
} shard_writer;

static bool fail(zp_run_state *run, zp_diag_code code, const char *what, const char *path) {
  zp_report(run->diags, code, ZP_NO_SPAN, "%s %s: %s", what, path, strerror(errno));
  return false;
}

/* ---- writing ---- */

static bool put_tokens(void *user, const int32_t *ids, int n) {
  shard_writer *w = user;
  uint16_t block[512];
  w->count += n;
  if (w->format == &wide)
    return fwrite(ids, sizeof *ids, (size_t)n, w->out) == (size_t)n || fail(w->run, ZP_Z0805, "cannot write", w->path);
  for (int done = 0, now; done < n; done += now) {
    now = n - done < 512 ? n - done : 512;
    for (int i = 0; i < now; i++) block[i] = (uint16_t)ids[done + i];
    if (fwrite(block, sizeof *block, (size_t)now, w->out) != (size_t)now)
      return fail(w->run, ZP_Z0805, "cannot write", w->path);
  }
  return true;
}

static bool put_bytes(shard_writer *w, const unsigned char *bytes, size_t len) {
  int32_t ids[512];
  for (size_t done = 0, now; done < len; done += now) {
    now = len - done < 512 ? len - done : 512;
    for (size_t i = 0; i < now; i++) ids[i] = bytes[done + i];
    if (!put_tokens(w, ids, (int)now)) return false;
  }
  return true;
}

/* With the tokenizer. */
static bool put_text(shard_writer *w, const char *path, const char *text, size_t len) {
  zp_run_state *run = w->run;
  const char *error;
  if (!zp_tokenize(w->tokenizer, text, len, put_tokens, w, &error)) {
    if (error) zp_report(run->diags, ZP_Z0808, ZP_NO_SPAN, "%s: %s", path, error);
    return false;
  }
  int32_t eod = run->options.eod ? zp_tokenizer_added(w->tokenizer, run->options.eod) : -1;
  return eod < 0 || put_tokens(w, &eod, 1);
}

/* ---- reading ---- */

/* Pipes and the like: bytes can be passed on as they come. */
static bool append_stream(shard_writer *w, const char *path, int fd) {
  unsigned char *bytes = ZP_NEW_ARRAY(w->run->arena, unsigned char, BLOCK);
  ssize_t n;
  if (w->tokenizer) {
    zp_report(w->run->diags, ZP_Z0801, ZP_NO_SPAN, "%s is no regular file: a tokenizer reads only those", path);
    return false;
  }
  while ((n = read(fd, bytes, BLOCK)) > 0)
    if (!put_bytes(w, bytes, (size_t)n)) return false;
  return n == 0 || fail(w->run, ZP_Z0801, "cannot read", path);
}

static bool append_file(shard_writer *w, const char *path) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail(w->run, ZP_Z0801, "cannot read", path);
  bool ok = fstat(fd, &st) == 0 || fail(w->run, ZP_Z0801, "cannot read", path);
  if (ok && S_ISREG(st.st_mode) && w->tokenizer) {
    size_t len = (size_t)st.st_size;
    char *text = len > 0 ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : "";
    ok = text != MAP_FAILED ? put_text(w, path, text, len) : fail(w->run, ZP_Z0801, "cannot read", path);
    if (len > 0 && text != MAP_FAILED) munmap(text, len);
  } else if (ok) {
    ok = append_stream(w, path, fd);
  }
  close(fd);
  return ok;
}

static bool write_header(shard_writer *w) {
  int32_t header[HEADER_WORDS] = {w->format->magic, w->format->version, (int32_t)w->count};
  return fwrite(header, sizeof header, 1, w->out) == 1 || fail(w->run, ZP_Z0805, "cannot write", w->path);
}

static bool check_count(shard_writer *w) {
  if (w->count <= INT32_MAX) return true;
  zp_report(w->run->diags, ZP_Z0805, ZP_NO_SPAN,
            "%lld tokens are more than one shard can count (2147483647); write several shards", (long long)w->count);
  return false;
}

static bool write_tokens(shard_writer *w) {
  const zp_options *o = &w->run->options;
  w->out = fopen(w->path, "wb");
  if (!w->out) return fail(w->run, ZP_Z0805, "cannot write", w->path);
  bool ok = write_header(w);
  for (int i = 0; ok && i < o->files.len; i++) ok = append_file(w, o->files.data[i]) && check_count(w);
  ok = ok && (fseek(w->out, 0, SEEK_SET) == 0 || fail(w->run, ZP_Z0805, "cannot write", w->path)) && write_header(w);
  ok = ok && ((fflush(w->out) == 0 && fsync(fileno(w->out)) == 0) || fail(w->run, ZP_Z0805, "cannot write", w->path));
  if (fclose(w->out) != 0 && ok) ok = fail(w->run, ZP_Z0805, "cannot write", w->path);
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

/* ---- the command ---- */

static bool read_tokenizer(shard_writer *w) {
  zp_run_state *run = w->run;
  const zp_options *o = &run->options;
  size_t len;
  const char *json = zp_tokenizer_text(run->arena, run->diags, o->tokenizer, &len);
  if (!json) return false;
  w->tokenizer = zp_tokenizer_read(run->arena, run->diags, o->tokenizer, json, len);
  if (!w->tokenizer) return false;
  if (o->eod && zp_tokenizer_added(w->tokenizer, o->eod) < 0) {
    zp_report(run->diags, ZP_Z0806, ZP_NO_SPAN, "%s has no added token `%s`, which --eod asks for", o->tokenizer,
              o->eod);
    return false;
  }
  if (zp_tokenizer_vocabulary(w->tokenizer) > UINT16_MAX + 1) w->format = &wide;
  return true;
}

static bool write_file(shard_writer *w) {
  zp_run_state *run = w->run;
  const zp_options *o = &run->options;
  if (!can_replace(run)) return false;
  w->path = zp_format(run->arena, "%s.tmp-%d", o->output, (int)getpid());
  clean_up_on_signals(w->path);
  bool ok = write_tokens(w);
  if (ok && rename(w->path, o->output) != 0) ok = fail(run, ZP_Z0805, "cannot write", o->output);
  unfinished = NULL;
  if (!ok) remove(w->path);
  return ok;
}

int zp_cmd_data(zp_run_state *run) {
  const zp_options *o = &run->options;
  shard_writer w = {.run = run, .format = &narrow};
  if (o->files.len > 0 && strcmp(o->files.data[0], "pairs") == 0) return zp_data_pairs(run);
  if (o->copies || o->seed) return zp_usage_error("--copies and --seed are for `zplan data pairs`");
  if (o->files.len > 0 && strcmp(o->files.data[0], "squad") == 0) return zp_data_squad(run);
  if (o->length || o->stride) return zp_usage_error("--length and --stride are for `zplan data squad`");
  if (o->files.len == 0 || !o->output)
    return zp_usage_error("usage: zplan data FILES... -o TOKENS.bin [--tokenizer FILE.json [--eod TOKEN]]");
  if (o->eod && !o->tokenizer)
    return zp_usage_error("--eod names a token of a tokenizer: say --tokenizer FILE.json, too");
  bool ok = (!o->tokenizer || read_tokenizer(&w)) && write_file(&w);
  int64_t vocabulary = w.tokenizer ? zp_tokenizer_vocabulary(w.tokenizer) : BYTE_VOCABULARY;
  zp_tokenizer_free(w.tokenizer);
  if (!ok) {
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  printf("%s: %lld tokens (%s, vocabulary %lld)\n", o->output, (long long)w.count,
         o->tokenizer ? o->tokenizer : "bytes", (long long)vocabulary);
  return ZP_EXIT_OK;
}
