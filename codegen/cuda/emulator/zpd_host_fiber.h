/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: a stack each, and the switch between them and to the scheduler. Nothing but this file knows how.
 *
 * On x86-64 the switch saves what the calling convention asks a callee to keep; elsewhere, and with ZPD_HOST_UCONTEXT,
 * the C library's contexts do it, at the price of two system calls. AddressSanitizer is told about every switch. */
#ifndef ZPD_HOST_FIBER_H
#define ZPD_HOST_FIBER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "zpd_host.h"

#if !defined(__x86_64__) && !defined(ZPD_HOST_UCONTEXT)
#define ZPD_HOST_UCONTEXT 1
#endif
#ifdef ZPD_HOST_UCONTEXT
#include <ucontext.h>
#endif
#ifdef ZPD_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* What changes threads runs more often than all that kernels do, and touches no memory of theirs: under
 * AddressSanitizer it is compiled without checks. */
#ifdef ZPD_HOST_ASAN
#define ZPD_HOST_UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("undefined")))
#else
#define ZPD_HOST_UNCHECKED
#endif

/* Sanitizers make frames several times larger; pages are taken when touched. */
enum { ZPD_HOST_STACK_BYTES = 512 * 1024 };

struct zpd_host_context {
#ifdef ZPD_HOST_UCONTEXT
  ucontext_t context;
#else
  void *stack_pointer;
#endif
  const void *stack; /* for AddressSanitizer */
  size_t stack_bytes;
  void *fake_stack;
};

struct zpd_host_fiber {
  zpd_host_context context;
  char *stack;
};

static zpd_host_context zpd_host_scheduler; /* what launched the grid */
static zpd_host_context *zpd_host_left;     /* by the last switch */

#ifndef ZPD_HOST_UCONTEXT
/* void zpd_host_switch(void **save, void *to): keeps the callee-saved registers on the stack that is left. */
extern "C" void zpd_host_switch(void **save, void *to) __attribute__((visibility("hidden")));
asm(".text\n"
    ".hidden zpd_host_switch\n"
    ".globl zpd_host_switch\n"
    ".type zpd_host_switch, @function\n"
    "zpd_host_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size zpd_host_switch, .-zpd_host_switch\n");
#endif

/* Leaves `from` and goes on where `to` was left. */
ZPD_HOST_UNCHECKED static void zpd_host_change(zpd_host_context *from, zpd_host_context *to) {
  zpd_host_left = from;
#ifdef ZPD_HOST_ASAN
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#ifdef ZPD_HOST_UCONTEXT
  swapcontext(&from->context, &to->context);
#else
  zpd_host_switch(&from->stack_pointer, to->stack_pointer);
#endif
#ifdef ZPD_HOST_ASAN
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

static void zpd_host_fiber_main();

static void zpd_host_fiber_begin() {
#ifdef ZPD_HOST_ASAN
  /* Tells the bounds of the stack that was left: news when it is the scheduler's. */
  __sanitizer_finish_switch_fiber(nullptr, &zpd_host_left->stack, &zpd_host_left->stack_bytes);
#endif
  zpd_host_fiber_main();
  abort(); /* it never returns */
}

/* Makes a fiber that starts with zpd_host_fiber_main; also one that was left in the middle of a kernel. */
static void zpd_host_fiber_reset(zpd_host_fiber *fiber) {
#ifdef ZPD_HOST_ASAN
  __asan_unpoison_memory_region(fiber->stack, fiber->context.stack_bytes); /* frames that were left */
#endif
#ifdef ZPD_HOST_UCONTEXT
  getcontext(&fiber->context.context);
  fiber->context.context.uc_stack.ss_sp = fiber->stack;
  fiber->context.context.uc_stack.ss_size = fiber->context.stack_bytes;
  fiber->context.context.uc_link = nullptr;
  makecontext(&fiber->context.context, zpd_host_fiber_begin, 0);
#else
  /* As if zpd_host_switch had been called: six registers, the address it returns to, and above it a stack that is
   * aligned as after a call. */
  void **top = (void **)(fiber->stack + fiber->context.stack_bytes) - 1;
  top[0] = nullptr;
  *--top = (void *)zpd_host_fiber_begin;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  fiber->context.stack_pointer = top;
#endif
}

/* Stacks live as long as the process; a page that faults stands below each. */
static void zpd_host_fiber_new(zpd_host_fiber *fiber) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *memory = mmap(nullptr, page + ZPD_HOST_STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    fprintf(stderr, "emulated device: no memory for the stacks of a block's threads\n");
    exit(1);
  }
  fiber->stack = (char *)memory + page;
  fiber->context.stack = fiber->stack;
  fiber->context.stack_bytes = ZPD_HOST_STACK_BYTES;
  zpd_host_fiber_reset(fiber);
}

#endif
