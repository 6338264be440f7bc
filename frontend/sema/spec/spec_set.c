/* SPDX-License-Identifier: Apache-2.0 */
/* --set KEY=VALUE: parsed as attributes, sorted to the block they belong to, and laid over what the file says. After
 * that nothing needs to know that a value came from the command line, except for quotes and paths. */
#include <assert.h>
#include <ctype.h>
#include "spec_internal.h"

static bool has_prefix(const char *key, const char *prefix) {
  size_t len = strlen(prefix);
  return strncmp(key, prefix, len) == 0 && key[len] == '.';
}

static const char *head_of(zp_arena *arena, const char *key) {
  const char *dot = strchr(key, '.');
  return dot ? zp_strndup(arena, key, (size_t)(dot - key)) : key;
}

/* `data` and `schedule` are keys of both train and plan: train's are written like calls, plan's are not. */
static bool is_train_value(const zp_attr *attr) {
  const zp_expr *value = attr->value;
  return strchr(attr->key.text, '.') ||
         (value && (value->kind == ZP_EXPR_CALL || (value->kind == ZP_EXPR_NAME && zp_is_schedule_name(value->text))));
}

/* --why-not asks for another plan of the same training; `batch` or `model.layers` would be another training. */
static void refuse_wish(zp_reader *reader, const zp_attr *attr) {
  zp_diag *d = zp_report(reader->diags, ZP_Z0626, attr->key.span, "`%s` is no decision of a plan", attr->key.text);
  zp_diag_note(d, "--why-not compares two plans of the same training on the same machine");
  zp_diag_help(d, "`zplan FILE --set '%s'` plans the changed one", zp_source_of(reader, attr->span));
}

static bool is_wish(const zp_reader *reader, const zp_attr *attr) {
  return attr->span.file >= reader->settings_end - reader->options->n_wishes;
}

/* `layers` of a model that is there: a setting of it begins with `model.`. */
static bool is_model_parameter(const zp_reader *reader, const char *name) {
  const zp_file *file = reader->main->file;
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    for (int k = 0; item->kind == ZP_ITEM_MODEL && k < item->formals.len; k++)
      if (strcmp(item->formals.data[k].name.text, name) == 0) return true;
  }
  return false;
}

static void report_unknown_setting(zp_reader *reader, const zp_attr *attr) {
  const zp_schema *schemas[] = {&zp_plan_schema, &zp_train_schema};
  if (!is_model_parameter(reader, attr->key.text)) {
    zp_report_unknown_attr(reader, schemas, 2, attr, "`--set`");
    return;
  }
  zp_diag *d = zp_report(reader->diags, ZP_Z0301, attr->key.span, "unknown attribute `%s` in `--set`", attr->key.text);
  zp_diag_help(d, "`%s` is a parameter of the model: --set 'model.%s'", attr->key.text,
               zp_source_of(reader, attr->span));
}

static void sort_setting(zp_reader *reader, zp_attr *attr, zp_settings *settings) {
  const struct {
    const char *prefix;
    zp_attrs *list;
  } prefixes[] = {{"train", &settings->train}, {"plan", &settings->plan}, {"cluster", &settings->cluster}};
  for (int i = 0; i < 3; i++) {
    if (!has_prefix(attr->key.text, prefixes[i].prefix)) continue;
    attr->key.text += strlen(prefixes[i].prefix) + 1;
    if (is_wish(reader, attr) && prefixes[i].list != &settings->plan)
      refuse_wish(reader, attr);
    else
      zp_push(reader->arena, prefixes[i].list, attr);
    return;
  }
  const char *head = head_of(reader->arena, attr->key.text);
  bool in_plan = zp_find_field(&zp_plan_schema, head), in_train = zp_find_field(&zp_train_schema, head);
  if (is_wish(reader, attr)) {
    const zp_schema *plan_keys = &zp_plan_schema;
    if (in_plan)
      zp_push(reader->arena, &settings->plan, attr);
    else if (in_train)
      refuse_wish(reader, attr);
    else
      zp_report_unknown_attr(reader, &plan_keys, 1, attr, "`--why-not`");
  } else if (in_plan && in_train) {
    zp_push(reader->arena, is_train_value(attr) ? &settings->train : &settings->plan, attr);
  } else if (in_plan || in_train) {
    zp_push(reader->arena, in_plan ? &settings->plan : &settings->train, attr);
  } else {
    report_unknown_setting(reader, attr);
  }
}

