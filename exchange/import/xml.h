/* SPDX-License-Identifier: Apache-2.0 */
/* Private: XML as a tree of elements. xml.c is the only file that knows Expat. */
#ifndef ZPLAN_IMPORT_XML_H
#define ZPLAN_IMPORT_XML_H

#include <zplan/diag.h>
#include <zplan/vec.h>

typedef struct xml_attribute {
  const char *key, *value;
} xml_attribute;

typedef struct xml_element {
  const char *name;
  zp_span at;                 /* its start tag */
  struct xml_element *parent; /* NULL: the root */
  ZP_VEC(xml_attribute) attributes;
  ZP_VEC(struct xml_element *) children; /* elements only; text between them is passed over */
} xml_element;

/* The root, of the arena. `file` is the source of diags that holds the text. NULL after reporting `code` with a
 * place: no well-formed XML, a document type (so no entity is ever expanded), or more than a description of a machine
 * holds. */
xml_element *xml_parse(zp_arena *arena, zp_diags *diags, zp_diag_code code, int file, const char *text, size_t len);

/* NULL: the element has no such attribute. */
const char *xml_get(const xml_element *e, const char *key);
bool xml_is(const xml_element *e, const char *name);

#endif
