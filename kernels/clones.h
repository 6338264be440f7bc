/* SPDX-License-Identifier: Apache-2.0 */
/* One source, several instruction sets: the compiler clones a function and the loader picks the best one for the
 * machine. Levels: x86-64-v4 is AVX-512, x86-64-v3 is AVX2 with FMA, default is SSE2.
 *
 * Clones are chosen by a resolver that runs before the sanitizers have started, so sanitized builds use the default
 * only. A build that stays on this machine (CMake's ZPLAN_LEVEL_HERE) has the best level alone. */
#ifndef ZPK_CLONES_H
#define ZPK_CLONES_H

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define ZPK_X86_LEVELS 1
#else
#define ZPK_X86_LEVELS 0
#endif

#if !ZPK_X86_LEVELS || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ZPK_CLONES
#elif defined(ZPK_LEVEL_HERE)
#define ZPK_CLONES __attribute__((target("arch=" ZPK_LEVEL_HERE)))
#else
#define ZPK_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

#endif
