/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the language server. Reading order: frames.c (bytes to messages), server.c (requests), documents.c,
 * lines.c, check.c (diagnostics), format_edits.c, context.c, words.c. */
#ifndef ZPLAN_LSP_INTERNAL_H
#define ZPLAN_LSP_INTERNAL_H

#include <zplan/json.h>
#include <zplan/lsp.h>

enum { ZP_LSP_MOST_BYTES = 64 << 20 }; /* of a message; longer ones are skipped and refused */

/* Error codes of JSON-RPC and of the protocol. */
enum {
  ZP_LSP_PARSE_ERROR = -32700,
  ZP_LSP_INVALID_REQUEST = -32600,
  ZP_LSP_METHOD_NOT_FOUND = -32601,
  ZP_LSP_INVALID_PARAMS = -32602,
  ZP_LSP_NOT_INITIALIZED = -32002,
  ZP_LSP_CANCELLED = -32800,
};

/* ---- frames.c ---- */
typedef struct zp_lsp_input {
  int fd;
  char *data; /* owned */
  size_t begin, end, cap;
  size_t skip; /* bytes of a body that is too long, still to come */
  bool lost;   /* where the next message begins is not known: its header is looked for */
  bool ended;
} zp_lsp_input;

typedef enum zp_lsp_taken { ZP_LSP_NOTHING, ZP_LSP_BODY, ZP_LSP_BAD_FRAME } zp_lsp_taken;
/* The next body that has come as a whole (it lasts until the next read), or what is wrong with a header. */
zp_lsp_taken zp_lsp_take(zp_lsp_input *input, const char **body, size_t *len, const char **why);
/* Reads what is there, or waits for it. */
void zp_lsp_read(zp_lsp_input *input, bool wait);
/* False when it cannot be written. */
bool zp_lsp_write(int fd, const char *text, size_t len);

/* ---- lines.c: places ---- */
typedef enum zp_lsp_encoding { ZP_LSP_UTF16, ZP_LSP_UTF8, ZP_LSP_UTF32 } zp_lsp_encoding;

/* A text with the starts of its lines, which end with \n, \r\n or \r. */
typedef struct zp_lsp_lines {
  const char *text; /* borrowed */
  size_t len;
  ZP_VEC(uint32_t) starts;
} zp_lsp_lines;

typedef struct zp_lsp_position {
  int64_t line, character;
} zp_lsp_position;

zp_lsp_lines zp_lsp_lines_of(zp_arena *arena, const char *text, size_t len);
/* Bytes from the start; after the end of a line it is that end, after the last line the end of the text. */
uint32_t zp_lsp_offset(const zp_lsp_lines *lines, zp_lsp_encoding encoding, zp_lsp_position at);
zp_json *zp_lsp_range(const zp_lsp_lines *lines, zp_lsp_encoding encoding, uint32_t begin, uint32_t end);
/* False when it is no position. */
bool zp_lsp_read_position(const zp_json *json, zp_lsp_position *at);
/* The path of a file: URI, the text of another one; NULL: it is malformed. Arena. */
const char *zp_lsp_path_of(zp_arena *arena, const char *uri);
const char *zp_lsp_uri_of(zp_arena *arena, const char *path);

/* ---- context.c ---- */
typedef struct zp_lsp_place {
  size_t begin, end;     /* of the word there, in bytes */
  const char *word;      /* may be empty */
  const char *around;    /* the block or the call that it stands in: "train", "adamw"; empty: none */
  const char *value_of;  /* it begins a value of this key; empty: it does not */
  char next;             /* the sign after the word on its line, `=` for <= and >=; '\0': the end */
  bool in_model, silent; /* silent: in a comment or a text */
} zp_lsp_place;
zp_lsp_place zp_lsp_place_at(zp_arena *arena, const zp_lsp_lines *lines, size_t at);

/* ---- documents.c ---- */
typedef struct zp_lsp_document {
  const char *uri, *path;
  int64_t version;
  bool has_version;
  zp_arena *arena; /* of the text and its lines; owned */
  zp_lsp_lines lines;
  zp_arena *checked; /* of what follows; owned; NULL: not checked since it changed */
  zp_diags *diags;
  zp_facts facts; /* of the names in its text */
} zp_lsp_document;

typedef struct zp_lsp {
  const zp_lsp_host *host;
  zp_lsp_input input;
  int out;
  enum { ZP_LSP_FRESH, ZP_LSP_RUNNING, ZP_LSP_SHUT_DOWN, ZP_LSP_ENDED } state;
  int status;
  zp_arena *arena;   /* as long as the server */
  zp_arena *scratch; /* as long as a message */
  zp_lsp_encoding encoding;
  bool markdown; /* what the client likes to show */
  ZP_VEC(zp_lsp_document) documents;
} zp_lsp;

/* Why a request has no result. code 0: it has. */
typedef struct zp_lsp_fault {
  int code;
  const char *message;
} zp_lsp_fault;
/* Sets the fault; NULL. */
zp_json *zp_lsp_refuse(zp_lsp *s, zp_lsp_fault *fault, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A handler's result, owned by the caller; NULL stands for null. Notifications have none. */
typedef zp_json *zp_lsp_handler(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault);
zp_lsp_handler zp_lsp_did_open, zp_lsp_did_change, zp_lsp_did_close, zp_lsp_files_changed;
zp_lsp_handler zp_lsp_formatting, zp_lsp_hover, zp_lsp_completion, zp_lsp_definition;

void zp_lsp_notify(zp_lsp *s, const char *method, zp_json *params); /* takes params */
void zp_lsp_forget(zp_lsp_document *d);                             /* what was checked */
void zp_lsp_close_all(zp_lsp *s);
/* The open document of params.textDocument; NULL after setting the fault. */
zp_lsp_document *zp_lsp_document_of(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault);

/* ---- check.c ---- */
/* Checks it unless it was, and publishes what is wrong. */
void zp_lsp_check(zp_lsp *s, zp_lsp_document *d);
void zp_lsp_check_all(zp_lsp *s);
/* {uri, range} of a place in what was checked; NULL: it stands in no file. */
zp_json *zp_lsp_location(zp_lsp *s, const zp_lsp_document *d, zp_span span);
/* Where a source of the diags stands; NULL: nowhere. */
const char *zp_lsp_source_path(const zp_lsp *s, const zp_diags *diags, zp_arena *arena, int file);

#endif
