/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the mpirun of a local run: who would listen on every address of the machine listens on the loopback.
 *
 * mpirun (Open MPI 4.1) opens a port for daemons on other machines whether or not there are any, on all addresses and
 * whatever interfaces it is given. A run on one machine has no such daemons, and nobody else shall reach it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef int bind_call(int, const struct sockaddr *, socklen_t);

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *address, socklen_t length) {
  bind_call *next;
  *(void **)&next = dlsym(RTLD_NEXT, "bind");
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  if (address && address->sa_family == AF_INET && length >= sizeof v4) {
    memcpy(&v4, address, sizeof v4);
    if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return next(fd, (const struct sockaddr *)&v4, sizeof v4);
  }
  if (address && address->sa_family == AF_INET6 && length >= sizeof v6) {
    memcpy(&v6, address, sizeof v6);
    if (memcmp(&v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0) v6.sin6_addr = in6addr_loopback;
    return next(fd, (const struct sockaddr *)&v6, sizeof v6);
  }
  return next(fd, address, length);
}

/* It is for this process alone: what it starts gets the user's own list back. A sanitizer wants to be first there. */
__attribute__((constructor)) static void leave_environment(void) {
  const char *before = getenv("ZPLAN_LD_PRELOAD");
  if (before && *before)
    setenv("LD_PRELOAD", before, 1);
  else
    unsetenv("LD_PRELOAD");
  unsetenv("ZPLAN_LD_PRELOAD");
}
