/* SPDX-License-Identifier: Apache-2.0 */
/* XML through Expat. Machine descriptions need elements and attributes only, so a document type is an error: what
 * defines entities that grow, or reads other files, stands there. */
#include "xml.h"

#include <zplan/import.h>

#include <expat.h>

enum { MOST_BYTES = 16 << 20, MOST_ELEMENTS = 1 << 16, MOST_DEPTH = 64 };

typedef struct reader {
  zp_arena *arena;
  zp_diags *diags;
  zp_diag_code code;
  int file, depth, elements;
  size_t len;
  XML_Parser parser;
  xml_element *root, *open;
  bool refused;
} reader;

static zp_span here(const reader *r) {
  XML_Index begin = XML_GetCurrentByteIndex(r->parser);
  size_t first = begin < 0 ? 0 : (size_t)begin, bytes = (size_t)XML_GetCurrentByteCount(r->parser);
  if (first > r->len) first = r->len;
  if (bytes > r->len - first) bytes = r->len - first;
  return (zp_span){r->file, (uint32_t)first, (uint32_t)(first + bytes)};
}

/* Says the first reason only, and ends the reading. */
static void refuse(reader *r, const char *why) {
  if (!r->refused) zp_report(r->diags, r->code, here(r), "%s", why);
  r->refused = true;
  XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **pairs) {
  reader *r = user;
  if (r->refused) return;
  if (++r->depth > MOST_DEPTH) return refuse(r, "elements stand more than 64 deep");
  if (++r->elements > MOST_ELEMENTS) return refuse(r, "more than 65536 elements");
  xml_element *e = ZP_NEW(r->arena, xml_element);
  e->name = zp_strdup(r->arena, name);
  e->at = here(r);
  e->parent = r->open;
  for (; *pairs; pairs += 2) {
    xml_attribute a = {zp_strdup(r->arena, pairs[0]), zp_strdup(r->arena, pairs[1])};
    zp_push(r->arena, &e->attributes, a);
  }
  if (r->open)
    zp_push(r->arena, &r->open->children, e);
  else
    r->root = e;
  r->open = e;
}

static void XMLCALL on_end(void *user, const XML_Char *name) {
  reader *r = user;
  (void)name;
  if (r->refused) return;
  r->depth--;
  r->open = r->open->parent;
}

static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system, const XML_Char *public_id,
                               int internal) {
  (void)name, (void)system, (void)public_id, (void)internal;
  refuse(user, "a document type is not read: it could define entities");
}

xml_element *xml_parse(zp_arena *arena, zp_diags *diags, zp_diag_code code, int file, const char *text, size_t len) {
  if (len > MOST_BYTES) {
    zp_report(diags, code, ZP_NO_SPAN, "%zu bytes; a description of a machine has at most %d", len, MOST_BYTES);
    return NULL;
  }
  reader r = {.arena = arena, .diags = diags, .code = code, .file = file, .len = len};
  r.parser = XML_ParserCreate("UTF-8");
  if (!r.parser) {
    zp_report(diags, code, ZP_NO_SPAN, "no memory is left");
    return NULL;
  }
  XML_SetUserData(r.parser, &r);
  XML_SetElementHandler(r.parser, on_start, on_end);
  XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
  if (XML_Parse(r.parser, text, (int)len, XML_TRUE) != XML_STATUS_OK && !r.refused)
    refuse(&r, zp_format(arena, "no XML: %s", XML_ErrorString(XML_GetErrorCode(r.parser))));
  XML_ParserFree(r.parser);
  return r.refused ? NULL : r.root;
}

const char *xml_get(const xml_element *e, const char *key) {
  for (int i = 0; i < e->attributes.len; i++)
    if (strcmp(e->attributes.data[i].key, key) == 0) return e->attributes.data[i].value;
  return NULL;
}

bool xml_is(const xml_element *e, const char *name) { return strcmp(e->name, name) == 0; }

const char *zp_xml_library(void) { return XML_ExpatVersion() + strcspn(XML_ExpatVersion(), "0123456789"); }
