/* SPDX-License-Identifier: Apache-2.0 */
/* Token files, read in place: llm.c shards, and the indexed datasets of Megatron by their .idx (data_megatron.c).
 *
 * A shard is a header of 256 int32 (magic, version, number of tokens) and the tokens: magic 20240520 version 1 has
 * uint16 (GPT-2), magic 20240801 version 7 has uint32 (Llama 3). A pattern like "data/train_*.bin" names many; they are
 * taken in the order of their names and read as one stream, so a sample may begin in one and end in the next. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data.h"

enum { HEADER_BYTES = 1024 };

static const struct format {
  int32_t magic, version;
  int width;
} formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static bool grow(zpr_stream *stream) {
  if (stream->n < stream->room) return true;
  int room = stream->room ? 2 * stream->room : 8;
  zpr_shard *shards = realloc(stream->shards, (size_t)room * sizeof *shards);
  if (!shards) return false;
  stream->shards = shards;
  stream->room = room;
  return true;
}

zpr_shard *zpr_stream_map(zpr_stream *stream, const char *path, zpr_error *error) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block here */
  struct stat st;
  zpr_shard shard = {0}, *placed = NULL;
  char here[256];
  if (fd < 0 || fstat(fd, &st) != 0) {
    int reason = errno;
    bool relative = path[0] != '/' && getcwd(here, sizeof here);
    zpr_error_set(error, "Z0801", "cannot read data file \"%s\"%s%s: %s", path, relative ? " from the folder " : "",
                  relative ? here : "", strerror(reason));
  } else if (!S_ISREG(st.st_mode)) {
    zpr_error_set(error, "Z0801", "data file \"%s\" is not a regular file", path);
  } else if (st.st_size == 0) {
    zpr_error_set(error, "Z0802", "data file \"%s\" is empty", path);
  } else if ((shard.map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED) {
    zpr_error_set(error, "Z0801", "cannot map data file \"%s\": %s", path, strerror(errno));
  } else if (!(shard.path = strdup(path)) || !grow(stream)) {
    zpr_error_set(error, "Z0822", "cannot get memory to open \"%s\"", path);
    munmap(shard.map, (size_t)st.st_size);
    free(shard.path);
  } else {
    shard.map_bytes = (size_t)st.st_size;
    shard.first = stream->tokens;
    stream->shards[stream->n] = shard;
    placed = &stream->shards[stream->n++];
  }
  if (fd >= 0) close(fd);
  return placed;
}

static bool check_header(zpr_shard *shard, zpr_error *error) {
  int32_t header[3];
  if (shard->map_bytes < HEADER_BYTES) {
    zpr_error_set(error, "Z0802", "token file \"%s\" has %zu bytes, less than its header of %d", shard->path,
                  shard->map_bytes, HEADER_BYTES);
    return false;
  }
  memcpy(header, shard->map, sizeof header);
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    const struct format *f = &formats[i];
    if (header[0] != f->magic || header[1] != f->version) continue;
    int64_t want = HEADER_BYTES + (int64_t)header[2] * f->width;
    if (header[2] < 0 || want != (int64_t)shard->map_bytes) {
      zpr_error_set(error, "Z0802", "token file \"%s\" is truncated or damaged: %d tokens need %lld bytes, it has %zu",
                    shard->path, header[2], (long long)want, shard->map_bytes);
      return false;
    }
    shard->width = f->width;
    shard->tokens = header[2];
    shard->body = (const unsigned char *)shard->map + HEADER_BYTES;
    return true;
  }
  zpr_error_set(error, "Z0802",
                "\"%s\" is not a token file (Megatron's datasets are named by their .idx): magic %d version %d, "
                "expected %d version %d or %d version %d; ids without a header, as nanoGPT writes them, need one: 256 "
                "int32, of which the first three are %d, %d and the number of ids (%zu of 16 bits here)",
                shard->path, header[0], header[1], formats[0].magic, formats[0].version, formats[1].magic,
                formats[1].version, formats[0].magic, formats[0].version, shard->map_bytes / 2);
  return false;
}

