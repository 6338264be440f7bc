/* SPDX-License-Identifier: Apache-2.0 */
/* References to `device`, `node`, `fabric` items: by name, by dotted name, or called with arguments
 * (`workstation(memory = 1TB)`). */
#include <ctype.h>
#include "spec_internal.h"
#include <zplan/buf.h>

static const char *item_word(zp_item_kind kind) {
  return kind == ZP_ITEM_DEVICE ? "device" : kind == ZP_ITEM_FABRIC ? "fabric" : "node";
}

static const char *item_example(zp_item_kind kind) {
  return kind == ZP_ITEM_DEVICE ? "std.hw.a100_80" : kind == ZP_ITEM_FABRIC ? "std.hw.rail" : "std.hw.dgx_a100";
}

static const zp_expr *called_name(const zp_expr *expr) { return expr->kind == ZP_EXPR_CALL ? expr->left : expr; }

static const zp_binding *find_binding(const zp_env *env, const zp_expr *expr) {
  if (expr->kind != ZP_EXPR_NAME) return NULL;
  for (const zp_binding *b = env->devices; b; b = b->next)
    if (strcmp(b->name, expr->text) == 0) return b;
  return NULL;
}

bool zp_names_device(zp_reader *reader, const zp_env *env, const zp_expr *expr) {
  if (expr->kind == ZP_EXPR_BINARY && expr->op == ZP_OPR_MUL) expr = expr->right;
  if (find_binding(env, expr)) return true;
  const char *name = zp_dotted_name(reader->arena, called_name(expr));
  if (!name || zp_scope_get(env->scope, name)) return false;
  zp_module *where;
  return zp_module_find(env->module, name, 1u << ZP_ITEM_DEVICE, &where) != NULL;
}

/* Names that have the last word of `name` as one of theirs: h100 is in dgx_h100 and h100_sxm, whose letters are not
 * near. "a, b"; NULL: there are none. */
static const char *names_with(zp_reader *reader, zp_module *module, const char *name, zp_item_kind kind) {
  const char *dot = strrchr(name, '.');
  char *word = zp_strdup(reader->arena, dot ? dot + 1 : name);
  size_t n = strlen(word);
  for (char *c = word; *c; c++) *c = (char)tolower((unsigned char)*c); /* A100 */
  zp_strings names = {0};
  zp_buf out = zp_buf_new(reader->arena);
  zp_module_names(reader->arena, module, 1u << kind, &names);
  for (int i = 0; i < names.len; i++)
    for (const char *at = names.data[i]; n >= 3 && (at = strstr(at, word)) != NULL; at += n) {
      bool begins = at == names.data[i] || at[-1] == '_' || at[-1] == '.', ends = !at[n] || at[n] == '_';
      if (!begins || !ends) continue;
      zp_buf_printf(&out, "%s`%.*s%s`", out.len ? ", " : "", (int)(dot ? dot + 1 - name : 0), name, names.data[i]);
      break;
    }
  return out.len ? out.data : NULL;
}

