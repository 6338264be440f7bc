/* SPDX-License-Identifier: Apache-2.0 */
/* Names of GPU architectures, as NVIDIA's compilers take them: sm_90, sm_90a, sm_100f. */
#include <assert.h>
#include <string.h>
#include <zplan/spec.h>

bool zp_is_gpu_arch(const char *text) {
  assert(text);
  if (strncmp(text, "sm_", 3) != 0) return false;
  size_t digits = strspn(text + 3, "0123456789");
  const char *variant = text + 3 + digits;
  return digits >= 2 && digits <= 3 && (*variant == '\0' || ((*variant == 'a' || *variant == 'f') && !variant[1]));
}