static bool add_file(zpr_stream *stream, const char *path, zpr_error *error) {
  size_t len = strlen(path);
  if (len > 4 && strcmp(path + len - 4, ".idx") == 0) return zpr_stream_add_megatron(stream, path, error);
  zpr_shard *shard = zpr_stream_map(stream, path, error);
  if (!shard || !check_header(shard, error)) return false;
  stream->tokens += shard->tokens;
  return true;
}

bool zpr_stream_add_token_files(zpr_stream *stream, const char *pattern, zpr_error *error) {
  glob_t found;
  int status = glob(pattern, 0, NULL, &found);
  bool ok = status == 0;
  if (status == GLOB_NOMATCH)
    zpr_error_set(error, "Z0801", "no file matches \"%s\"", pattern);
  else if (status != 0)
    zpr_error_set(error, "Z0801", "could not list the files of \"%s\"", pattern);
  for (size_t i = 0; ok && i < found.gl_pathc; i++) ok = add_file(stream, found.gl_pathv[i], error);
  globfree(&found);
  return ok;
}

/* ---- reading ---- */

static int64_t token_at(const zpr_shard *shard, int64_t i) {
  const unsigned char *at = shard->body + i * shard->width;
  uint64_t id = at[0];
  for (int b = 1; b < shard->width; b++) id |= (uint64_t)at[b] << (8 * b);
  int above = 64 - 8 * shard->width;
  return shard->is_signed ? (int64_t)(id << above) >> above : (int64_t)id;
}

static const zpr_shard *find_shard(const zpr_stream *stream, int64_t token) {
  int low = 0, high = stream->n - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (stream->shards[middle].first <= token)
      low = middle;
    else
      high = middle - 1;
  }
  return &stream->shards[low];
}

bool zpr_stream_read(const zpr_stream *stream, int64_t begin, int64_t count, int64_t vocabulary, int32_t *out,
                     zpr_error *error) {
  const zpr_shard *shard = find_shard(stream, begin);
  for (int64_t i = 0; i < count; i++) {
    while (begin + i >= shard->first + shard->tokens) shard++;
    int64_t id = token_at(shard, begin + i - shard->first);
    out[i] = (int32_t)id;
    if (id >= 0 && id < vocabulary) continue;
    zpr_error_set(error, "Z0803", "\"%s\" has id %lld at token %lld, but the vocabulary ends at %lld", shard->path,
                  (long long)id, (long long)(begin + i - shard->first), (long long)vocabulary - 1);
    return false;
  }
  return true;
}

static int64_t find_in(const zpr_shard *shard, int64_t from, int64_t id) {
  if (shard->width == 1 && !shard->is_signed && id >= 0 && id <= UINT8_MAX) {
    const unsigned char *at = memchr(shard->body + from, (int)id, (size_t)(shard->tokens - from));
    return at ? at - shard->body : shard->tokens;
  }
  while (from < shard->tokens && token_at(shard, from) != id) from++;
  return from;
}

int64_t zpr_stream_find(const zpr_stream *stream, int64_t begin, int64_t id) {
  if (begin >= stream->tokens) return stream->tokens;
  for (const zpr_shard *shard = find_shard(stream, begin); shard < stream->shards + stream->n; shard++) {
    int64_t from = begin > shard->first ? begin - shard->first : 0, found = find_in(shard, from, id);
    if (found < shard->tokens) return shard->first + found;
  }
  return stream->tokens;
}

void zpr_stream_close(zpr_stream *stream) {
  for (int i = 0; i < stream->n; i++) {
    munmap(stream->shards[i].map, stream->shards[i].map_bytes);
    free(stream->shards[i].path);
  }
  free(stream->shards);
  *stream = (zpr_stream){0};
}
