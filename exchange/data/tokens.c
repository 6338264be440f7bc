/* SPDX-License-Identifier: Apache-2.0 */
/* Text files to tokens, bytes or those of a tokenizer, in a shard. Memory does not grow with the input. */
#include "make_data_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 16 };

typedef struct reader {
  zp_data_job *job;
  zp_texts texts;
  zp_shard_file *out;
} reader;

static bool cannot_read(const reader *r, const char *path) {
  zp_report(r->job->diags, ZP_Z0801, ZP_NO_SPAN, "cannot read %s: %s", path, strerror(errno));
  return false;
}

/* Pipes and the like: bytes can be passed on as they come. */
static bool append_stream(reader *r, const char *path, int fd) {
  char *bytes = ZP_NEW_ARRAY(r->job->arena, char, BLOCK);
  ssize_t n;
  if (r->texts.tokenizer) {
    zp_report(r->job->diags, ZP_Z0801, ZP_NO_SPAN, "%s is no regular file: a tokenizer reads only those", path);
    return false;
  }
  while ((n = read(fd, bytes, BLOCK)) > 0)
    if (!zp_texts_put(r->job, &r->texts, path, bytes, (size_t)n, zp_shard_put, r->out)) return false;
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
    ok = text != MAP_FAILED ? zp_texts_put(r->job, &r->texts, path, text, len, zp_shard_put, r->out)
                            : cannot_read(r, path);
    if (len > 0 && text != MAP_FAILED) munmap(text, len);
  } else if (ok) {
    ok = append_stream(r, path, fd);
  }
  close(fd);
  return ok;
}

zp_data_result zp_data_tokens(zp_data_job *o) {
  reader r = {.job = o};
  bool ok = zp_texts_open(o, &r.texts) && (r.out = zp_shard_open(o, zp_texts_vocabulary(&r.texts), 0));
  if (ok) {
    for (int i = 0; ok && i < o->files.len; i++) ok = append_file(&r, o->files.data[i]);
    ok = zp_shard_close(r.out, ok);
  }
  int64_t vocabulary = zp_texts_vocabulary(&r.texts);
  zp_texts_close(&r.texts);
  if (!ok) return ZP_DATA_FAILED;
  zp_say_lines(stdout, "%s: %lld tokens (%s, vocabulary %lld)\n", o->output, (long long)zp_shard_tokens(r.out),
               o->tokenizer ? o->tokenizer : "bytes", (long long)vocabulary);
  return ZP_DATA_MADE;
}
