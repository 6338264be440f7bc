/* SPDX-License-Identifier: Apache-2.0 */
/* No jumps out of functions. Only programs that call zplan as a library need them; the command never jumps. */
#ifndef ZPLAN_ABSENT_SETJMP_H
#define ZPLAN_ABSENT_SETJMP_H

typedef int jmp_buf[1];
static inline int setjmp(jmp_buf place) { return place[0] = 0; }
static inline _Noreturn void longjmp(jmp_buf place, int value) { (void)place, (void)value, __builtin_trap(); }

#endif
