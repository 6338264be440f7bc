/* SPDX-License-Identifier: Apache-2.0 */
/* How often the host asks the emulated GPU for something: on a GPU each costs the host some microseconds, and each wait
 * the time until the GPU is done. What a process has counted is added to a file as one line when it ends, if
 * ZPLAN_EMULATED_COUNTS names one: "launches 12 products 4 fills 1 copies 2 waits 3". */
#include "emulator.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const names[EMU_COUNTS] = {
    [EMU_LAUNCHES] = "launches", [EMU_PRODUCTS] = "products", [EMU_FILLS] = "fills",
    [EMU_COPIES] = "copies",     [EMU_WAITS] = "waits",
};
static long long counts[EMU_COUNTS];

void emu_count(emu_counted what) { counts[what]++; }

__attribute__((destructor)) static void tell(void) {
  const char *path = getenv("ZPLAN_EMULATED_COUNTS");
  FILE *f = path && *path ? fopen(path, "a") : NULL;
  if (!f) return;
  for (int i = 0; i < EMU_COUNTS; i++) fprintf(f, "%s%s %lld", i ? " " : "", names[i], counts[i]);
  fprintf(f, "\n");
  fclose(f);
}
