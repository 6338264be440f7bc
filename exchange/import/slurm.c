/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm says about a job or about nodes, as a cluster block. Three texts are read, distinguished by their words:
 * the environment of a job (SLURM_JOB_NUM_NODES=4), `scontrol show job` (JobId=7 NumNodes=4) and `scontrol show node`
 * (NodeName=n1 Gres=gpu:a100:8). All are words KEY=VALUE between blanks; what else there is counts as no word.
 * Formats: from public examples and from memory; the manuals of sbatch and scontrol were not opened. */
#include "slurm.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

enum { MOST_NODES = 1000000, MOST_GPUS = 64, MOST_CORES = 100000 };

typedef struct word {
  const char *key, *value;
  zp_span at;
} word;

typedef struct reader {
  zp_arena *arena;
  zp_diags *diags;
  int file;
  const char *path;
  ZP_VEC(word) words;
  slurm_cluster *cluster;
} reader;

static void complain(reader *r, zp_span at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_report(r->diags, ZP_Z0685, at, "%s", zp_vformat(r->arena, format, args));
  va_end(args);
}

static void split(reader *r, const char *text, size_t len) {
  for (size_t i = 0; i < len;) {
    while (i < len && isspace((unsigned char)text[i])) i++;
    size_t begin = i;
    while (i < len && !isspace((unsigned char)text[i])) i++;
    const char *equals = memchr(text + begin, '=', i - begin);
    if (!equals || equals == text + begin) continue;
    word w = {.key = zp_strndup(r->arena, text + begin, (size_t)(equals - text) - begin),
              .value = zp_strndup(r->arena, equals + 1, (size_t)(text + i - equals) - 1),
              .at = {r->file, (uint32_t)begin, (uint32_t)i}};
    zp_push(r->arena, &r->words, w);
  }
}

/* The first of the keys that is there and has a value; from word `from` on, up to the next `stop`. */
static const word *find(const reader *r, int from, const char *stop, const char *const *keys, int n) {
  for (int k = 0; k < n; k++)
    for (int i = from; i < r->words.len; i++) {
      const word *w = &r->words.data[i];
      if (stop && i > from && strcmp(w->key, stop) == 0) break;
      if (strcmp(w->key, keys[k]) == 0 && *w->value && strcmp(w->value, "(null)") != 0) return w;
    }
  return NULL;
}

/* A whole number from 1 at the start of the text; *end is what follows. 0 after complaining. */
static int64_t number(reader *r, const word *w, const char *text, int64_t most, const char **end) {
  char *rest = NULL;
  errno = 0;
  long long value = isdigit((unsigned char)*text) ? strtoll(text, &rest, 10) : 0;
  if (!rest || errno || value < 1 || value > most) {
    complain(r, w->at, "`%s` is no number from 1 to %lld", text, (long long)most);
    return 0;
  }
  *end = rest;
  return value;
}

static int64_t whole_number(reader *r, const word *w, int64_t most) {
  const char *end = "";
  int64_t value = number(r, w, w->value, most, &end);
  if (!value || !*end) return value;
  complain(r, w->at, "`%s` is no number", w->value);
  return 0;
}

/* How many nodes a list names: n[001-004,007],login1. 0 after complaining. */
static int64_t count_list(reader *r, const word *w) {
  int64_t total = 0;
  for (const char *c = w->value; *c;) {
    int64_t names = 1;
    for (; *c && *c != ','; c++) {
      if (*c != '[') continue;
      int64_t here = 0;
      do {
        const char *end = c;
        char *rest = NULL;
        long long low = isdigit((unsigned char)c[1]) ? strtoll(c + 1, &rest, 10) : -1, high = low;
        if (low >= 0 && *rest == '-') high = isdigit((unsigned char)rest[1]) ? strtoll(rest + 1, &rest, 10) : -1;
        if (low < 0 || high < low || high - low >= MOST_NODES || here > MOST_NODES) {
          complain(r, w->at, "the brackets of `%s` hold no list of numbers", w->value);
          return 0;
        }
        here += high - low + 1;
        end = rest;
        c = end;
      } while (*c == ',');
      if (*c != ']') {
        complain(r, w->at, "the brackets of `%s` hold no list of numbers", w->value);
        return 0;
      }
      names = names * here;
      if (names > MOST_NODES) break;
    }
    total += names;
    if (total > MOST_NODES) {
      complain(r, w->at, "more than %d nodes", MOST_NODES);
      return 0;
    }
    if (*c == ',' && !*++c) {
      complain(r, w->at, "`%s` ends with a comma", w->value);
      return 0;
    }
  }
  return total;
}

/* gpu:a100:8(S:0-1), gres/gpu:a100=8, gres:gpu:8, a100:8, 8: one type of GPU; several are refused. */
static bool read_gpus(reader *r, const word *w, slurm_nodes *nodes) {
  const char *text = w->value, *gpu = strstr(text, "gpu");
  if (gpu) text = gpu + 3;
  if (*text == ':' || *text == '=') text++;
  size_t name = strcspn(text, ":=,(");
  if (name && !isdigit((unsigned char)*text)) {
    nodes->type = zp_strndup(r->arena, text, name);
    text += name;
    if (*text == ':' || *text == '=')
      text++;
    else
      text = "1"; /* a type alone is one of them */
  }
  const char *end = "";
  nodes->gpus = number(r, w, text, MOST_GPUS, &end);
  if (!nodes->gpus) return false;
  if (*end == '(') end += strcspn(end, ")") + (strchr(end, ')') != NULL);
  if (!*end || (*end == ',' && !strstr(end, "gpu"))) return true;
  complain(r, w->at, "`%s` is no `gpu:TYPE:COUNT` of one type", w->value);
  return false;
}

