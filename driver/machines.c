/* SPDX-License-Identifier: Apache-2.0 */
/* Machines by name (machines.def), as cluster blocks; and the machine that zplan runs on. */
#include "driver.h"
#include "machines.h"

#include <zplan/buf.h>
#include <zplan/import.h>

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NODE(name, node, devices, source) {name, node, devices, source, false},
#define DEVICE(device, node, source) {device, node, device, source, true},
static const zp_machine_row rows[] = {
#include "machines.def"
};
#undef NODE
#undef DEVICE
enum { N_ROWS = sizeof rows / sizeof *rows, MOST_IN_A_NODE = 8 };

int zp_machine_count(void) { return N_ROWS; }
const zp_machine_row *zp_machine_at(int index) { return &rows[index]; }

static char plain(char c) { return c == '_' ? '-' : (char)tolower((unsigned char)c); }

const char *zp_plain_name(zp_arena *arena, const char *name) {
  char *text = zp_strdup(arena, name);
  for (char *c = text; *c; c++) *c = plain(*c);
  return text;
}

/* "h100" is what people call the first row whose device begins so, "std.hw.dgx_h100" what the file would say. */
static const zp_machine_row *find_row(zp_arena *arena, const char *name) {
  if (strncmp(name, "std.hw.", 7) == 0) name += 7;
  const char *wanted = zp_plain_name(arena, name);
  size_t n = strlen(wanted);
  for (int i = 0; i < N_ROWS; i++)
    if (strcmp(zp_plain_name(arena, rows[i].name), wanted) == 0) return &rows[i];
  for (int i = 0; i < N_ROWS; i++) {
    const char *own = zp_plain_name(arena, rows[i].name);
    if (n >= 4 && strncmp(own, wanted, n) == 0 && own[n] == '-') return &rows[i];
  }
  return NULL;
}

const char *zp_machine_node(zp_arena *arena, const zp_machine_row *row, int64_t devices) {
  if (!row->is_device)
    return row->devices[0] ? zp_format(arena, "std.hw.%s(devices = %s)", row->node, row->devices)
                           : zp_format(arena, "std.hw.%s", row->node);
  int64_t n = devices > 0 && devices < MOST_IN_A_NODE ? devices : MOST_IN_A_NODE;
  return zp_format(arena, "{ base = std.hw.%s  devices = %lld * std.hw.%s }", row->node, (long long)n, row->devices);
}

/* `node = X`, and `node { base = ... }`, which has no `=`. */
static const char *node_line(zp_arena *arena, const char *node) {
  return zp_format(arena, "node %s%s", node[0] == '{' ? "" : " = ", node);
}

static const char *as_word(zp_arena *arena, const char *name) {
  char *word = zp_strdup(arena, name);
  for (char *c = word; *c; c++)
    if (!isalnum((unsigned char)*c)) *c = '_';
  return word;
}

bool zp_is_machine(zp_arena *arena, const char *name) {
  for (int i = 0; i < N_ROWS; i++)
    if (strcmp(zp_plain_name(arena, rows[i].name), zp_plain_name(arena, name)) == 0) return true;
  return false;
}

/* Is it one of the words that `-` joins? */
static bool has_word(const char *name, const char *word, size_t len) {
  for (size_t n; *name; name += n + (name[n] != '\0')) {
    n = strcspn(name, "-");
    if (n == len && strncmp(name, word, n) == 0) return true;
  }
  return false;
}

/* Machines that have such a word with a number: `gb200-nvl72`, `gb200` of "dgx-gb200"; "": none. */
static const char *machines_alike(zp_arena *arena, const char *plain) {
  zp_buf list = zp_buf_new(arena);
  for (size_t len; *plain; plain += len + (plain[len] != '\0')) {
    len = strcspn(plain, "-");
    if (strcspn(plain, "0123456789") >= len) continue;
    for (int i = 0; i < N_ROWS; i++) {
      const char *name = zp_plain_name(arena, rows[i].name);
      if (has_word(name, plain, len)) zp_buf_printf(&list, "%s`%s`", list.len ? ", " : "", name);
    }
  }
  return list.data;
}

static void unknown_machine(zp_arena *arena, const char *name) {
  zp_strings names = {0};
  const char *alike = machines_alike(arena, zp_plain_name(arena, name));
  if (*alike) {
    zp_usage_error("there is no machine `%s`; there is %s; `zplan machines` lists them", name, alike);
    return;
  }
  for (int i = 0; i < N_ROWS; i++) zp_push(arena, &names, zp_plain_name(arena, rows[i].name));
  const char *near = zp_closest(zp_plain_name(arena, name), names.data, names.len);
  if (near)
    zp_usage_error("there is no machine `%s`; did you mean `%s`? `zplan machines` lists them", name, near);
  else
    zp_usage_error("there is no machine `%s`: `zplan machines` lists those by name, and `this` is the one here", name);
}

const char *zp_machine_block(zp_run_state *run, const char *name, int64_t nodes, const char **word) {
  if (strcmp(name, "this") == 0) return zp_this_machine(run, word, NULL);
  const zp_machine_row *row = find_row(run->arena, name);
  if (!row) {
    unknown_machine(run->arena, name);
    return NULL;
  }
  *word = as_word(run->arena, zp_plain_name(run->arena, row->name));
  const char *node = zp_machine_node(run->arena, row, run->options.load.gpus);
  return zp_format(run->arena, "  nodes = %lld\n  %s\n", (long long)nodes, node_line(run->arena, node));
}

