/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the emulated NCCL find every wait that is missing between the stream of units and those of messages: a
 * rank sends to itself through one buffer and receives ahead into another one, and each of the four waits is left out
 * once. With all of them the values come through. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <criterion/redirect.h>
#include <dlfcn.h>
#include "../device/image.h"
#include "nccl.h"

enum { MESSAGES = 4, N = 40, BYTES = N * 8 };
enum { SOURCE, SENT_FROM = SOURCE + MESSAGES, RECEIVED_TO, RESULT, REGIONS = RESULT + MESSAGES };

/* What is not waited for: units before a buffer is sent from, and before it is written to again; before what is
 * received is read, and before the buffer is received to again. */
typedef enum missing { NOTHING, READY, SENT, LANDED, TAKEN, WAITS } missing;

static zpr context;
static zpr_program program;
static zpr_stage stage;
static nccl_api nccl;
static void *comm, *out, *in, *event[WAITS];

static zpr *open_gpu(void) {
  int argc = 0;
  char **argv = NULL;
  stage = (zpr_stage){.arena_bytes = REGIONS * BYTES, .moment1 = -1, .moment2 = -1};
  program = (zpr_program){.name = "messages", .dtype = ZPK_F64, .tensor = 1, .pipeline = 1, .data = 1};
  program.batch = 2, program.sequence = 5;
  program.stages = &stage;
  device_image(&program);
  zpr_open(&context, &program, &zpr_default_options, &argc, &argv);
  return &context;
}

static void open_messages(zpr *c) {
  const gpu_api *api = &c->state->device->api;
  void *library = dlopen("libzplan_emulated_gpu.so", RTLD_NOW);
  zpr_nccl_id id;
  *(void **)&nccl.new_id = dlsym(library, "ncclGetUniqueId");
  *(void **)&nccl.join = dlsym(library, "ncclCommInitRank");
  *(void **)&nccl.leave = dlsym(library, "ncclCommDestroy");
  *(void **)&nccl.send = dlsym(library, "ncclSend");
  *(void **)&nccl.receive = dlsym(library, "ncclRecv");
  cr_assert(nccl.new_id && nccl.new_id(&id) == 0 && nccl.join(&comm, 1, id, 0) == 0);
  cr_assert(api->new_stream(&out, 1) == 0 && api->new_stream(&in, 1) == 0);
  for (int e = 0; e < WAITS; e++) cr_assert(api->new_event(&event[e], 2) == 0);
}

static void *region(zpr *c, int64_t i) { return zpr_at(c, i * BYTES); }

/* What is given to the stream from now on waits until `what` has happened. */
static void await(zpr *c, void *stream, missing what, missing left_out) {
  if (what != left_out) cr_assert(c->state->device->api.stream_waits(stream, event[what], 0) == 0);
}

static void happens(zpr *c, void *stream, missing what) {
  cr_assert(c->state->device->api.record(event[what], stream) == 0);
}

static void receive_ahead(zpr *c, missing left_out) {
  await(c, in, TAKEN, left_out);
  cr_assert(nccl.receive(region(c, RECEIVED_TO), N, NCCL_F64, 0, comm, in) == 0);
  happens(c, in, LANDED);
}

static void run(zpr *c, missing left_out) {
  void *units = c->state->device->stream;
  receive_ahead(c, left_out);
  for (int64_t k = 0; k < MESSAGES; k++) {
    await(c, units, SENT, left_out);
    zpr_copy(c, region(c, SENT_FROM), region(c, SOURCE + k), BYTES);
    happens(c, units, READY);
    await(c, out, READY, left_out);
    cr_assert(nccl.send(region(c, SENT_FROM), N, NCCL_F64, 0, comm, out) == 0);
    happens(c, out, SENT);
    await(c, units, LANDED, left_out);
    zpr_copy(c, region(c, RESULT + k), region(c, RECEIVED_TO), BYTES);
    happens(c, units, TAKEN);
    if (k + 1 < MESSAGES) receive_ahead(c, left_out);
  }
}

/* All three streams end well, and what was sent has come. */
static bool is_right(zpr *c) {
  const gpu_api *api = &c->state->device->api;
  double got[N];
  if (api->await_stream(out) != 0 || api->await_stream(c->state->device->stream) != 0 || api->await_stream(in) != 0)
    return false;
  for (int64_t k = 0; k < MESSAGES; k++) {
    from_arena(c, got, region(c, RESULT + k), BYTES);
    for (int i = 0; i < N; i++)
      if (got[i] != (double)(100 * k + i)) return false;
  }
  return true;
}

ParameterizedTestParameters(messages, every_missing_wait_is_found) {
  static missing left_out[] = {NOTHING, READY, SENT, LANDED, TAKEN};
  return cr_make_param_array(missing, left_out, WAITS);
}

ParameterizedTest(missing *left_out, messages, every_missing_wait_is_found) {
  zpr *c = open_gpu();
  double values[N];
  cr_redirect_stderr();
  open_messages(c);
  for (int64_t k = 0; k < MESSAGES; k++) {
    for (int i = 0; i < N; i++) values[i] = (double)(100 * k + i);
    to_arena(c, region(c, SOURCE + k), values, BYTES);
  }
  zpr_cuda_wait(c);
  run(c, *left_out);
  cr_expect_eq(is_right(c), *left_out == NOTHING, "wait %d", (int)*left_out);
  nccl.leave(comm);
}
