/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json: what a checkpoint is of, and what its files must be. It is written last, so it also says "complete".
 * Where there were any, `frozen_steps`: the steps of 1-bit Adam that left the variance as it was; where it looks for
 * their beginning itself `variance`, its norms so far, or `freezes_at`, what it found (variance_freeze.c);
 * `skipped_steps`: those that were not applied; `error_ranks`: the data ranks whose errors of 1-bit Adam are in
 * errors.safetensors. In f16 `loss_scale` of the next step, and `scale_steps`, how many steps in a row have been
 * applied with it. `samples`: how many of the data have been used, which is where a resumed run goes on; `batch`,
 * `sequence`, `seed` and `data`: what it compares itself with (resume.c); `training`: what it tells the changes of
 * (training_record.c). `products`: the algorithms of GPUs (algorithms.c). `coefficients` of 1-bit LAMB
 * (optimizer/one_bit_lamb.c). `initial_weights`: the folder that the run began with, where its weights were not drawn.
 * `words` of `data`: the vocabulary of masked words, which `zplan eval` looks for there.
 *
 *   {"format": "zplan-checkpoint", "version": 2, "model": "gpt_tiny", "dtype": "F32", "step": 120, "samples": 3840,
 * "batch": 32, "sequence": 64, "seed": 1, "data": {"source": "text", "path": "book.txt", "order": "shuffled", "seed":
 * 0, "tokens": 174800, "fnv1a64": "0123456789abcdef"}, "training": {"lr": "0.001", ...}, "files": [{"name":
 * "model.safetensors", "bytes": 4218880, "pieces": ["0123456789abcdef", ...]}, ...], "plan_sha256": "...",
 *   "sha256": "..."
 *   }
 *
 * pieces: the sums (piece_hash.c) of the file's header in words of 8 bytes, then of its tensors in the order of their
 * bytes. Ranks sum what they write, from memory; nothing is read again. plan_sha256: of plan.json, where there is one.
 * sha256, in a last line of its own before the closing brace: of all lines before it (`head -n -2 manifest.json |
 * sha256sum`). All this tells accidents; who wants to deceive writes all of it anew.
 *
 * Version 1 had "fnv1a64x8" instead of pieces, and no sums of the plan and of itself: byte i of the file goes into
 * FNV-1a (64 bits) number i mod 8; the checksum is the FNV-1a of those eight results as 64 little-endian bytes. It is
 * still read. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

enum { CHAINS = 8, BUFFER = 1 << 20, LONGEST_MANIFEST = 1 << 27, LONGEST_PLAN = 1 << 28, TAIL = 81 };
#define FNV_START UINT64_C(14695981039346656037)
#define FNV_PRIME UINT64_C(1099511628211)

/* `bytes` of a file from an offset that is a multiple of CHAINS. */
static void hash_bytes(uint64_t chain[CHAINS], const unsigned char *data, int64_t bytes) {
  uint64_t h[CHAINS];
  memcpy(h, chain, sizeof h);
  int64_t i = 0;
  for (; i + CHAINS <= bytes; i += CHAINS)
    for (int k = 0; k < CHAINS; k++) h[k] = (h[k] ^ data[i + k]) * FNV_PRIME;
  for (int k = 0; i < bytes; i++, k++) h[k] = (h[k] ^ data[i]) * FNV_PRIME;
  memcpy(chain, h, sizeof h);
}

static uint64_t combine(const uint64_t chain[CHAINS]) {
  uint64_t hash = FNV_START;
  for (int k = 0; k < CHAINS; k++)
    for (int byte = 0; byte < 8; byte++) hash = (hash ^ ((chain[k] >> (8 * byte)) & 0xff)) * FNV_PRIME;
  return hash;
}

