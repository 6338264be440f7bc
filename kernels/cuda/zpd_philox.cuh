/* SPDX-License-Identifier: Apache-2.0 */
/* The random stream of all plans, as zpk_philox: Philox4x32-10 (Salmon et al., SC 2011). */
#ifndef ZPD_PHILOX_CUH
#define ZPD_PHILOX_CUH

#include "zpd_device.h"

/* Ten rounds in place. */
ZPD_DEVICE void zpd_philox(unsigned (&x)[4], unsigned key0, unsigned key1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const zpd_uint p = (zpd_uint)0xD2511F53u * x[0], q = (zpd_uint)0xCD9E8D57u * x[2];
    x[0] = (unsigned)(q >> 32) ^ x[1] ^ key0;
    x[1] = (unsigned)q;
    x[2] = (unsigned)(p >> 32) ^ x[3] ^ key1;
    x[3] = (unsigned)p;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

#endif
