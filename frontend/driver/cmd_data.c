/* zplan data: text files to tokens, bytes or those of a tokenizer, in a shard. Memory does not grow with the input. The
 * other forms have files of their own. */
#include "make_data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 16 };

typedef struct reader {
  zp_run_state *run;
  zp_texts texts;
  zp_shard_file *out;
} reader;

static bool cannot_read(const reader *r, const char *path) {
  zp_report(r->run->diags, ZP_Z0801, ZP_NO_SPAN, "cannot read %s: %s", path, strerror(errno));
  return false;
}

/* Pipes and the like: bytes can be passed on as they come. */
static bool append_stream(reader *r, const char *path, int fd) {
  char *bytes = ZP_NEW_ARRAY(r->run->arena, char, BLOCK);
  ssize_t n;
  if (r->texts.tokenizer) {
    zp_report(r->run->diags, ZP_Z0801, ZP_NO_SPAN, "%s is no regular file: a tokenizer reads only those", path);
    return false;
  }
  while ((n = read(fd, bytes, BLOCK)) > 0)
    if (!zp_texts_put(r->run, &r->texts, path, bytes, (size_t)n, zp_shard_put, r->out)) return false;
  return n == 0 || cannot_read(r, path);
}

static bool append_file(reader *r, const char *path) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot_read(r, path);
  bool ok = fstat(fd, &st) == 0 || cannot_read(r, path);
  if (ok && S_ISREG(st.st_mode) && r->texts.tokenizer) {
    size_t len = (size_t)st.st_size;
    char *text = len > 0 ? mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0) : "";
    ok = text != MAP_FAILED ? zp_texts_put(r->run, &r->texts, path, text, len, zp_shard_put, r->out)
                            : cannot_read(r, path);
    if (len > 0 && text != MAP_FAILED) munmap(text, len);
  } else if (ok) {
    ok = append_stream(r, path, fd);
  }
  close(fd);
  return ok;
}

static int make_tokens(zp_run_state *run) {
  const zp_options *o = &run->options;
  reader r = {.run = run};
  bool ok = zp_texts_open(run, &r.texts) && (r.out = zp_shard_open(run, zp_texts_vocabulary(&r.texts), 0));
  if (ok) {
    for (int i = 0; ok && i < o->files.len; i++) ok = append_file(&r, o->files.data[i]);
    ok = zp_shard_close(r.out, ok);
  }
  int64_t vocabulary = zp_texts_vocabulary(&r.texts);
  zp_texts_close(&r.texts);
  if (!ok) {
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  zp_say(stdout, "%s: %lld tokens (%s, vocabulary %lld)\n", o->output, (long long)zp_shard_tokens(r.out),
         o->tokenizer ? o->tokenizer : "bytes", (long long)vocabulary);
  return ZP_EXIT_OK;
}

int zp_cmd_data(zp_run_state *run) {
  const zp_options *o = &run->options;
  const char *form = o->files.len > 0 ? o->files.data[0] : "";
  bool rows = strcmp(form, "jsonl") == 0 || strcmp(form, "table") == 0;
  if (!rows && (o->field || o->numbers.len > 0 || o->labels.len > 0 || o->classes > 0 || o->pack || o->documents))
    return zp_usage_error("--field, --numbers, --labels, --classes, --pack and --documents are for `zplan data jsonl` "
                          "and `table`");
  if (rows) return zp_data_rows(run);
  if (strcmp(form, "pairs") == 0) return zp_data_pairs(run);
  if (o->copies || o->seed || o->unmasked)
    return zp_usage_error("--copies, --unmasked and --seed are for `zplan data pairs`");
  if (strcmp(form, "squad") == 0) return zp_data_squad(run);
  if (o->length || o->stride) return zp_usage_error("--length and --stride are for other forms of `zplan data`");
  if (o->files.len == 0 || !o->output)
    return zp_usage_error("usage: zplan data FILES... -o TOKENS.bin [--tokenizer FILE.json [--eod TOKEN]]");
  if (o->eod && !o->tokenizer)
    return zp_usage_error("--eod names a token of a tokenizer: say --tokenizer FILE.json, too");
  return make_tokens(run);
}
