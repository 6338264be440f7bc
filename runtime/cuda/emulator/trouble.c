/* SPDX-License-Identifier: Apache-2.0 */
/* Trouble that the emulated GPU plays when it is asked to, for tests of what is said then.
 *
 * ZPLAN_EMULATED_TROUBLE="driver=11040 gpus=0 memory=1048576 shared=49152 arch=1 falls=7", any of them:
 *   driver   the driver's version, as cuDriverGetVersion says it
 *   gpus     how many GPUs there are: 0 or 1
 *   memory   bytes of the GPU; what does not fit is refused
 *   shared   dynamic shared memory that a block may have at most
 *   arch     1: kernels were built for another kind of GPU
 *   falls    at the so-manieth wait the GPU is lost: whatever is asked of it from then on is an unknown error */
#include "emulator.h"
#include <stdlib.h>
#include <string.h>

long long emu_trouble(const char *name, long long without) {
  const char *text = getenv("ZPLAN_EMULATED_TROUBLE");
  size_t length = strlen(name);
  while (text && *text) {
    if (strncmp(text, name, length) == 0 && text[length] == '=') return atoll(text + length + 1);
    text = strchr(text, ' ');
    if (text) text++;
  }
  return without;
}
