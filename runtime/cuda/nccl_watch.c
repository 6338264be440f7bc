/* SPDX-License-Identifier: Apache-2.0 */
/* Looks after NCCL while the host waits for the GPU. NCCL's kernels spin until the other ranks have come; when one of
 * them is gone its proxy threads notice, and ncclCommGetAsyncError says so to whoever asks, but the kernel goes on. */
#include <time.h>
#include "nccl.h"

enum { ASK_EVERY_MS = 100 };

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void ask(zpr *c, void *comm, const char *group) {
  const nccl_api *nccl = &c->state->device->nccl->api;
  enum { IN_PROGRESS = 7 }; /* ncclInProgress: no error */
  int error = 0;
  if (!comm || nccl->async_error(comm, &error) != 0 || error == 0 || error == IN_PROGRESS) return;
  zpr_fail(c, "Z0852", "a rank %s cannot be reached any more: NCCL says %s (GPU %d)", group, nccl->error_text(error),
           c->state->device->ordinal);
}

void zpr_nccl_watch(zpr *c) {
  zpr_nccl *n = c->state->device->nccl;
  int64_t now = now_ms();
  if (!n || now - n->asked_ms < ASK_EVERY_MS) return;
  n->asked_ms = now;
  ask(c, n->tensor, "of the tensor group");
  ask(c, n->data, "of the data group");
  ask(c, n->replicas, "with the same experts");
  ask(c, n->expert, "of the expert group");
  ask(c, n->context, "of the context group");
  ask(c, n->copies, "with copies of the same shards");
  for (int i = 0; i < c->program->n_ties && n->tie; i++) ask(c, n->tie[i], "with a tied parameter");
  for (int i = 0; i < ZPR_CHANNELS; i++) {
    ask(c, n->channels[i].out, "that messages go to");
    ask(c, n->channels[i].in, "that messages come from");
  }
}
