/* manifest.json: what a checkpoint is of, and size and checksum of its files. It is written last, so it also says
 * "complete". Where there were any, `frozen_steps`: the steps of 1-bit Adam that left the variance as it was;
 * where it looks for their beginning itself `variance`, its norms so far, or `freezes_at`, what it found (freeze.c);
 * `skipped_steps`: those that were not applied; `error_ranks`: the data ranks whose errors of 1-bit Adam are in
 * errors.safetensors. In f16 `loss_scale` of the next step, and `scale_steps`, how many steps in a row have been
 * applied with it. `samples`: how many of the data have been used, which is where a resumed run goes on; `batch`,
 * `sequence`, `seed` and `data`: what it compares itself with (resume.c). `products`: the algorithms of GPUs
 * (algorithms.c). `coefficients` of 1-bit LAMB (compress_lamb.c). `initial_weights`: the folder that the run began
 * with, where its weights were not drawn. `words` of `data`: the vocabulary of masked words, which `zplan eval` looks
 * for there.
 *
 *   {"format": "zplan-checkpoint", "version": 1, "model": "gpt_tiny", "dtype": "F32", "step": 120, "samples": 3840,
 * "batch": 32, "sequence": 64, "seed": 1, "data": {"source": "text", "path": "book.txt", "order": "shuffled", "seed":
 * 0, "tokens": 174800, "fnv1a64": "0123456789abcdef"}, "files": [{"name": "model.safetensors", "bytes": 4218880,
 * "fnv1a64x8": "0123456789abcdef"}, ...]}
 *
 * fnv1a64x8: byte i of the file goes into FNV-1a (64 bits) number i mod 8; the checksum is the FNV-1a of those eight
 * results as 64 little-endian bytes. Eight chains run side by side in one core: about five times as fast as one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

enum { CHAINS = 8, BUFFER = 1 << 20, LONGEST_MANIFEST = 1 << 22 };
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
  int fd = open(path, O_RDONLY | O_CLOEXEC);
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

/* A name from the user's source, quoted. */
static void print_string(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}

/* Nothing where no data was opened: the initial checkpoint needs none. */
static void print_data(FILE *out, const zpr_data_identity *data) {
  if (data->kind == ZPR_NO_DATA) return;
  fprintf(out, "  \"data\": {\"source\": \"%s\", \"path\": ", zpr_data_kind_name(data->kind));
  print_string(out, data->path);
  if (data->masks[0]) fprintf(out, ", \"masks\": \"%s\"", data->masks);
  if (data->words[0]) {
    fputs(", \"words\": ", out);
    print_string(out, data->words);
  }
  fprintf(out,
          ", \"order\": \"%s\", \"seed\": %" PRId64 ", \"tokens\": %" PRId64 ", \"fnv1a64\": \"%016" PRIx64 "\"},\n",
          data->shuffled ? "shuffled" : "sequential", data->seed, data->tokens, data->hash);
}

static bool print_files(FILE *out, const zpr *c, const char *folder, zpr_error *error) {
  char path[ZPR_PATH];
  fputs("  \"files\": [\n", out);
  for (int file = 0; file < ZPR_FILES; file++) {
    uint64_t hash;
    int64_t bytes;
    if (!zpr_has_file(c, file)) continue;
    zpr_path(path, "%s/%s", folder, zpr_file_name[file]);
    if (!checksum(path, &hash, &bytes, "Z0811", error)) return false;
    fprintf(out, "%s    {\"name\": \"%s\", \"bytes\": %" PRId64 ", \"fnv1a64x8\": \"%016" PRIx64 "\"}",
            file > 0 ? ",\n" : "", zpr_file_name[file], bytes, hash);
  }
  fputs("\n  ]\n}\n", out);
  return true;
}

bool zpr_manifest_write(zpr *c, const char *folder, int64_t step, zpr_error *error) {
  const zpr_program *program = c->program;
  char path[ZPR_PATH], *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) {
    zpr_error_set(error, "Z0822", "cannot get memory for a manifest");
    return false;
  }
  fputs("{\n  \"format\": \"zplan-checkpoint\",\n  \"version\": 1,\n  \"model\": ", out);
  print_string(out, program->name);
  fprintf(out, ",\n  \"dtype\": \"%s\",\n", zpr_dtype_name(program->dtype));
  fprintf(out, "  \"step\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n", step, c->samples);
  if (c->frozen_steps > 0) fprintf(out, "  \"frozen_steps\": %" PRId64 ",\n", c->frozen_steps);
  zpr_freeze_write(c, out);
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
    print_string(out, c->state->algorithms);
    fputs(",\n", out);
  }
  if (c->state->initial[0]) {
    fputs("  \"initial_weights\": ", out);
    print_string(out, c->state->initial);
    fputs(",\n", out);
  }
  const zpr_data_identity data = zpr_data_identify(c->state->data);
  print_data(out, &data);
  bool good = print_files(out, c, folder, error);
  if (fclose(out) != 0 && good) {
    zpr_error_set(error, "Z0822", "cannot get memory for a manifest");
    good = false;
  }
  if (good) good = zpr_write_text(zpr_path(path, "%s/manifest.json", folder), text, error);
  free(text);
  return good;
}

