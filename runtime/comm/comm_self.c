/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of a run with one rank: no peers, so nothing is ever sent. */
#include <assert.h>
#include <stdlib.h>
#include "internal.h"

static void self_init(const zpr_options *options, int *argc, char ***argv, int *rank, int *ranks) {
  (void)options, (void)argc, (void)argv;
  *rank = 0;
  *ranks = 1;
}

static int self_isend(const void *data, int64_t bytes, int peer, int tag) {
  (void)data, (void)bytes, (void)peer, (void)tag;
  assert(!"a single rank has nobody to send to");
  return -1;
}

static int self_irecv(void *data, int64_t bytes, int peer, int tag) {
  (void)data, (void)bytes, (void)peer, (void)tag;
  assert(!"a single rank has nobody to receive from");
  return -1;
}

static bool self_poll(int handle) {
  (void)handle;
  return true;
}

static int self_peer(int handle, int *tag) {
  (void)handle, (void)tag;
  assert(!"a single rank waits for nobody");
  return 0;
}

static void self_finish(void) {}
static void self_abort(int status) { exit(status); }

const zpr_transport zpr_transport_self = {"self",    self_init, self_isend,  self_irecv,
                                          self_poll, self_peer, self_finish, self_abort};
const zpr_transport *const zpr_linked_transport = &zpr_transport_self;