/* Fills the buffer as far as the file goes; -1 on trouble. */
static int64_t read_full(int fd, unsigned char *buffer, int64_t size) {
  int64_t have = 0;
  while (have < size) {
    ssize_t got = read(fd, buffer + have, (size_t)(size - have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    have += got;
  }
  return have;
}

static bool checksum(const char *path, uint64_t *hash, int64_t *bytes, const char *code, zpr_error *error) {
  uint64_t chain[CHAINS];
  for (int k = 0; k < CHAINS; k++) chain[k] = FNV_START;
  int64_t got = -1;
  unsigned char *buffer = malloc(BUFFER);
  int fd = zpr_open_file(path);
  *bytes = 0;
  if (buffer && fd >= 0)
    while ((got = read_full(fd, buffer, BUFFER)) > 0) {
      hash_bytes(chain, buffer, got);
      *bytes += got;
    }
  if (got < 0) zpr_error_set(error, code, "cannot read checkpoint file \"%s\": %s", path, strerror(errno));
  if (fd >= 0) close(fd);
  free(buffer);
  *hash = combine(chain);
  return got == 0;
}

/* Nothing where no data was opened: the initial checkpoint needs none. */
static void print_data(FILE *out, const zpr_data_identity *data) {
  if (data->kind == ZPR_NO_DATA) return;
  fprintf(out, "  \"data\": {\"source\": \"%s\", \"path\": ", zpr_data_kind_name(data->kind));
  zpr_put_json(out, data->path);
  if (data->masks[0]) fprintf(out, ", \"masks\": \"%s\"", data->masks);
  if (data->words[0]) {
    fputs(", \"words\": ", out);
    zpr_put_json(out, data->words);
  }
  fprintf(out,
          ", \"order\": \"%s\", \"seed\": %" PRId64 ", \"tokens\": %" PRId64 ", \"fnv1a64\": \"%016" PRIx64 "\"},\n",
          data->shuffled ? "shuffled" : "sequential", data->seed, data->tokens, data->hash);
}

static void print_files(FILE *out, const zpr_summed files[ZPR_FILES]) {
  fputs("  \"files\": [", out);
  for (int file = 0, put = 0; file < ZPR_FILES; file++) {
    const zpr_tensors *tensors = files[file].tensors;
    if (!files[file].sums) continue;
    fprintf(out, "%s\n    {\"name\": \"%s\", \"bytes\": %" PRId64 ", \"pieces\": [", put++ ? "," : "",
            zpr_file_name[file], tensors->file_bytes);
    for (int64_t i = 0; i <= tensors->n; i++)
      fprintf(out, "%s\"%016" PRIx64 "\"", i > 0 ? ", " : "", files[file].sums[i]);
    fputs("]}", out);
  }
  fputs("\n  ],\n", out);
}

/* The text so far, and the line that answers for it: owned. NULL: there is no memory. */
static char *seal(char *text, size_t bytes) {
  char hex[ZPR_SHA256_TEXT];
  zpr_sha256(text, bytes, hex);
  char *whole = realloc(text, bytes + TAIL + 1);
  if (!whole) free(text);
  if (whole) snprintf(whole + bytes, TAIL + 1, "  \"sha256\": \"%s\"\n}\n", hex);
  return whole;
}

bool zpr_manifest_write(zpr *c, const char *folder, int64_t step, const zpr_summed files[ZPR_FILES], const char *plan,
                        zpr_error *error) {
  const zpr_program *program = c->program;
  char path[ZPR_PATH], hex[ZPR_SHA256_TEXT], *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) {
    zpr_error_set(error, "Z0822", "cannot get memory for a manifest");
    return false;
  }
  fputs("{\n  \"format\": \"zplan-checkpoint\",\n  \"version\": 2,\n  \"model\": ", out);
  zpr_put_json(out, program->name);
  fprintf(out, ",\n  \"dtype\": \"%s\",\n", zpr_dtype_name(program->dtype));
  fprintf(out, "  \"step\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n", step, c->samples);
  if (c->frozen_steps > 0) fprintf(out, "  \"frozen_steps\": %" PRId64 ",\n", c->frozen_steps);
  zpr_variance_freeze_write(c, out);
  zpr_coefficients_write(c, out);
  if (zpr_has_file(c, ZPR_ERRORS)) {
    fprintf(out, "  \"error_ranks\": %d,\n", program->data);
    if (program->zero > 0) fprintf(out, "  \"error_zero\": %d,\n", program->zero);
  }
  if (c->skipped_steps > 0) fprintf(out, "  \"skipped_steps\": %" PRId64 ",\n", c->skipped_steps);
  if (program->dtype == ZPK_F16)
    fprintf(out, "  \"loss_scale\": %" PRId64 ",\n  \"scale_steps\": %" PRId64 ",\n", c->loss_scale, c->scale_steps);
  fprintf(out, "  \"batch\": %" PRId64 ",\n  \"sequence\": %" PRId64 ",\n  \"seed\": %" PRIu64 ",\n", program->batch,
          c->state->data ? zpr_data_length(c->state->data) : program->sequence, program->seed);
  if (c->state->algorithms[0]) {
    fputs("  \"products\": ", out);
    zpr_put_json(out, c->state->algorithms);
    fputs(",\n", out);
  }
  if (c->state->initial[0]) {
    fputs("  \"initial_weights\": ", out);
    zpr_put_json(out, c->state->initial);
    fputs(",\n", out);
  }
  const zpr_data_identity data = zpr_data_identify(c->state->data);
  print_data(out, &data);
  zpr_record_write(c, out);
  print_files(out, files);
  if (plan) {
    zpr_sha256(plan, strlen(plan), hex);
    fprintf(out, "  \"plan_sha256\": \"%s\",\n", hex);
  }
  bool good = !ferror(out);
  if (fclose(out) != 0) good = false;
  text = good ? seal(text, bytes) : text;
  if (!good || !text) zpr_error_set(error, "Z0822", "cannot get memory for a manifest");
  good = good && text && zpr_write_text(zpr_path(path, "%s/manifest.json", folder), text, error);
  free(text);
  return good;
}

/* ---- checking ---- */

typedef struct entry {
  char name[64], hash[20]; /* hash: of version 1 */
  int64_t bytes, n;
  uint64_t *sums; /* [n], owned: the header's and the tensors' */
} entry;

/* What a manifest says of other files. */
typedef struct sealed {
  int64_t version;
  char plan[ZPR_SHA256_TEXT]; /* "": there is none */
  entry files[ZPR_FILES];
} sealed;

static void free_sums(sealed *s) {
  for (int f = 0; f < ZPR_FILES; f++) free(s->files[f].sums);
}

static bool read_sums(zpr_json *j, entry *e) {
  char word[20], *end;
  int64_t room = 0;
  for (zpr_json_array(j); zpr_json_item(j) && zpr_json_string(j, word, sizeof word);) {
    if (e->n == room) {
      room = room ? 2 * room : 64;
      uint64_t *more = realloc(e->sums, (size_t)room * sizeof *more);
      if (!more) return false;
      e->sums = more;
    }
    e->sums[e->n++] = strtoull(word, &end, 16);
    if (*end || end != word + 16) return false;
  }
  return !j->failed;
}

static bool read_entry(zpr_json *j, entry *e) {
  char key[32];
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    if (strcmp(key, "name") == 0)
      zpr_json_string(j, e->name, sizeof e->name);
    else if (strcmp(key, "fnv1a64x8") == 0)
      zpr_json_string(j, e->hash, sizeof e->hash);
    else if (strcmp(key, "bytes") == 0)
      zpr_json_int(j, &e->bytes);
    else if (strcmp(key, "pieces") == 0 && !e->sums) {
      if (!read_sums(j, e)) return false;
    } else
      zpr_json_skip(j);
  }
  return !j->failed;
}