static void report_unknown_item(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *name,
                                zp_item_kind kind) {
  zp_diag *d = zp_report(reader->diags, ZP_Z0402, expr->span, "unknown %s `%s`", item_word(kind), name);
  zp_strings names = {0};
  zp_module_names(reader->arena, env->module, 1u << kind, &names);
  const char *dot = strrchr(name, '.');
  zp_module *where;
  zp_item_kind other = kind == ZP_ITEM_NODE ? ZP_ITEM_DEVICE : ZP_ITEM_NODE;
  if (zp_module_find(env->module, name, 1u << other, &where)) {
    zp_diag_note(d, "there is a %s of that name; a %s is needed here", item_word(other), item_word(kind));
    if (kind == ZP_ITEM_NODE) zp_diag_help(d, "one of them: `node = std.hw.workstation(devices = 1 * %s)`", name);
    return;
  }
  const char *nodes = kind == ZP_ITEM_NODE ? names_with(reader, env->module, name, ZP_ITEM_NODE) : NULL,
             *devices = kind == ZP_ITEM_FABRIC ? NULL : names_with(reader, env->module, name, ZP_ITEM_DEVICE);
  if (nodes && strcmp(nodes, zp_format(reader->arena, "`%s`", name)) == 0)
    zp_diag_help(d, "the library's is `std.%s`", name);
  else if (nodes)
    zp_diag_help(d, "there is %s", nodes);
  if (devices)
    zp_diag_help(d,
                 kind == ZP_ITEM_NODE ? "devices are %s, as in `node = std.hw.workstation(devices = 4 * NAME)`"
                                      : "there are %s",
                 devices);
  if (nodes || devices) return;
  for (int i = 0, n = names.len; i < n && dot; i++) /* library names are listed without their module */
    zp_push(reader->arena, &names, zp_format(reader->arena, "%.*s.%s", (int)(dot - name), name, names.data[i]));
  if (zp_diag_did_you_mean(d, name, names.data, names.len)) return;
  if (strncmp(name, "std.hw.", 7) == 0 && !names.len)
    zp_diag_help(d, "the hardware library must be named first: `use std.hw`");
  else
    zp_diag_help(d, "`use std.hw` brings the hardware library; your own %ss are items `%s name { ... }`",
                 item_word(kind), item_word(kind));
}

/* The item itself among those being read? Then its definition never ends. */
static bool is_cycle(zp_reader *reader, const zp_env *env, const zp_item *item, const zp_expr *expr) {
  for (const zp_env *e = env; e; e = e->caller) {
    if (e->item != item) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0403, expr->span, "`%s` is defined by itself", item->name.text);
    zp_diag_also(d, item->name.span, "defined here");
    return true;
  }
  return false;
}

static int formal_index(const zp_item *item, const char *name) {
  for (int i = 0; i < item->formals.len; i++)
    if (strcmp(item->formals.data[i].name.text, name) == 0) return i;
  return -1;
}

/* Which formal each argument goes to; given[] by formal. */
static bool match_args(zp_reader *reader, const zp_item *item, const zp_expr *call, const zp_expr **given) {
  int before = zp_diags_errors(reader->diags);
  for (int i = 0; i < call->args.len; i++) {
    const zp_arg *arg = &call->args.data[i];
    zp_span span = arg->name.text ? arg->name.span : arg->value->span;
    int at = arg->name.text ? formal_index(item, arg->name.text) : i;
    if (at < 0 || at >= item->formals.len) {
      zp_diag *d =
          arg->name.text
              ? zp_report(reader->diags, ZP_Z0404, span, "`%s` has no argument `%s`", item->name.text, arg->name.text)
              : zp_report(reader->diags, ZP_Z0404, span, "`%s` takes %d arguments", item->name.text, item->formals.len);
      zp_strings names = {0};
      for (int k = 0; k < item->formals.len; k++) zp_push(reader->arena, &names, item->formals.data[k].name.text);
      if (!arg->name.text || !zp_diag_did_you_mean(d, arg->name.text, names.data, names.len)) {
        zp_buf list = zp_buf_new(reader->arena);
        for (int k = 0; k < names.len; k++) zp_buf_printf(&list, "%s`%s`", k ? ", " : "", names.data[k]);
        zp_diag_note(d, "arguments of `%s`: %s", item->name.text, names.len ? list.data : "none");
      }
    } else if (given[at]) {
      zp_diag *d = zp_report(reader->diags, ZP_Z0404, span, "`%s` is given twice", item->formals.data[at].name.text);
      zp_diag_also(d, given[at]->span, "first given here");
    } else
      given[at] = arg->value;
  }
  return zp_diags_errors(reader->diags) == before;
}

