/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays in NumPy's format 1.0: the header is as long as makes the data begin at a multiple of 64 bytes. */
#include "make_data_internal.h"

#include <stdio.h>

bool zp_npy_write(zp_out_folder *out, const char *name, const char *type, int64_t rows, int64_t columns,
                  const void *data) {
  char header[192], path[128];
  int n = snprintf(header + 10, sizeof header - 10, "{'descr': '<%s', 'fortran_order': False, 'shape': (%lld,", type,
                   (long long)rows);
  if (columns > 0) n += snprintf(header + 10 + n, sizeof header - 10 - (size_t)n, " %lld", (long long)columns);
  n += snprintf(header + 10 + n, sizeof header - 10 - (size_t)n, "), }");
  int total = (10 + n + 1 + 63) / 64 * 64;
  memset(header + 10 + n, ' ', (size_t)(total - 10 - n));
  header[total - 1] = '\n';
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = (char)(total - 10), header[9] = 0;
  snprintf(path, sizeof path, "%.100s.npy", name);
  bool good = zp_out_begin(out, path) && zp_out_put(out, header, (size_t)total) &&
              zp_out_put(out, data, sizeof(int32_t) * (size_t)(rows * (columns > 0 ? columns : 1)));
  return zp_out_end(out) && good;
}
