/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a server: requests in their order, answers, and what is refused. */
#include "lsp_internal.h"

#include <zplan/buf.h>

#include <signal.h>
#include <stdlib.h>

/* A message that has come and waits for its turn. */
typedef struct message {
  zp_json *json;   /* owned; NULL: it was none */
  const char *why; /* then: what was wrong, in the arena of the queue */
  bool cancelled;
} message;

/* Requests may be cancelled while they wait. */
typedef struct queue {
  zp_arena *arena; /* of the list and the words; emptied when the queue is */
  ZP_VEC(message) list;
  int first;
  size_t bytes; /* of what waits, as it was written */
} queue;
enum { MOST_WAITING_BYTES = ZP_LSP_MOST_BYTES };

/* ---- answers ---- */

static void send_message(zp_lsp *s, zp_json *json) {
  zp_arena *arena = zp_arena_new("message");
  zp_json_set_string(json, "jsonrpc", "2.0");
  const char *text = zp_json_text(arena, json, false);
  const char *header = zp_format(arena, "Content-Length: %zu\r\n\r\n", strlen(text));
  if (!zp_lsp_write(s->out, header, strlen(header)) || !zp_lsp_write(s->out, text, strlen(text))) {
    s->state = ZP_LSP_ENDED; /* nobody listens */
    s->status = 1;
  }
  zp_json_free(json);
  zp_arena_free(arena);
}

void zp_lsp_notify(zp_lsp *s, const char *method, zp_json *params) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "method", method);
  zp_json_set(o, "params", params);
  send_message(s, o);
}

/* The id of a request is a number or a string; anything else, NULL too, is answered to null. */
static zp_json *answer_to(const zp_json *id) {
  zp_json *o = zp_json_object();
  if (zp_json_is_int(id))
    zp_json_set_int(o, "id", zp_json_int(id, 0));
  else
    zp_json_set_string(o, "id", zp_json_string(id, NULL));
  return o;
}

static void send_error(zp_lsp *s, const zp_json *id, int code, const char *text) {
  zp_json *o = answer_to(id), *error = zp_json_set(o, "error", zp_json_object());
  zp_json_set_int(error, "code", code);
  zp_json_set_string(error, "message", text);
  send_message(s, o);
}

static void send_result(zp_lsp *s, const zp_json *id, zp_json *result) {
  zp_json *o = answer_to(id);
  if (result)
    zp_json_set(o, "result", result);
  else
    zp_json_set_string(o, "result", NULL);
  send_message(s, o);
}

zp_json *zp_lsp_refuse(zp_lsp *s, zp_lsp_fault *fault, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fault->code = code;
  fault->message = zp_vformat(s->scratch, format, args);
  va_end(args);
  return NULL;
}

/* ---- the beginning and the end ---- */

/* The first encoding of the client's that is known here. */
static zp_lsp_encoding choose_encoding(const zp_json *offered) {
  static const char *const names[] = {[ZP_LSP_UTF16] = "utf-16", [ZP_LSP_UTF8] = "utf-8", [ZP_LSP_UTF32] = "utf-32"};
  for (int i = 0; zp_json_is_array(offered) && i < zp_json_count(offered); i++)
    for (int e = 0; e < 3; e++)
      if (strcmp(zp_json_string(zp_json_at(offered, i), ""), names[e]) == 0) return (zp_lsp_encoding)e;
  return ZP_LSP_UTF16;
}

/* Plain text, unless Markdown is what it names first. */
static bool likes_markdown(const zp_json *offered) {
  const zp_json *formats = zp_json_get(zp_json_get(zp_json_get(offered, "textDocument"), "hover"), "contentFormat");
  return zp_json_is_array(formats) && zp_json_count(formats) > 0 &&
         strcmp(zp_json_string(zp_json_at(formats, 0), ""), "markdown") == 0;
}

static zp_json *capabilities(const zp_lsp *s) {
  static const char *const encodings[] = {"utf-16", "utf-8", "utf-32"};
  enum { INCREMENTAL = 2 };
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "positionEncoding", encodings[s->encoding]);
  zp_json *sync = zp_json_set(o, "textDocumentSync", zp_json_object());
  zp_json_set_bool(sync, "openClose", true);
  zp_json_set_int(sync, "change", INCREMENTAL);
  zp_json_set_bool(o, "documentFormattingProvider", true);
  zp_json_set_bool(o, "hoverProvider", true);
  zp_json_set_bool(o, "definitionProvider", true);
  zp_json_set(o, "completionProvider", zp_json_object());
  return o;
}