/* A formal stands for devices when its argument, or else its default, names some. */
static void bind_formal(zp_reader *reader, const zp_env *caller, zp_env *inner, const zp_formal *formal,
                        const zp_expr *given) {
  bool takes_device = (given && zp_names_device(reader, caller, given)) ||
                      (formal->init && zp_names_device(reader, inner, formal->init));
  if (takes_device) {
    zp_binding *binding = ZP_NEW(reader->arena, zp_binding);
    zp_env *defaults = ZP_NEW(reader->arena, zp_env);
    *defaults = *inner; /* as of now: the default of a formal sees the formals before it only */
    *binding = (zp_binding){formal->name.text, given ? given : formal->init, given ? caller : defaults, inner->devices};
    inner->devices = binding;
    return;
  }
  zp_value value = {0};
  const zp_expr *expr = given ? given : formal->init;
  const zp_scope *scope = given ? caller->scope : inner->scope;
  if (zp_eval(reader->arena, reader->diags, scope, expr, &value)) zp_scope_set(inner->scope, formal->name.text, value);
}

static bool bind_formals(zp_reader *reader, const zp_env *caller, zp_env *inner, const zp_item *item,
                         const zp_expr *expr) {
  int before = zp_diags_errors(reader->diags);
  const zp_expr **given = ZP_NEW_ARRAY(reader->arena, const zp_expr *, item->formals.len + 1);
  if (expr->kind == ZP_EXPR_CALL && !match_args(reader, item, expr, given)) return false;
  for (int i = 0; i < item->formals.len; i++) {
    const zp_formal *formal = &item->formals.data[i];
    if (given[i] || formal->init) {
      bind_formal(reader, caller, inner, formal, given[i]);
      continue;
    }
    zp_diag *d = zp_report(reader->diags, ZP_Z0404, expr->span, "`%s` needs `%s`", item->name.text, formal->name.text);
    zp_diag_help(d, "write `%s(%s = ...)`", item->name.text, formal->name.text);
    zp_diag_also(d, formal->name.span, "has no default");
  }
  return zp_diags_errors(reader->diags) == before;
}

const zp_env *zp_enter_item(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_item_kind kind) {
  const char *name = zp_dotted_name(reader->arena, called_name(expr));
  if (!name) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, expr->span, "the name of a %s is expected here", item_word(kind));
    zp_diag_help(d, "for example `%s`", item_example(kind));
    return NULL;
  }
  zp_module *where = NULL;
  const zp_item *item = zp_module_find(env->module, name, 1u << kind, &where);
  if (!item) {
    report_unknown_item(reader, env, called_name(expr), name, kind);
    return NULL;
  }
  if (is_cycle(reader, env, item, expr)) return NULL;
  zp_env *inner = ZP_NEW(reader->arena, zp_env);
  *inner = (zp_env){.module = where, .scope = zp_scope_new(reader->arena, where->lets), .item = item, .caller = env};
  return bind_formals(reader, env, inner, item, expr) ? inner : NULL;
}

const zp_item *zp_read_item(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_item_kind kind,
                            const zp_schema *schema, void *base) {
  int first = zp_diags_count(reader->diags);
  const zp_env *inner = zp_enter_item(reader, env, expr, kind);
  if (!inner) return NULL;
  zp_read_attrs(reader, inner, schema, &inner->item->attrs, base);
  zp_blame_call(reader->diags, first, expr, inner->item);
  return inner->item;
}

const zp_env *zp_resolve_devices(zp_reader *reader, const zp_env *env, const zp_expr *expr, int *count,
                                 const zp_expr **device) {
  const zp_binding *binding = find_binding(env, expr);
  if (binding) return zp_resolve_devices(reader, binding->env, binding->value, count, device);
  bool counted = expr->kind == ZP_EXPR_BINARY && expr->op == ZP_OPR_MUL;
  int64_t number = 1;
  if (counted && !zp_read_whole(reader, env, expr->left, "devices", ZP_RANGE_ONE_OR_MORE, &number)) return NULL;
  const zp_expr *right = counted ? expr->right : expr;
  binding = find_binding(env, right);
  int inner = 1;
  *device = right;
  if (binding && !(env = zp_resolve_devices(reader, binding->env, binding->value, &inner, device))) return NULL;
  if (number * inner > 1 << 20) {
    zp_report(reader->diags, ZP_Z0306, expr->span, "a node cannot have %lld devices", (long long)number * inner);
    return NULL;
  }
  *count = (int)number * inner;
  return env;
}
