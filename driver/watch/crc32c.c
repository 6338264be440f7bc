/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C: Castagnoli's polynomial 0x1EDC6F41, bits reflected (RFC 3720, appendix B.4). */
#include <zplan/watch.h>

uint32_t zp_crc32c(const void *data, size_t length) {
  const unsigned char *byte = data;
  uint32_t crc = ~UINT32_C(0);
  for (size_t i = 0; i < length; i++) {
    crc ^= byte[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
  }
  return ~crc;
}