bool zp_is_setting_key(const char *word, const char **note) {
  assert(word && note);
  const zp_field *in_plan = zp_find_field(&zp_plan_schema, word), *in_train = zp_find_field(&zp_train_schema, word);
  const zp_field *field = in_plan ? in_plan : in_train;
  *note = field && field->kind == ZP_FIELD_FOREIGN ? field->note : NULL;
  return field != NULL;
}

bool zp_is_plan_setting(const char *setting) {
  assert(setting);
  setting += strspn(setting, " ");
  bool named = strncmp(setting, "plan.", 5) == 0;
  if (named) setting += 5;
  char key[64];
  size_t n = strcspn(setting, " =<>!.[{");
  if (n >= sizeof key || strncmp(setting, "train.", 6) == 0 || strncmp(setting, "cluster.", 8) == 0) return false;
  memcpy(key, setting, n);
  key[n] = '\0';
  bool in_plan = zp_find_field(&zp_plan_schema, key), in_train = zp_find_field(&zp_train_schema, key);
  bool like_train = strchr(setting, '(') || setting[n] == '.'; /* data = text("..."), as is_train_value */
  return in_plan && (named || !in_train || !like_train);
}

static bool is_word_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '"'; }

static const char *quote(zp_arena *arena, const char *text, const char *word) {
  size_t len = strlen(word);
  for (const char *p = text; (p = strstr(p, word)) != NULL; p += len)
    if (p > text && !is_word_char(p[-1]) && !is_word_char(p[len]))
      return zp_format(arena, "%.*s\"%s\"%s", (int)(p - text), text, word, quote(arena, p + len, word));
  return text;
}

/* Quotes may be left out on the command line, but 1f1b without them would be the number 1 with the unit f1b, and block
 * a keyword. */
static const char *quote_words(zp_arena *arena, const char *text) {
  return quote(arena, quote(arena, text, "1f1b"), "block");
}

void zp_parse_settings(zp_reader *reader, zp_settings *settings) {
  const zp_load_options *options = reader->options;
  reader->settings_begin = zp_diags_source_count(reader->diags);
  for (int i = 0; i < options->n_set; i++) {
    const char *text = zp_strdup(reader->arena, quote_words(reader->arena, options->set[i]));
    bool wish = i >= options->n_set - options->n_wishes;
    zp_diags_add_source(reader->diags, wish ? "--why-not" : "--set", text, strlen(text));
  }
  reader->settings_end = zp_diags_source_count(reader->diags);
  for (int source = reader->settings_begin; source < reader->settings_end; source++) {
    zp_attr *attr = zp_parse_setting(reader->arena, reader->diags, source);
    if (attr) sort_setting(reader, attr, settings);
  }
}

static bool same_key(const zp_attr *a, const zp_attr *b) {
  const char *index_a = a->index.text ? a->index.text : "", *index_b = b->index.text ? b->index.text : "";
  return strcmp(a->key.text, b->key.text) == 0 && strcmp(index_a, index_b) == 0;
}

/* `steps` on the command line also takes the place of the file's `tokens`, and the other way round. */
static bool replaces(const zp_attr *setting, const zp_attr *written) {
  const char *key = setting->key.text, *old = written->key.text;
  bool both_lengths = (strcmp(key, "steps") == 0 && strcmp(old, "tokens") == 0) ||
                      (strcmp(key, "tokens") == 0 && strcmp(old, "steps") == 0);
  return both_lengths || same_key(setting, written);
}

