/* SPDX-License-Identifier: Apache-2.0 */
/* What a test prints goes to a file of its own (criterion.h). */
#ifndef ZPLAN_TEST_REDIRECT_H
#define ZPLAN_TEST_REDIRECT_H

#include <stdio.h>

void cr_redirect_stdout(void);
void cr_redirect_stderr(void);
/* What came on stderr so far, from its beginning. */
FILE *cr_get_redirected_stderr(void);

#endif