static zp_json *initialize(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  const zp_json *offered = zp_json_get(params, "capabilities");
  if (s->state != ZP_LSP_FRESH)
    return zp_lsp_refuse(s, fault, ZP_LSP_INVALID_REQUEST, "`initialize` comes once, and first");
  if (!zp_json_is_object(offered))
    return zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "params.capabilities is missing");
  s->encoding = choose_encoding(zp_json_get(zp_json_get(offered, "general"), "positionEncodings"));
  s->markdown = likes_markdown(offered);
  s->state = ZP_LSP_RUNNING;
  zp_json *result = zp_json_object();
  zp_json_set(result, "capabilities", capabilities(s));
  zp_json *info = zp_json_set(result, "serverInfo", zp_json_object());
  zp_json_set_string(info, "name", "zplan");
  zp_json_set_string(info, "version", s->host->version);
  return result;
}

static zp_json *shut_down(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  (void)params, (void)fault;
  s->state = ZP_LSP_SHUT_DOWN;
  return NULL;
}

static void end(zp_lsp *s) {
  if (s->state == ZP_LSP_ENDED) return;
  s->status = s->state == ZP_LSP_SHUT_DOWN ? 0 : 1;
  s->state = ZP_LSP_ENDED;
}

static zp_json *nothing(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  (void)s, (void)params, (void)fault;
  return NULL;
}

/* ---- one message ---- */

static const struct {
  const char *method;
  zp_lsp_handler *handle;
  bool is_request;
} methods[] = {
    {"initialize", initialize, true},
    {"initialized", nothing, false},
    {"shutdown", shut_down, true},
    {"$/cancelRequest", nothing, false}, /* done when it came */
    {"$/setTrace", nothing, false},
    {"textDocument/didOpen", zp_lsp_did_open, false},
    {"textDocument/didChange", zp_lsp_did_change, false},
    {"textDocument/didClose", zp_lsp_did_close, false},
    {"textDocument/didSave", zp_lsp_files_changed, false},
    {"workspace/didChangeWatchedFiles", zp_lsp_files_changed, false},
    {"textDocument/formatting", zp_lsp_formatting, true},
    {"textDocument/hover", zp_lsp_hover, true},
    {"textDocument/completion", zp_lsp_completion, true},
    {"textDocument/definition", zp_lsp_definition, true},
};
enum { N_METHODS = sizeof methods / sizeof *methods };

static zp_lsp_handler *handler_of(const char *method, bool is_request) {
  for (int i = 0; i < N_METHODS; i++)
    if (strcmp(methods[i].method, method) == 0 && methods[i].is_request == is_request) return methods[i].handle;
  return NULL;
}

static void answer_request(zp_lsp *s, const zp_json *id, const char *method, const zp_json *params) {
  zp_lsp_handler *handle = handler_of(method, true);
  zp_lsp_fault fault = {0};
  zp_json *result = NULL;
  if (s->state == ZP_LSP_FRESH && handle != initialize)
    zp_lsp_refuse(s, &fault, ZP_LSP_NOT_INITIALIZED, "`%s` came before `initialize`", method);
  else if (s->state == ZP_LSP_SHUT_DOWN)
    zp_lsp_refuse(s, &fault, ZP_LSP_INVALID_REQUEST, "`%s` came after `shutdown`", method);
  else if (!handle)
    zp_lsp_refuse(s, &fault, ZP_LSP_METHOD_NOT_FOUND, "there is no request `%s`", method);
  else
    result = handle(s, params, &fault);
  if (fault.code)
    send_error(s, id, fault.code, fault.message);
  else
    send_result(s, id, result);
}

/* There is no answer to a notification: what is wrong with one is shown in the client's log. */
static void take_notification(zp_lsp *s, const char *method, const zp_json *params) {
  enum { LOG_ERROR = 1 };
  zp_lsp_handler *handle = handler_of(method, false);
  zp_lsp_fault fault = {0};
  if (strcmp(method, "exit") == 0) end(s);
  if (s->state != ZP_LSP_RUNNING || !handle) return;
  handle(s, params, &fault);
  if (!fault.code) return;
  zp_json *log = zp_json_object();
  zp_json_set_int(log, "type", LOG_ERROR);
  zp_json_set_string(log, "message", zp_format(s->scratch, "%s: %s", method, fault.message));
  zp_lsp_notify(s, "window/logMessage", log);
}

