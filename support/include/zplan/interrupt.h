/* SPDX-License-Identifier: Apache-2.0 */
/* Ctrl-C noted: long work that can end early with what it has checks whether it should. */
#ifndef ZPLAN_INTERRUPT_H
#define ZPLAN_INTERRUPT_H

#include <stdbool.h>

/* From now on the first SIGINT is noted, and a second one ends the process, as it would have. Where SIGINT is ignored,
 * as in jobs of the background, it stays so. */
void zp_interrupt_catch(void);
/* Has one come since? Cheap. */
bool zp_interrupted(void);
/* SIGINT ends the process again; whether one had come. Nobody is asked to end any more. */
bool zp_interrupt_release(void);

#endif
