/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into the mpirun of a local run: the loopback is the only network that it sees, and what would listen on
 * every address of the machine listens on the loopback.
 *
 * mpirun (Open MPI 4.1, 5.0) opens a port for daemons on other machines whether or not there are any, on all addresses
 * and whatever interfaces it is given. That of Open MPI 5 knows no loopback besides: ranks would report to an address
 * that other machines reach. A run on one machine has no daemons elsewhere, and nobody else shall reach it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

typedef int bind_call(int, const struct sockaddr *, socklen_t);
typedef int ioctl_call(int, unsigned long, ...);

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

/* The loopback as any other network, and the others as switched off. */
__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...) {
  ioctl_call *next;
  *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  int status = next(fd, request, argument);
  if (status != 0 || request != SIOCGIFFLAGS) return status;
  struct ifreq *interface = argument;
  interface->ifr_flags &= (short)~(interface->ifr_flags & IFF_LOOPBACK ? IFF_LOOPBACK : IFF_UP);
  return status;
}

/* It is for this process alone: what it starts gets the user's own list back. A sanitizer wants to be first there.
 * Where the process becomes another program, the last one is meant: mpirun of Open MPI 5 becomes prterun. */
__attribute__((constructor)) static void leave_environment(void) {
  const char *programs = getenv("ZPLAN_LD_PRELOAD_PROGRAMS");
  if (programs && strcmp(programs, "2") == 0) {
    setenv("ZPLAN_LD_PRELOAD_PROGRAMS", "1", 1);
    return;
  }
  const char *before = getenv("ZPLAN_LD_PRELOAD");
  if (before && *before)
    setenv("LD_PRELOAD", before, 1);
  else
    unsetenv("LD_PRELOAD");
  unsetenv("ZPLAN_LD_PRELOAD");
  unsetenv("ZPLAN_LD_PRELOAD_PROGRAMS");
}
