/* SPDX-License-Identifier: Apache-2.0 */
/* Images as rows of patches: an input of numbers [S, n] may be stored as whole images, (H, W, C) or (C, H, W) of every
 * sample. Then n = C * side * side and S = (H / side) * (W / side): row by row of patches, and in a patch channel by
 * channel, row by row, which is the order of a convolution's weight [d, C, side, side]. The sizes say which of the two
 * it is and how long a side; where they say neither, or both, the file does not fit. */
#include <assert.h>
#include "data.h"

/* The whole side of squares that `columns` are so many of; 0: there is none. */
static int64_t side_of(int64_t columns, int64_t channels) {
  int64_t side = 1;
  if (channels < 1 || columns % channels) return 0;
  while (side * side * channels < columns) side++;
  return side * side * channels == columns ? side : 0;
}

static bool fits(const zpr_named *input, zpr_patches p) {
  return p.side > 0 && p.height % p.side == 0 && p.width % p.side == 0 &&
         p.height / p.side * (p.width / p.side) == input->shape[0];
}

bool zpr_patches_fit(const zpr_named *input, const zpr_npy *npy, zpr_patches *patches) {
  *patches = (zpr_patches){0};
  if (!input->numbers || input->rank != 2 || npy->rank != 4) return false;
  const int64_t *dim = npy->dim, n = input->shape[1];
  zpr_patches last = {.side = side_of(n, dim[3]), .channels = dim[3], .height = dim[1], .width = dim[2]};
  zpr_patches first = {.side = side_of(n, dim[1]), .channels = dim[1], .height = dim[2], .width = dim[3]};
  first.channels_first = true;
  bool is_last = fits(input, last), is_first = fits(input, first);
  if (is_last == is_first) return false;
  *patches = is_last ? last : first;
  return true;
}

int64_t zpr_patch_element(const zpr_patches *p, int64_t element) {
  int64_t area = p->side * p->side, columns = area * p->channels, across = p->width / p->side;
  int64_t patch = element / columns, channel = element % columns / area, in = element % area;
  int64_t y = patch / across * p->side + in / p->side, x = patch % across * p->side + in % p->side;
  assert(y < p->height && x < p->width);
  return p->channels_first ? (channel * p->height + y) * p->width + x : (y * p->width + x) * p->channels + channel;
}
