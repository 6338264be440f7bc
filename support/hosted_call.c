/* SPDX-License-Identifier: Apache-2.0 */
/* Where a call from another process begins and ends; apart from hosted.c, because what has arenas alone links no
 * Jansson. */
#include <zplan/arena.h>
#include <zplan/hosted.h>
#include <zplan/json.h>

#include <assert.h>
#include <unistd.h>

void zp_hosted_begin(zp_hosted *host) {
  assert(host && host->out && host->err);
  host->descriptor = -1;
  zp_hosted *before = zp_host_replace(host);
  assert(!before);
  (void)before;
  zp_arenas_keep(true);
}

void zp_hosted_end(void) {
  assert(zp_is_hosted());
  zp_json_make_in(NULL);
  zp_arenas_keep(false);
  const zp_hosted *host = zp_host_replace(NULL);
  if (host->descriptor >= 0) close(host->descriptor);
}
