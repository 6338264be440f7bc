/* SPDX-License-Identifier: Apache-2.0 */
/* In place of ../xml.c where Expat was not found: no file of XML can be read, and it says so. */
#include "xml.h"

#include <zplan/import.h>

xml_element *xml_parse(zp_arena *arena, zp_diags *diags, zp_diag_code code, int file, const char *text, size_t len) {
  (void)arena, (void)code, (void)file, (void)text, (void)len;
  zp_diag *d = zp_report(diags, ZP_Z0709, ZP_NO_SPAN, "this zplan reads no XML: it was built without Expat");
  zp_diag_help(d, "install libexpat1-dev, or Expat in a folder of -DCMAKE_PREFIX_PATH, and build again");
  return NULL;
}

const char *xml_get(const xml_element *e, const char *key) {
  (void)e, (void)key;
  return NULL; /* there are no elements */
}

bool xml_is(const xml_element *e, const char *name) {
  (void)e, (void)name;
  return false;
}

const char *zp_xml_library(void) { return NULL; }
