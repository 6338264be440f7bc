/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a file and the files it uses, and finds items by name across them. */
#include <zplan/buf.h>
#include <zplan/path.h>
#include <unistd.h>
#include "eval.h"

/* Modules already read, by path: a file used twice is read once. */
typedef struct loader {
  zp_arena *arena;
  zp_diags *diags;
  zp_spec *spec;
  const zp_source_text *sources;
  int n_sources;
  const zp_load_options *options;
  ZP_VEC(zp_module *) done;
  zp_strings open; /* paths between here and the main file */
} loader;

/* A file: its path, how messages name it, and by which item of which file it is used (none: the main file). */
typedef struct wanted {
  const char *path, *shown;
  bool is_library, is_absolute;
  zp_span from;
} wanted;

static zp_module *load(loader *l, wanted file);

static const char *stem(zp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *begin = slash ? slash + 1 : path, *dot = strrchr(begin, '.');
  return dot && dot > begin ? zp_strndup(arena, begin, (size_t)(dot - begin)) : begin;
}

/* Text of a file: as it is edited, or from the given sources when there are some (library files always come from the
 * library). */
static char *read_source(loader *l, const char *path, bool is_library, bool is_main, size_t *len, const char **error) {
  for (int i = 0; i < l->options->n_edited; i++) {
    const zp_source_text *edited = &l->options->edited[i];
    if (strcmp(edited->path, path) != 0) continue;
    *len = edited->len;
    return zp_strndup(l->arena, edited->text, edited->len);
  }
  if (!l->sources && is_main) return zp_read_input(l->arena, path, len, error);
  if (!l->sources || is_library) return zp_read_file(l->arena, path, len, error);
  for (int i = 0; i < l->n_sources; i++) {
    if (strcmp(l->sources[i].path, path) != 0) continue;
    *len = l->sources[i].len;
    return zp_strndup(l->arena, l->sources[i].text, *len);
  }
  *error = "it is not among the sources of this plan";
  return NULL;
}

static void report_unreadable(loader *l, const char *shown, bool is_library, const char *error, zp_span from) {
  const char *why = strstr(error, "`: "); /* the reader's message names the path once more */
  zp_diag *d = zp_report(l->diags, ZP_Z0210, from, "cannot read `%s`: %s", shown, why ? why + 3 : error);
  if (is_library && access(l->options->library_dir, R_OK) != 0)
    zp_diag_help(d, "the library is looked for in `%s`, which is not there: this copy of zplan is not whole",
                 l->options->library_dir);
  else if (is_library)
    zp_diag_help(d, "the library has `std.nn` (layers) and `std.hw` (machines)");
  else if (from.file >= 0)
    zp_diag_help(d, "the path is relative to the folder of the file that says `use`");
}

static bool is_open(const loader *l, const char *path) {
  for (int i = 0; i < l->open.len; i++)
    if (strcmp(l->open.data[i], path) == 0) return true;
  return false;
}

static zp_module *use_module(loader *l, const zp_module *user, const zp_item *item) {
  const char *name = item->name.text, *alias = item->alias.text;
  bool is_library = !item->is_file;
  if (is_library && (strncmp(name, "std.", 4) != 0 || strchr(name + 4, '.'))) {
    zp_diag *d = zp_report(l->diags, ZP_Z0210, item->name.span, "unknown library `%s`", name);
    zp_diag_help(d, "the library has `std.nn` and `std.hw`; files are written in quotes: `use \"%s.dz\"`", name);
    return NULL;
  }
  const char *path = is_library ? zp_format(l->arena, "%s/%s.dz", l->options->library_dir, name + 4)
                                : zp_path_alongside(l->arena, user->path, name);
  const char *shown = is_library ? zp_format(l->arena, "std/%s.dz", name + 4) : path;
  bool is_absolute = !is_library && (name[0] == '/' || user->is_absolute);
  zp_module *found = load(l, (wanted){path, shown, is_library, is_absolute, item->name.span});
  if (!found) return NULL;
  zp_module *named = ZP_NEW(l->arena, zp_module);
  *named = *found;
  named->alias = alias ? alias : is_library ? name : stem(l->arena, path);
  return named;
}

