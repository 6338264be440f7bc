/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that knows MPI: point-to-point messages for comm.c. Requests live in a fixed table; a handle is an
 * index. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include "watch.h"

enum { MAX_REQUESTS = 4096 };
static MPI_Request requests[MAX_REQUESTS];
static struct { int peer, tag; } of[MAX_REQUESTS];
static zpr_options asked; /* how long is waited */
static int free_handles[MAX_REQUESTS], n_free, my_rank;

/* A broken connection or a dead peer. MPI's own handler would print a page; this is one line. */
static void check(int result, const char *what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  zpr_say_line(stderr, "error[Z0821]: could not %s: %s (rank %d)", what, text, my_rank);
  MPI_Abort(MPI_COMM_WORLD, ZPR_EXIT_FAILED);
  exit(ZPR_EXIT_FAILED);
}

static void mpi_init(const zpr_options *options, int *argc, char ***argv, int *rank, int *ranks) {
  int provided;
  asked = *options;
  zpr_watch_call(options, "to start");
  check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "start MPI");
  zpr_watch_call_end();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, ranks);
  my_rank = *rank;
  for (int i = MAX_REQUESTS; i-- > 0;) free_handles[n_free++] = i;
}

static int new_handle(int peer, int tag) {
  if (n_free == 0) {
    fprintf(stderr, "error[Z0821]: more than %d messages in flight (rank %d)\n", MAX_REQUESTS, my_rank);
    MPI_Abort(MPI_COMM_WORLD, ZPR_EXIT_FAILED);
    exit(ZPR_EXIT_FAILED);
  }
  int h = free_handles[--n_free];
  of[h].peer = peer;
  of[h].tag = tag;
  return h;
}

static int mpi_isend(const void *data, int64_t bytes, int peer, int tag) {
  int h = new_handle(peer, tag);
  check(MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[h]), "send");
  return h;
}

static int mpi_irecv(void *data, int64_t bytes, int peer, int tag) {
  int h = new_handle(peer, tag);
  check(MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests[h]), "receive");
  return h;
}

static bool mpi_poll(int handle) {
  int done = 0;
  check(MPI_Test(&requests[handle], &done, MPI_STATUS_IGNORE), "reach another rank");
  if (done) free_handles[n_free++] = handle;
  return done;
}

static int mpi_peer(int handle, int *tag) {
  *tag = of[handle].tag;
  return of[handle].peer;
}

static void mpi_finish(void) {
  zpr_watch_call(&asked, "to end");
  MPI_Finalize();
  zpr_watch_call_end();
}

static void mpi_abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  exit(status);
}

const zpr_transport zpr_transport_mpi = {"mpi",    mpi_init, mpi_isend,  mpi_irecv,
                                         mpi_poll, mpi_peer, mpi_finish, mpi_abort};
const zpr_transport *const zpr_linked_transport = &zpr_transport_mpi;