/* Each of our files must be there once, that of errors where there are any. */
static bool read_files(zpr_json *j, sealed *s) {
  for (zpr_json_array(j); zpr_json_item(j);) {
    entry e = {.bytes = -1}, *place = NULL;
    bool good = read_entry(j, &e);
    for (int f = 0; f < ZPR_FILES && good; f++)
      if (strcmp(e.name, zpr_file_name[f]) == 0 && !s->files[f].name[0]) place = &s->files[f];
    if (place)
      *place = e;
    else
      free(e.sums);
    if (!good) return false;
  }
  return !j->failed;
}

static bool read_data(zpr_json *j, zpr_data_identity *data) {
  char key[32], word[32] = "";
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    if (strcmp(key, "source") == 0 && zpr_json_string(j, word, sizeof word))
      data->kind = zpr_data_kind_of(word);
    else if (strcmp(key, "path") == 0)
      zpr_json_string(j, data->path, sizeof data->path);
    else if (strcmp(key, "masks") == 0)
      zpr_json_string(j, data->masks, sizeof data->masks);
    else if (strcmp(key, "order") == 0 && zpr_json_string(j, word, sizeof word))
      data->shuffled = strcmp(word, "shuffled") == 0;
    else if (strcmp(key, "seed") == 0)
      zpr_json_int(j, &data->seed);
    else if (strcmp(key, "tokens") == 0)
      zpr_json_int(j, &data->tokens);
    else if (strcmp(key, "fnv1a64") == 0 && zpr_json_string(j, word, sizeof word))
      data->hash = strtoull(word, NULL, 16);
    else
      zpr_json_skip(j);
  }
  return !j->failed;
}