static const char *item_kind_name(zp_item_kind kind) {
  static const char *const names[] = {
      [ZP_ITEM_USE] = "use",       [ZP_ITEM_LET] = "let",   [ZP_ITEM_BLOCK] = "block",     [ZP_ITEM_MODEL] = "model",
      [ZP_ITEM_DEVICE] = "device", [ZP_ITEM_NODE] = "node", [ZP_ITEM_CLUSTER] = "cluster", [ZP_ITEM_FABRIC] = "fabric",
      [ZP_ITEM_TRAIN] = "train",   [ZP_ITEM_PLAN] = "plan",
  };
  return names[kind];
}

/* train and plan blocks without a name, and `use`, may stand more than once; everything named is unique in its kind. */
static void check_duplicates(loader *l, const zp_file *file) {
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    if (item->kind == ZP_ITEM_USE || !item->name.text) continue;
    for (int k = 0; k < i; k++) {
      const zp_item *other = file->items.data[k];
      if (other->kind != item->kind || !other->name.text || strcmp(other->name.text, item->name.text) != 0) continue;
      zp_diag *d = zp_report(l->diags, ZP_Z0201, item->name.span, "%s `%s` is defined twice",
                             item_kind_name(item->kind), item->name.text);
      zp_diag_also(d, other->name.span, "first here");
      break;
    }
  }
}

/* `let` values of this file see those above them and, as "alias.name", those of used modules. */
static void eval_lets(loader *l, zp_module *module) {
  module->lets = zp_scope_new(l->arena, NULL);
  for (int i = 0; i < module->uses.len; i++) {
    const zp_module *used = module->uses.data[i];
    zp_strings names = {0};
    zp_scope_names(l->arena, used->lets, &names);
    for (int k = 0; k < names.len; k++) {
      if (strchr(names.data[k], '.')) continue; /* what the used file itself uses is not handed on */
      const char *dotted = zp_format(l->arena, "%s.%s", used->alias, names.data[k]);
      zp_scope_set(module->lets, dotted, *zp_scope_get(used->lets, names.data[k]));
    }
  }
  for (int i = 0; i < module->file->items.len; i++) {
    const zp_item *item = module->file->items.data[i];
    if (item->kind != ZP_ITEM_LET) continue;
    zp_value value;
    if (!zp_eval(l->arena, l->diags, module->lets, item->expr, &value)) value = (zp_value){.kind = ZP_VAL_POISON};
    value.span = item->name.span;
    zp_scope_set(module->lets, item->name.text, value);
  }
}

static void load_uses(loader *l, zp_module *module) {
  for (int i = 0; i < module->file->items.len; i++) {
    const zp_item *item = module->file->items.data[i];
    if (item->kind != ZP_ITEM_USE) continue;
    zp_module *used = use_module(l, module, item);
    if (used) zp_push(l->arena, &module->uses, used);
  }
}

static bool has_cluster(const zp_file *file) {
  for (int i = 0; i < file->items.len; i++)
    if (file->items.data[i]->kind == ZP_ITEM_CLUSTER) return true;
  return false;
}

/* The text of the main file, with a machine that is not written in it after its end: as it stands in a plan file, so
 * that the plan is of the same machine wherever that is read. */
static const char *add_machine(loader *l, zp_module *module, const char *text) {
  const zp_load_options *o = l->options;
  const zp_machine_text *machine = o->machine;
  if (!machine && o->machine_here && !o->model_only && !o->cluster && !has_cluster(module->file))
    machine = o->machine_here(o->user);
  if (!machine) return text;
  int source = zp_diags_add_source(l->diags, machine->shown, machine->text, strlen(machine->text));
  const zp_file *added = zp_parse(l->arena, l->diags, source);
  for (int i = 0; i < added->items.len; i++) {
    zp_item *item = added->items.data[i];
    zp_push(l->arena, &module->file->items, item);
    if (item->kind == ZP_ITEM_CLUSTER) module->machine = item;
  }
  return zp_format(l->arena, "%s\n%s", text, machine->text);
}