/* `gpt2(V = 50304)` and layers=3 give `gpt2(V = 50304, layers = 3)`. A copy: the syntax tree stays as written. */
static zp_expr *with_argument(zp_reader *reader, const zp_expr *written, const zp_attr *setting, const char *name) {
  zp_expr *call = ZP_NEW(reader->arena, zp_expr);
  *call = *written;
  memset(&call->args, 0, sizeof call->args);
  if (written->kind != ZP_EXPR_CALL) {
    call->kind = ZP_EXPR_CALL;
    call->left = (zp_expr *)written;
  } else {
    for (int i = 0; i < written->args.len; i++) {
      const zp_arg *arg = &written->args.data[i];
      if (!arg->name.text || strcmp(arg->name.text, name) != 0) zp_push(reader->arena, &call->args, *arg);
    }
  }
  zp_arg fresh = {.name = {name, setting->key.span}, .value = setting->value};
  zp_push(reader->arena, &call->args, fresh);
  return call;
}

/* The model that `model.layers=3` speaks of when `train` names none: the one chosen, or the only one. */
static zp_expr *implied_model(zp_reader *reader, const zp_attr *setting) {
  const char *name = reader->options->model;
  const zp_file *file = reader->main->file;
  for (int i = 0; i < file->items.len && !name; i++)
    if (file->items.data[i]->kind == ZP_ITEM_MODEL) name = file->items.data[i]->name.text;
  zp_expr *expr = ZP_NEW(reader->arena, zp_expr);
  *expr = (zp_expr){
      .kind = ZP_EXPR_NAME, .text = name ? name : "model", .span = setting->key.span, .at = setting->key.span};
  return expr;
}

/* One dotted setting: into the block (`checkpoint.dir`) or the call (`model.layers`, `optimizer.lr`) of that name. */
static void override_nested(zp_reader *reader, zp_attrs *attrs, const zp_attr *setting) {
  const char *head = head_of(reader->arena, setting->key.text), *rest = setting->key.text + strlen(head) + 1;
  const zp_attr *old = zp_find_attr(attrs, head);
  zp_attr *changed = ZP_NEW(reader->arena, zp_attr);
  *changed = old ? *old : (zp_attr){.key = {head, setting->key.span}, .op = ZP_ATTR_BLOCK, .span = setting->span};
  bool is_model = strcmp(head, "model") == 0;
  if (is_model || (old && old->op == ZP_ATTR_SET)) {
    const zp_expr *written = old ? old->value : implied_model(reader, setting);
    changed->op = ZP_ATTR_SET;
    changed->value = with_argument(reader, written, setting, rest);
  } else {
    zp_attr *inner = ZP_NEW(reader->arena, zp_attr);
    zp_attrs single = {0};
    *inner = *setting;
    inner->key.text = rest;
    zp_push(reader->arena, &single, inner);
    changed->body = zp_override_attrs(reader, &changed->body, &single);
  }
  for (int i = 0; i < attrs->len; i++)
    if (attrs->data[i] == old) {
      attrs->data[i] = changed;
      return;
    }
  zp_push(reader->arena, attrs, changed);
}

/* Reports a nested value that is set twice: the place that it goes to holds one. */
static bool is_first(zp_reader *reader, const zp_attrs *settings, int at) {
  for (int i = 0; i < at; i++) {
    if (!same_key(settings->data[i], settings->data[at])) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0310, settings->data[at]->key.span, "`%s` is given twice",
                           settings->data[at]->key.text);
    zp_diag_also(d, settings->data[i]->key.span, "first here");
    return false;
  }
  return true;
}

/* Settings of one key take the place of what is written together, and add up among themselves: limits intersect, and
 * two values contradict each other, which is reported where they are read. */
zp_attrs zp_override_attrs(zp_reader *reader, const zp_attrs *written, const zp_attrs *settings) {
  zp_attrs result = {0};
  for (int i = 0; i < written->len; i++) {
    bool keep = true;
    for (int k = 0; k < settings->len; k++) keep = keep && !replaces(settings->data[k], written->data[i]);
    if (keep) zp_push(reader->arena, &result, written->data[i]);
  }
  for (int k = 0; k < settings->len; k++)
    if (!strchr(settings->data[k]->key.text, '.')) zp_push(reader->arena, &result, settings->data[k]);
  for (int k = 0; k < settings->len; k++)
    if (strchr(settings->data[k]->key.text, '.') && is_first(reader, settings, k))
      override_nested(reader, &result, settings->data[k]);
  return result;
}
