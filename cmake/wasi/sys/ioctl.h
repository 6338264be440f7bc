/* SPDX-License-Identifier: Apache-2.0 */
/* There is no terminal: a query of its width fails. */
#ifndef ZPLAN_ABSENT_IOCTL_H
#define ZPLAN_ABSENT_IOCTL_H

enum { TIOCGWINSZ = 1 };
struct winsize {
  unsigned short ws_row, ws_col, ws_xpixel, ws_ypixel;
};
static inline int ioctl(int fd, int request, void *of) { return (void)fd, (void)request, (void)of, -1; }

#endif