static zp_module *load(loader *l, wanted w) {
  for (int i = 0; i < l->done.len; i++)
    if (strcmp(l->done.data[i]->path, w.path) == 0) return l->done.data[i];
  if (is_open(l, w.path)) {
    zp_diag *d = zp_report(l->diags, ZP_Z0210, w.from, "`%s` uses itself", w.shown);
    zp_diag_note(d, "the circle: %s is being read because of %s", w.shown, l->open.data[l->open.len - 1]);
    return NULL;
  }
  const char *error = NULL;
  size_t len;
  char *text = read_source(l, w.path, w.is_library, w.from.file < 0, &len, &error);
  if (!text) {
    report_unreadable(l, w.shown, w.is_library, error, w.from);
    return NULL;
  }
  zp_module *module = ZP_NEW(l->arena, zp_module);
  module->path = w.path;
  module->is_absolute = w.is_absolute;
  int errors = zp_diags_errors(l->diags);
  int file = zp_diags_add_source(l->diags, w.shown, text, len);
  if (w.is_library) zp_diags_mark_library(l->diags, file);
  module->file = zp_parse(l->arena, l->diags, file);
  if (zp_diags_errors(l->diags) > errors) module->file->items.len = 0; /* half a tree would only give more errors */
  const char *whole = text;
  if (w.from.file < 0 && zp_diags_errors(l->diags) == errors) whole = add_machine(l, module, text);
  if (!w.is_library) {
    zp_source_text source = {w.path, whole, whole == text ? len : strlen(whole), w.is_absolute};
    zp_push(l->arena, &l->spec->sources, source);
  }
  zp_push(l->arena, &l->open, w.path);
  check_duplicates(l, module->file);
  load_uses(l, module);
  l->open.len--;
  eval_lets(l, module);
  zp_push(l->arena, &l->done, module);
  return module;
}

zp_module *zp_module_load(zp_arena *arena, zp_diags *diags, zp_spec *spec, const char *path,
                          const zp_source_text *sources, int n_sources, const zp_load_options *options) {
  loader l = {
      .arena = arena, .diags = diags, .spec = spec, .sources = sources, .n_sources = n_sources, .options = options};
  zp_module *module = load(&l, (wanted){.path = zp_path_tidy(arena, path), .shown = path, .from = ZP_NO_SPAN});
  if (module) module->alias = stem(arena, path);
  return module;
}

static const zp_item *find_own(const zp_module *module, const char *name, unsigned kind_mask) {
  for (int i = 0; i < module->file->items.len; i++) {
    const zp_item *item = module->file->items.data[i];
    if ((kind_mask & 1u << item->kind) && item->name.text && item->kind != ZP_ITEM_USE &&
        strcmp(item->name.text, name) == 0)
      return item;
  }
  return NULL;
}

static bool is_std(const zp_module *module) { return strncmp(module->alias, "std.", 4) == 0; }

const zp_item *zp_module_find(zp_module *module, const char *name, unsigned kind_mask, zp_module **where) {
  const zp_item *own = find_own(module, name, kind_mask);
  if (own) {
    if (where) *where = module;
    return own;
  }
  for (int i = 0; i < module->uses.len; i++) {
    zp_module *used = module->uses.data[i];
    size_t n = strlen(used->alias);
    bool qualified = strncmp(name, used->alias, n) == 0 && name[n] == '.';
    const zp_item *found = qualified ? find_own(used, name + n + 1, kind_mask) : NULL;
    if (!found && is_std(used)) found = find_own(used, name, kind_mask);
    if (!found) continue;
    if (where) *where = used;
    return found;
  }
  return NULL;
}

void zp_module_names(zp_arena *arena, zp_module *module, unsigned kind_mask, zp_strings *out) {
  for (int u = -1; u < module->uses.len; u++) {
    const zp_module *from = u < 0 ? module : module->uses.data[u];
    for (int i = 0; i < from->file->items.len; i++) {
      const zp_item *item = from->file->items.data[i];
      if (!(kind_mask & 1u << item->kind) || !item->name.text || item->kind == ZP_ITEM_USE) continue;
      bool plain = u < 0 || is_std(from);
      zp_push(arena, out, plain ? item->name.text : zp_format(arena, "%s.%s", from->alias, item->name.text));
    }
  }
}
