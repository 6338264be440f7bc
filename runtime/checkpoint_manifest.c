/* manifest.json: what a checkpoint is of, and size and checksum of its files. It is written last, so it also says
 * "complete". `frozen_steps`, where there were any: the steps of 1-bit Adam that left the variance as it was; `error_ranks`:
 * the data ranks whose errors of it are in errors.safetensors.
 *
 *   {"format": "zplan-checkpoint", "version": 1, "model": "gpt_tiny", "dtype": "F32", "step": 120, "samples": 3840,
 * "seed": 1, "files": [{"name": "model.safetensors", "bytes": 4218880, "fnv1a64x8": "0123456789abcdef"}, ...]}
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

enum { CHAINS = 8, BUFFER = 1 << 20, LONGEST_MANIFEST = 1 << 16 };
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

static bool print_files(FILE *out, const char *folder, int files, zpr_error *error) {
  char path[ZPR_PATH];
  fputs("  \"files\": [\n", out);
  for (int file = 0; file < files; file++) {
    uint64_t hash;
    int64_t bytes;
    zpr_path(path, "%s/%s", folder, zpr_file_name[file]);
    if (!checksum(path, &hash, &bytes, "Z0811", error)) return false;
    fprintf(out, "    {\"name\": \"%s\", \"bytes\": %" PRId64 ", \"fnv1a64x8\": \"%016" PRIx64 "\"}%s\n",
            zpr_file_name[file], bytes, hash, file + 1 < files ? "," : "");
  }
  fputs("  ]\n}\n", out);
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
  fprintf(out, "  \"step\": %" PRId64 ",\n  \"samples\": %" PRId64 ",\n", step, step * program->batch);
  if (c->frozen_steps > 0) fprintf(out, "  \"frozen_steps\": %" PRId64 ",\n", c->frozen_steps);
  if (zpr_file_count(c) > ZPR_ERRORS) fprintf(out, "  \"error_ranks\": %d,\n", program->data);
  fprintf(out, "  \"seed\": %" PRIu64 ",\n", program->seed);
  bool good = print_files(out, folder, zpr_file_count(c), error);
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

/* Entries in any order; each of our files must be there, that of errors where there are any. */
static bool read_manifest(const char *text, size_t bytes, zpr_manifest *m, entry files[ZPR_FILES]) {
  char key[64], format[64] = "";
  int64_t version = 0;
  *m = (zpr_manifest){.step = -1};
  zpr_json j = zpr_json_open(text, bytes);
  zpr_json_object(&j);
  while (zpr_json_key(&j, key, sizeof key)) {
    if (strcmp(key, "format") == 0)
      zpr_json_string(&j, format, sizeof format);
    else if (strcmp(key, "version") == 0)
      zpr_json_int(&j, &version);
    else if (strcmp(key, "step") == 0)
      zpr_json_int(&j, &m->step);
    else if (strcmp(key, "frozen_steps") == 0)
      zpr_json_int(&j, &m->frozen_steps);
    else if (strcmp(key, "error_ranks") == 0)
      zpr_json_int(&j, &m->error_ranks);
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
    if (!files[f].name[0] && (f != ZPR_ERRORS || m->error_ranks > 0)) return false;
  return zpr_json_done(&j) && strcmp(format, "zplan-checkpoint") == 0 && version == 1 && m->step >= m->frozen_steps;
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

bool zpr_manifest_check(const char *folder, zpr_manifest *manifest, zpr_error *error) {
  char path[ZPR_PATH], *text = malloc(LONGEST_MANIFEST);
  entry files[ZPR_FILES] = {0};
  zpr_path(path, "%s/manifest.json", folder);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  int64_t bytes = text && fd >= 0 ? read_full(fd, (unsigned char *)text, LONGEST_MANIFEST) : -1;
  if (bytes < 0) zpr_error_set(error, "Z0812", "cannot read \"%s\": %s", path, strerror(errno));
  bool good = bytes >= 0;
  if (good && !read_manifest(text, (size_t)bytes, manifest, files)) {
    zpr_error_set(error, "Z0812", "\"%s\" is corrupt: it is not the manifest of a checkpoint", path);
    good = false;
  }
  if (fd >= 0) close(fd);
  free(text);
  for (int f = 0; f < ZPR_FILES && good; f++)
    if (files[f].name[0]) good = check_file(folder, &files[f], error);
  return good;
}
