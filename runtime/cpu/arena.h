/* SPDX-License-Identifier: Apache-2.0 */
/* With --check-memory: which bytes of a part of the arena were written, up to the last one. */
#ifndef ZPLAN_RUNTIME_CPU_ARENA_H
#define ZPLAN_RUNTIME_CPU_ARENA_H

#include <stdint.h>

/* From here on the part counts as unwritten. Its bytes are lost. */
void zpr_arena_forget(void *part, int64_t bytes);
/* Bytes from its beginning to the last one written. */
int64_t zpr_arena_written(const void *part, int64_t bytes);

#endif