/* Where the number of a key goes; NULL when it is no count. */
static int64_t *count_of(zpr_manifest *m, const char *key) {
  static const struct {
    const char *key;
    size_t offset;
  } counts[] = {{"step", offsetof(zpr_manifest, step)},
                {"frozen_steps", offsetof(zpr_manifest, frozen_steps)},
                {"freezes_at", offsetof(zpr_manifest, freezes_at)},
                {"skipped_steps", offsetof(zpr_manifest, skipped_steps)},
                {"error_ranks", offsetof(zpr_manifest, error_ranks)},
                {"error_zero", offsetof(zpr_manifest, error_zero)},
                {"samples", offsetof(zpr_manifest, samples)},
                {"batch", offsetof(zpr_manifest, batch)},
                {"sequence", offsetof(zpr_manifest, sequence)},
                {"seed", offsetof(zpr_manifest, seed)},
                {"loss_scale", offsetof(zpr_manifest, loss_scale)},
                {"scale_steps", offsetof(zpr_manifest, scale_steps)}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (strcmp(key, counts[i].key) == 0) return (int64_t *)(void *)((char *)m + counts[i].offset);
  return NULL;
}

/* What no run can have trained: more tokens or steps than can be counted on with, samples of unknown length. */
static bool is_plausible(const zpr_manifest *m) {
  static const int64_t most_tokens = INT64_MAX / 4, most_steps = INT64_C(1) << 40;
  int64_t samples = m->samples < 0 ? 0 : m->samples;
  if (m->step > most_steps || m->step < m->frozen_steps || m->step < m->skipped_steps) return false;
  if (m->step < m->freezes_at || m->step < m->variance.updates) return false;
  if (m->batch > 0 && (m->sequence == 0 || m->samples < 0)) return false;
  return samples <= most_tokens / (m->sequence > 0 ? m->sequence : 1) && m->loss_scale <= ZPR_MOST_LOSS_SCALE;
}

/* The last line answers for those before it: version 2. */
static bool seal_fits(const char *text, size_t bytes) {
  char hex[ZPR_SHA256_TEXT], tail[TAIL + 1];
  if (bytes < TAIL) return false;
  zpr_sha256(text, bytes - TAIL, hex);
  snprintf(tail, sizeof tail, "  \"sha256\": \"%s\"\n}\n", hex);
  return memcmp(text + bytes - TAIL, tail, TAIL) == 0;
}

/* Why it is no manifest; NULL: it is one. */
static const char *read_manifest(zpr *c, const char *text, size_t bytes, zpr_manifest *m, sealed *s) {
  static const char foreign[] = "it is not the manifest of a checkpoint";
  char key[64], format[64] = "";
  *m = (zpr_manifest){.step = -1, .samples = -1};
  zpr_json j = zpr_json_open(text, bytes);
  zpr_json_object(&j);
  while (zpr_json_key(&j, key, sizeof key)) {
    if (strcmp(key, "format") == 0)
      zpr_json_string(&j, format, sizeof format);
    else if (strcmp(key, "version") == 0)
      zpr_json_int(&j, &s->version);
    else if (count_of(m, key))
      zpr_json_int(&j, count_of(m, key));
    else if (strcmp(key, "variance") == 0)
      zpr_variance_freeze_read(&j, &m->variance);
    else if (strcmp(key, "coefficients") == 0)
      zpr_coefficients_read(c, &j, &m->coefficients);
    else if (strcmp(key, "data") == 0)
      read_data(&j, &m->data);
    else if (strcmp(key, "products") == 0)
      zpr_json_string(&j, m->products, sizeof m->products);
    else if (strcmp(key, "initial_weights") == 0)
      zpr_json_string(&j, m->initial, sizeof m->initial);
    else if (strcmp(key, "training") == 0)
      zpr_record_read(&j, &m->training);
    else if (strcmp(key, "plan_sha256") == 0)
      zpr_json_string(&j, s->plan, sizeof s->plan);
    else if (strcmp(key, "files") != 0)
      zpr_json_skip(&j);
    else if (!read_files(&j, s))
      return foreign;
  }
  for (int f = 0; f < ZPR_FILES; f++)
    if (!s->files[f].name[0] && f != ZPR_STALE && (f != ZPR_ERRORS || m->error_ranks > 0)) return foreign;
  m->stale = s->files[ZPR_STALE].name[0] != 0;
  if (!zpr_json_done(&j) || strcmp(format, "zplan-checkpoint") != 0 || !is_plausible(m)) return foreign;
  return NULL;
}

static bool corrupt(zpr_error *error, const char *path, const char *why) {
  zpr_error_set(error, "Z0812", "\"%s\" is corrupt: %s", path, why);
  return false;
}

/* Also of a seal that does not fit: another version is reported as such, whatever else the manifest says. */
static bool check_manifest(zpr *c, const char *path, const char *text, size_t bytes, zpr_manifest *m, sealed *s,
                           zpr_error *error) {
  const char *why = read_manifest(c, text, bytes, m, s);
  bool other = s->version > 2, fits = s->version == 1 || (s->version == 2 && seal_fits(text, bytes));
  if (other)
    zpr_error_set(error, "Z0812", "\"%s\" is of version %lld, and this program reads versions 1 and 2", path,
                  (long long)s->version);
  else if (why)
    corrupt(error, path, why);
  else if (!fits)
    corrupt(error, path, "its last line is not the checksum of the others");
  return !other && !why && fits;
}

/* All of a file, up to `most` bytes, with a zero after it: owned. NULL with *reason, an errno. */
static char *read_text(const char *path, int64_t most, int64_t *bytes, int *reason) {
  struct stat status;
  int fd = zpr_open_file(path);
  bool known = fd >= 0 && fstat(fd, &status) == 0;
  *reason = known ? EFBIG : errno;
  char *text = known && status.st_size <= most ? malloc((size_t)status.st_size + 1) : NULL;
  *bytes = text ? read_full(fd, (unsigned char *)text, status.st_size) : -1;
  if (text && *bytes < 0) {
    *reason = errno;
    free(text);
    text = NULL;
  }
  if (text) text[*bytes] = 0;
  if (fd >= 0) close(fd);
  return text;
}

/* zpr_open_file's EINVAL is of a pipe or a device. */
static const char *words_of(int reason) { return reason == EINVAL ? "it is no regular file" : strerror(reason); }

/* The plan that stands there is the one that was written there, or there is none in either. */
static bool check_plan(const char *folder, const sealed *s, zpr_error *error) {
  char path[ZPR_PATH], hex[ZPR_SHA256_TEXT] = "";
  int64_t bytes;
  int reason;
  if (s->version == 1) return true;
  char *text = read_text(zpr_path(path, "%s/plan.json", folder), LONGEST_PLAN, &bytes, &reason);
  if (text) zpr_sha256(text, (size_t)bytes, hex);
  free(text);
  if (!text && (reason != ENOENT || s->plan[0])) {
    zpr_error_set(error, "Z0812", "cannot read \"%s\": %s", path, words_of(reason));
    return false;
  }
  return strcmp(hex, s->plan) == 0 || corrupt(error, path, "its checksum is not what the manifest says");
}

/* ---- the files: version 2 ---- */

static bool read_sum(int fd, int64_t begin, int64_t end, int64_t element_bytes, void *buffer, uint64_t *sum) {
  *sum = 0;
  for (int64_t at = begin; at < end;) {
    ssize_t got = pread(fd, buffer, (size_t)(end - at < BUFFER ? end - at : BUFFER), at);
    if (got < 0 && errno == EINTR) continue;
    got -= got > 0 ? got % element_bytes : 0; /* the rest comes with the next ones */
    if (got <= 0) return false;
    *sum += zpr_piece_sum(buffer, (at - begin) / element_bytes, got / element_bytes, element_bytes);
    at += got;
  }
  return true;
}

static int64_t bytes_of(const char *dtype) { return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 2; }

/* Bytes in front of a file's data, as its first 8 bytes say; what is out of range the reader of headers tells. */
static int64_t header_bytes(int fd, int64_t file_bytes) {
  unsigned char text[8];
  uint64_t length = 0;
  if (pread(fd, text, sizeof text, 0) != sizeof text) return 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | text[i];
  return length % 8 == 0 && length <= (uint64_t)file_bytes - 8 ? (int64_t)length + 8 : 0;
}

/* One piece: `begin` to `end` of a file. tensor: NULL for the header. */
static bool check_piece(const char *path, int fd, const zpr_tensor *tensor, int64_t begin, int64_t end, uint64_t want,
                        void *buffer, zpr_error *error) {
  uint64_t sum;
  errno = 0;
  if (!read_sum(fd, begin, end, tensor ? bytes_of(tensor->dtype) : 8, buffer, &sum))
    zpr_error_set(error, "Z0812", "cannot read checkpoint file \"%s\": %s", path,
                  errno ? strerror(errno) : "it is shorter than it was");
  else if (sum != want)
    zpr_error_set(error, "Z0812",
                  "checkpoint file \"%s\" is corrupt: the checksum of %s%.100s is %016" PRIx64
                  ", the manifest says %016" PRIx64,
                  path, tensor ? "tensor " : "its header", tensor ? tensor->name : "", sum, want);
  return !error->code[0];
}

/* All ranks look at the header, then each at every so manyth tensor. */
static bool check_pieces(const zpr *c, const char *path, const entry *e, int fd, void *buffer, zpr_error *error) {
  zpr_tensors list = {0};
  int64_t header = header_bytes(fd, e->bytes);
  bool good = e->n > 0 || corrupt(error, path, "the manifest has no checksums of it");
  good = good && (header == 0 || check_piece(path, fd, NULL, 0, header, e->sums[0], buffer, error));
  good = good && zpr_tensors_read(&list, path, error);
  if (good && (list.n + 1 != e->n || list.file_bytes != e->bytes || list.data_start != header))
    good = corrupt(error, path, "it has not the tensors that the manifest says");
  for (int64_t i = c->rank; i < list.n && good; i += c->ranks)
    good = check_piece(path, fd, &list.tensor[i], list.data_start + list.tensor[i].begin,
                       list.data_start + list.tensor[i].end, e->sums[1 + i], buffer, error);
  zpr_tensors_free(&list);
  return good;
}

static bool check_sums(const zpr *c, const char *path, const entry *e, zpr_error *error) {
  void *buffer = malloc(BUFFER);
  int fd = zpr_open_file(path);
  bool good = fd >= 0 && buffer;
  if (!good) zpr_error_set(error, "Z0812", "cannot read checkpoint file \"%s\": %s", path, strerror(errno));
  good = good && check_pieces(c, path, e, fd, buffer, error);
  if (fd >= 0) close(fd);
  free(buffer);
  return good;
}

/* ---- the files: version 1, by rank 0 ---- */

static bool check_file(const zpr *c, const char *folder, const entry *e, int64_t version, zpr_error *error) {
  char path[ZPR_PATH], hex[20];
  struct stat status;
  uint64_t hash;
  int64_t bytes;
  zpr_path(path, "%s/%s", folder, e->name);
  if (stat(path, &status) == 0 && status.st_size != e->bytes) {
    zpr_error_set(error, "Z0812", "checkpoint file \"%s\" is corrupt: it has %lld bytes, the manifest says %lld", path,
                  (long long)status.st_size, (long long)e->bytes);
    return false;
  }
  if (version > 1) return check_sums(c, path, e, error);
  if (c->rank > 0) return true;
  if (!checksum(path, &hash, &bytes, "Z0812", error)) return false;
  snprintf(hex, sizeof hex, "%016" PRIx64, hash);
  if (strcmp(hex, e->hash) == 0) return true;
  zpr_error_set(error, "Z0812", "checkpoint file \"%s\" is corrupt: its checksum is %s, the manifest says %s", path,
                hex, e->hash);
  return false;
}

bool zpr_manifest_check(zpr *c, const char *folder, zpr_manifest *manifest, zpr_error *error) {
  char path[ZPR_PATH];
  sealed s = {0};
  int64_t bytes;
  int reason;
  *manifest = (zpr_manifest){.step = -1};
  char *text = read_text(zpr_path(path, "%s/manifest.json", folder), LONGEST_MANIFEST, &bytes, &reason);
  if (!text) zpr_error_set(error, "Z0812", "cannot read \"%s\": %s", path, words_of(reason));
  bool good = text && check_manifest(c, path, text, (size_t)bytes, manifest, &s, error);
  free(text);
  good = good && check_plan(folder, &s, error);
  for (int f = 0; f < ZPR_FILES && good; f++)
    if (s.files[f].name[0]) good = check_file(c, folder, &s.files[f], s.version, error);
  free_sums(&s);
  return good;
}