int64_t zp_machine_devices(zp_run_state *run, const char *name) {
  const zp_machine_row *row = find_row(run->arena, name);
  if (!row) return 0;
  static const struct {
    const char *node;
    int64_t devices;
  } others[] = {{"dgx2", 16}, {"nvl72", 72}, {"gh200_quad", 4}};
  for (size_t i = 0; !row->is_device && i < sizeof others / sizeof *others; i++)
    if (strcmp(row->node, others[i].node) == 0) return others[i].devices;
  return MOST_IN_A_NODE;
}

/* ---- this machine ---- */

/* The numbers of PCI devices of the GPUs that the driver gives this process, -1 where the system does not say. */
typedef int driver_init(unsigned flags);
typedef int driver_count(int *count);
typedef int driver_text(char *text, int len, int device);
typedef struct driver {
  driver_init *init;
  driver_count *count;
  driver_text *bus_id;
} driver;

static bool open_driver(driver *d) {
  void *library = access("/dev/nvidiactl", F_OK) == 0 ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) : NULL;
  static const char *const names[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGetPCIBusId"};
  void *found[3];
  for (int i = 0; i < 3; i++)
    if (!library || !(found[i] = dlsym(library, names[i]))) return false;
  memcpy(&d->init, &found[0], sizeof d->init);
  memcpy(&d->count, &found[1], sizeof d->count);
  memcpy(&d->bus_id, &found[2], sizeof d->bus_id);
  return d->init(0) == 0;
}

static int64_t pci_device(const driver *d, int index) {
  char bus[32], path[128], line[32] = "";
  if (d->bus_id(bus, sizeof bus, index) != 0) return -1;
  for (char *c = bus; *c; c++) *c = (char)tolower((unsigned char)*c);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/device", bus);
  FILE *file = fopen(path, "r");
  bool good = file && fgets(line, sizeof line, file);
  if (file) fclose(file);
  return good ? strtoll(line, NULL, 16) : -1;
}

/* The library's name of the GPUs here, and how many of the first one's kind. NULL: none, or none that it knows: *what
 * says so. */
static const char *find_gpus(zp_arena *arena, int *count, const char **what) {
  driver d;
  int all = 0;
  if (!open_driver(&d) || d.count(&all) != 0 || all < 1) return NULL;
  int64_t number = pci_device(&d, 0);
  for (*count = 1; *count < all && pci_device(&d, *count) == number;) ++*count;
  const char *name = number >= 0 ? zp_gpu_of_pci_device(number) : NULL;
  if (!name)
    *what = zp_format(arena, "its %d GPU%s (PCI device 0x%04llx) are not in the library: write a `device` for them",
                      all, all == 1 ? "" : "s", (unsigned long long)(number >= 0 ? number : 0));
  return name;
}

const char *zp_this_machine(zp_run_state *run, const char **word, const char **shown) {
  int cores = zp_host_cores(), gpus = 0;
  int64_t mib = zp_host_bytes() >> 20;
  const char *what = NULL, *gpu = find_gpus(run->arena, &gpus, &what);
  *word = "this_machine";
  if (gpu) {
    const zp_machine_row *row = find_row(run->arena, gpu);
    const char *base = row ? row->node : "gpu_server";
    if (shown)
      *shown = zp_format(run->arena, "%d x %s, %d cores, %s", gpus, gpu, cores, zp_show_gib(run->arena, mib << 20));
    return zp_format(run->arena,
                     "  nodes = 1\n  node { base = std.hw.%s  devices = %d * std.hw.%s\n"
                     "         host { cores = %d  sockets = 1  memory = %lldMiB } }\n",
                     base, gpus, gpu, cores, (long long)mib);
  }
  if (shown)
    *shown = zp_format(run->arena, "%d CPU core%s, %s%s%s", cores, cores == 1 ? "" : "s",
                       zp_show_gib(run->arena, mib << 20), what ? "; " : "", what ? what : "");
  return zp_format(run->arena, "  nodes = 1\n  node  = std.hw.cpu_generic(cores = %d, memory = %lldMiB)\n", cores,
                   (long long)mib);
}

/* ---- --machine, and files without a cluster ---- */

static const zp_machine_text *as_text(zp_run_state *run, const char *shown, const char *word, const char *block) {
  zp_machine_text *machine = ZP_NEW(run->arena, zp_machine_text);
  *machine =
      (zp_machine_text){shown, zp_format(run->arena, "# %s\nuse std.hw\n\ncluster %s {\n%s}\n", shown, word, block)};
  return machine;
}

bool zp_choose_machine(zp_run_state *run) {
  zp_options *o = &run->options;
  const char *word;
  bool several = strcmp(run->command, "plan") == 0 || strcmp(run->command, "compare") == 0;
  if (several && o->machines.len + o->clusters.len > 1) return true;
  if (!o->machine) return zp_lay_price(run, o->load.cluster);
  if (o->load.cluster)
    return zp_usage_error("--machine %s and --cluster %s: which of the two?", o->machine, o->load.cluster), false;
  const char *block = zp_machine_block(run, o->machine, 1, &word);
  if (!block) return false;
  /* a name that the file's own clusters do not have */
  word = zp_format(run->arena, "machine_%s", word);
  o->load.machine = as_text(run, zp_format(run->arena, "--machine %s", o->machine), word, block);
  o->machine_cluster = word;
  return zp_lay_price(run, o->machine);
}

const zp_machine_text *zp_machine_of_file(void *user) {
  zp_run_state *run = user;
  const char *word, *shown, *block;
  if (run->options.hostfile) return NULL; /* ranks on other machines */
  block = zp_this_machine(run, &word, &shown);
  if (!run->machine_said)
    zp_say_line(stderr, "note: %s has no `cluster` block: planned for this machine, %s (--machine NAME: another one)",
                run->options.files.data[0], shown);
  run->machine_said = true;
  return as_text(run, "this machine, as it was when the plan was made", word, block);
}