static void take_message(zp_lsp *s, const zp_json *json) {
  const zp_json *id = zp_json_get(json, "id"), *params = zp_json_get(json, "params");
  const char *method = zp_json_get_string(json, "method", NULL);
  bool has_id = zp_json_is_int(id) || zp_json_string(id, NULL);
  if (!method && (zp_json_get(json, "result") || zp_json_get(json, "error"))) return; /* nothing was asked */
  const char *why = NULL;
  if (!zp_json_is_object(json))
    why = zp_json_is_array(json) ? "batches are no messages of this protocol" : "a message is an object";
  else if (strcmp(zp_json_get_string(json, "jsonrpc", ""), "2.0") != 0)
    why = "`jsonrpc` must be \"2.0\"";
  else if (!method)
    why = "`method` must be a string";
  else if (id && !has_id)
    why = "`id` must be a whole number or a string";
  if (why)
    send_error(s, id, ZP_LSP_INVALID_REQUEST, why);
  else if (params && !zp_json_is_object(params) && !zp_json_is_array(params) && !zp_json_is_null(params) && id)
    send_error(s, id, ZP_LSP_INVALID_PARAMS, "`params` must be an object or a list");
  else if (id)
    answer_request(s, id, method, params);
  else
    take_notification(s, method, params);
}

/* ---- the queue ---- */

static bool same_id(const zp_json *a, const zp_json *b) {
  if (zp_json_is_int(a) && zp_json_is_int(b)) return zp_json_int(a, 0) == zp_json_int(b, 1);
  const char *x = zp_json_string(a, NULL), *y = zp_json_string(b, NULL);
  return x && y && strcmp(x, y) == 0;
}

static void cancel(queue *q, const zp_json *notification) {
  const zp_json *id = zp_json_get(zp_json_get(notification, "params"), "id");
  for (int i = q->first; i < q->list.len; i++) {
    message *m = &q->list.data[i];
    if (m->json && zp_json_get(m->json, "method") && same_id(zp_json_get(m->json, "id"), id)) m->cancelled = true;
  }
}

/* All that has come as a whole. */
static void fill(zp_lsp *s, queue *q) {
  const char *body, *why;
  size_t len;
  for (zp_lsp_taken taken; q->bytes < MOST_WAITING_BYTES;) {
    taken = zp_lsp_take(&s->input, &body, &len, &why);
    if (taken == ZP_LSP_NOTHING) return;
    message m = {.json = NULL};
    if (taken == ZP_LSP_BODY) {
      q->bytes += len;
      m.json = zp_json_parse_any(q->arena, body, len, &why);
    }
    if (!m.json) m.why = zp_strdup(q->arena, why);
    if (m.json && strcmp(zp_json_get_string(m.json, "method", ""), "$/cancelRequest") == 0) cancel(q, m.json);
    zp_push(q->arena, &q->list, m);
  }
}

static void take_first(zp_lsp *s, queue *q) {
  message m = q->list.data[q->first++];
  s->scratch = zp_arena_new("message");
  if (!m.json)
    send_error(s, NULL, ZP_LSP_PARSE_ERROR, m.why);
  else if (m.cancelled)
    send_error(s, zp_json_get(m.json, "id"), ZP_LSP_CANCELLED, "cancelled");
  else
    take_message(s, m.json);
  if (m.json) zp_json_free(m.json);
  zp_arena_free(s->scratch);
  s->scratch = NULL;
}

static void empty(queue *q) {
  for (int i = q->first; i < q->list.len; i++)
    if (q->list.data[i].json) zp_json_free(q->list.data[i].json);
  if (q->arena) zp_arena_free(q->arena);
  *q = (queue){.arena = zp_arena_new("messages")};
}

/* Changes that come faster than they can be checked are checked once. */
static void check_when_idle(zp_lsp *s) {
  s->scratch = zp_arena_new("message");
  zp_lsp_check_all(s);
  zp_arena_free(s->scratch);
  s->scratch = NULL;
}

int zp_lsp_serve(const zp_lsp_host *host, int in, int out) {
  zp_arena *arena = zp_arena_new("server");
  zp_lsp s = {.host = host, .input = {.fd = in}, .out = out, .arena = arena};
  queue q = {0};
  empty(&q);
  signal(SIGPIPE, SIG_IGN); /* a client that is gone is noticed when it is written to */
  while (s.state != ZP_LSP_ENDED) {
    zp_lsp_read(&s.input, false);
    fill(&s, &q);
    if (q.first < q.list.len) {
      take_first(&s, &q);
      continue;
    }
    empty(&q);
    check_when_idle(&s);
    if (s.state != ZP_LSP_ENDED && s.input.ended) end(&s);
    if (s.state != ZP_LSP_ENDED) zp_lsp_read(&s.input, true);
  }
  empty(&q);
  zp_arena_free(q.arena);
  zp_lsp_close_all(&s);
  free(s.input.data);
  zp_arena_free(arena);
  return s.status;
}