/* ---- checking ---- */

typedef struct entry {
  char name[64], hash[20];
  int64_t bytes;
} entry;

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
    else
      zpr_json_skip(j);
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

/* Entries in any order; each of our files must be there, that of errors where there are any. */
static bool read_manifest(zpr *c, const char *text, size_t bytes, zpr_manifest *m, entry files[ZPR_FILES]) {
  char key[64], format[64] = "";
  int64_t version = 0;
  *m = (zpr_manifest){.step = -1, .samples = -1};
  zpr_json j = zpr_json_open(text, bytes);
  zpr_json_object(&j);
  while (zpr_json_key(&j, key, sizeof key)) {
    if (strcmp(key, "format") == 0)
      zpr_json_string(&j, format, sizeof format);
    else if (strcmp(key, "version") == 0)
      zpr_json_int(&j, &version);
    else if (count_of(m, key))
      zpr_json_int(&j, count_of(m, key));
    else if (strcmp(key, "variance") == 0)
      zpr_freeze_read(&j, &m->variance);
    else if (strcmp(key, "coefficients") == 0)
      zpr_coefficients_read(c, &j, &m->coefficients);
    else if (strcmp(key, "data") == 0)
      read_data(&j, &m->data);
    else if (strcmp(key, "products") == 0)
      zpr_json_string(&j, m->products, sizeof m->products);
    else if (strcmp(key, "initial_weights") == 0)
      zpr_json_string(&j, m->initial, sizeof m->initial);
    else if (strcmp(key, "files") != 0)
      zpr_json_skip(&j);
    else
      for (zpr_json_array(&j); zpr_json_item(&j);) {
        entry e = {.bytes = -1};
        if (!read_entry(&j, &e)) return false;
        for (int f = 0; f < ZPR_FILES; f++)
          if (strcmp(e.name, zpr_file_name[f]) == 0) files[f] = e;
      }
  }
  for (int f = 0; f < ZPR_FILES; f++)
    if (!files[f].name[0] && f != ZPR_STALE && (f != ZPR_ERRORS || m->error_ranks > 0)) return false;
  m->stale = files[ZPR_STALE].name[0] != 0;
  return zpr_json_done(&j) && strcmp(format, "zplan-checkpoint") == 0 && version == 1 && is_plausible(m);
}

static bool check_file(const char *folder, const entry *e, zpr_error *error) {
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
  if (!checksum(path, &hash, &bytes, "Z0812", error)) return false;
  snprintf(hex, sizeof hex, "%016" PRIx64, hash);
  if (strcmp(hex, e->hash) == 0) return true;
  zpr_error_set(error, "Z0812", "checkpoint file \"%s\" is corrupt: its checksum is %s, the manifest says %s", path,
                hex, e->hash);
  return false;
}

bool zpr_manifest_check(zpr *c, const char *folder, zpr_manifest *manifest, zpr_error *error) {
  char path[ZPR_PATH], *text = malloc(LONGEST_MANIFEST);
  entry files[ZPR_FILES] = {0};
  zpr_path(path, "%s/manifest.json", folder);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  int64_t bytes = text && fd >= 0 ? read_full(fd, (unsigned char *)text, LONGEST_MANIFEST) : -1;
  if (bytes < 0) zpr_error_set(error, "Z0812", "cannot read \"%s\": %s", path, strerror(errno));
  bool good = bytes >= 0;
  if (good && !read_manifest(c, text, (size_t)bytes, manifest, files)) {
    zpr_error_set(error, "Z0812", "\"%s\" is corrupt: it is not the manifest of a checkpoint", path);
    good = false;
  }
  if (fd >= 0) close(fd);
  free(text);
  for (int f = 0; f < ZPR_FILES && good; f++)
    if (files[f].name[0]) good = check_file(folder, &files[f], error);
  return good;
}
