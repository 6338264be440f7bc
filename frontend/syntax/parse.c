/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the parser. */
#include "dz_parser.h"

#include <assert.h>
#include "literal.h"

/* Positions are 32-bit. */
static bool fits(zp_diags *diags, int source) {
  size_t len;
  zp_diags_source_text(diags, source, &len);
  if (len < (1u << 30)) return true;
  zp_report(diags, ZP_Z0101, ZP_NO_SPAN, "`%s` is larger than 1 GiB", zp_diags_source_path(diags, source));
  return false;
}

static uint32_t after_byte_order_mark(const zp_diags *diags, int source) {
  size_t len;
  const char *text = zp_diags_source_text(diags, source, &len);
  return len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static void run(zp_feed *feed) {
  if (!zp_scan_check_text(&feed->scan)) return;
  if (!zp_scan_open(&feed->scan)) {
    zp_report(feed->scan.diags, ZP_Z0101, ZP_NO_SPAN, "could not get memory to read `%s`",
              zp_diags_source_path(feed->scan.diags, feed->scan.source));
    return;
  }
  zp_dz_parse(feed);
  zp_scan_close(&feed->scan);
}

static zp_feed *new_feed(zp_arena *arena, zp_diags *diags, int source, int start) {
  zp_feed *feed = ZP_NEW(arena, zp_feed);
  feed->scan = (zp_scan){.arena = arena, .diags = diags, .source = source, .at = after_byte_order_mark(diags, source)};
  feed->start = start;
  feed->last.kind = feed->before_last.kind = -1;
  feed->synced = feed->scan.reported = -1;
  return feed;
}

zp_file *zp_parse(zp_arena *arena, zp_diags *diags, int source) {
  assert(source >= 0 && source < zp_diags_source_count(diags));
  zp_feed *feed = new_feed(arena, diags, source, START_FILE);
  feed->file = ZP_NEW(arena, zp_file);
  feed->file->source = source;
  if (fits(diags, source)) run(feed);
  return feed->file;
}

zp_attr *zp_parse_setting(zp_arena *arena, zp_diags *diags, int source) {
  assert(source >= 0 && source < zp_diags_source_count(diags));
  zp_feed *feed = new_feed(arena, diags, source, START_SETTING);
  if (fits(diags, source)) run(feed);
  return feed->scan.errors ? NULL : feed->setting;
}