#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* The first number of 4(x3),2: nodes that differ are refused. */
static bool read_cores(reader *r, const word *w, slurm_nodes *nodes) {
  const char *end = "";
  nodes->cores = number(r, w, w->value, MOST_CORES, &end);
  if (!nodes->cores) return false;
  if (strchr(end, ',')) {
    complain(r, w->at, "the nodes have different numbers of cores: import `scontrol show node`, where each is named");
    return false;
  }
  return true;
}

/* Reads how many nodes a job has, which must be what the list names. */
static bool read_count(reader *r, const word *count, const word *list, slurm_nodes *nodes) {
  int64_t listed = list ? count_list(r, list) : 0;
  if (list && !listed) return false;
  nodes->count = count ? whole_number(r, count, MOST_NODES) : listed;
  if (!count && !list) complain(r, ZP_NO_SPAN, "%s does not say how many nodes there are", r->path);
  if (!nodes->count) return false;
  if (listed && listed != nodes->count) {
    complain(r, count->at, "%lld nodes, and `%s` names %lld", (long long)nodes->count, list->value, (long long)listed);
    return false;
  }
  return true;
}

static bool read_environment(reader *r) {
  slurm_nodes nodes = {0};
  const word *count = find(r, 0, NULL, KEYS("SLURM_JOB_NUM_NODES", "SLURM_NNODES"));
  const word *list = find(r, 0, NULL, KEYS("SLURM_JOB_NODELIST", "SLURM_NODELIST"));
  const word *gpus = find(r, 0, NULL, KEYS("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"));
  const word *cores = find(r, 0, NULL, KEYS("SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE"));
  const word *memory = find(r, 0, NULL, KEYS("SLURM_MEM_PER_NODE"));
  if (!read_count(r, count, list, &nodes)) return false;
  if (gpus && !read_gpus(r, gpus, &nodes)) return false;
  if (cores && !read_cores(r, cores, &nodes)) return false;
  if (memory && !(nodes.memory_mib = whole_number(r, memory, INT64_C(1) << 40))) return false;
  zp_push(r->arena, &r->cluster->nodes, nodes);
  return true;
}

/* A pending job says 4-8 nodes: it has none yet. */
static bool read_job(reader *r) {
  slurm_nodes nodes = {0};
  const word *count = find(r, 0, NULL, KEYS("NumNodes")), *list = find(r, 0, NULL, KEYS("NodeList"));
  const word *gpus = find(r, 0, NULL, KEYS("TresPerNode", "Gres")), *cores = find(r, 0, NULL, KEYS("NumCPUs"));
  if (!count) {
    complain(r, r->words.data[0].at, "the job has no `NumNodes=`");
    return false;
  }
  if (!read_count(r, count, list, &nodes)) return false;
  if (gpus && !read_gpus(r, gpus, &nodes)) return false;
  if (cores) {
    int64_t all = whole_number(r, cores, MOST_CORES * nodes.count);
    if (!all) return false;
    nodes.cores = all / nodes.count;
  }
  zp_push(r->arena, &r->cluster->nodes, nodes);
  return true;
}

static bool same_nodes(const slurm_nodes *a, const slurm_nodes *b) {
  bool untyped = !a->type && !b->type;
  return a->gpus == b->gpus && a->cores == b->cores &&
         (untyped || (a->type && b->type && strcmp(a->type, b->type) == 0));
}

static bool read_nodes(reader *r) {
  for (int i = 0; i < r->words.len; i++) {
    if (strcmp(r->words.data[i].key, "NodeName") != 0) continue;
    slurm_nodes node = {.count = 1};
    const word *gpus = find(r, i, "NodeName", KEYS("Gres")), *cores = find(r, i, "NodeName", KEYS("CPUTot"));
    const word *memory = find(r, i, "NodeName", KEYS("RealMemory"));
    if (gpus && strstr(gpus->value, "gpu") && !read_gpus(r, gpus, &node)) return false;
    if (cores && !(node.cores = whole_number(r, cores, MOST_CORES))) return false;
    if (memory && !(node.memory_mib = whole_number(r, memory, INT64_C(1) << 40))) return false;
    int64_t last = r->cluster->nodes.len - 1;
    slurm_nodes *before = last >= 0 ? &r->cluster->nodes.data[last] : NULL;
    if (before && same_nodes(before, &node)) {
      before->count++;
      if (node.memory_mib < before->memory_mib) before->memory_mib = node.memory_mib;
    } else {
      zp_push(r->arena, &r->cluster->nodes, node);
    }
  }
  return true;
}

static bool read(reader *r) {
  for (int i = 0; i < r->words.len; i++) {
    const char *key = r->words.data[i].key;
    if (strncmp(key, "SLURM_", 6) == 0) return read_environment(r);
    if (strcmp(key, "JobId") == 0) return read_job(r);
    if (strcmp(key, "NodeName") == 0) return read_nodes(r);
  }
  zp_diag *d = zp_report(r->diags, ZP_Z0685, ZP_NO_SPAN, "%s says nothing of Slurm", r->path);
  zp_diag_help(d, "save `env`, `scontrol show job $SLURM_JOB_ID` or `scontrol show node` and import that");
  return false;
}

zp_imported *zp_import_slurm(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len) {
  assert(path && (text || len == 0));
  reader r = {.arena = arena, .diags = diags, .path = path, .cluster = ZP_NEW(arena, slurm_cluster)};
  r.file = zp_diags_add_source(diags, path, text, len);
  if (memchr(text, 0, len)) {
    zp_report(diags, ZP_Z0685, ZP_NO_SPAN, "%s is no text", path);
    return NULL;
  }
  split(&r, text, len);
  return read(&r) ? slurm_write(arena, diags, r.cluster) : NULL;
}
