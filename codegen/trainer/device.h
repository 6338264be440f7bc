/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the trainer's build: what only GPU trainers have. */
#ifndef ZPLAN_TRAINER_DEVICE_H
#define ZPLAN_TRAINER_DEVICE_H

#include <zplan/trainer.h>

/* The text of kernels_image.S, the same for all trainers: symbols kernels_image and kernels_image_end around the bytes
 * of kernels.image. */
extern const char zp_kernels_image_s[];

#endif
