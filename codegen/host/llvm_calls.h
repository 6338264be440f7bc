/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of LLVM, from a library that is opened when the first module is compiled: most commands need none, and
 * loading it takes longer than many a search. Calls are written as in LLVM's headers; llvm_redirect.h, made from
 * llvm_calls.def, sends them through the table. */
#ifndef ZPLAN_LLVM_CALLS_H
#define ZPLAN_LLVM_CALLS_H

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdbool.h>
#include <zplan/arena.h>

typedef struct zp_llvm_calls {
#define LLVM_CALL(name) __typeof__(name) *name;
#include "llvm_calls.def"
#undef LLVM_CALL
} zp_llvm_calls;

extern zp_llvm_calls zp_llvm;

/* Opens the library and the code generator for this machine, once. False with *error (arena) when one is missing. */
bool zp_llvm_open(zp_arena *arena, const char **error);

#include "llvm_redirect.h"

#endif
