/* SPDX-License-Identifier: Apache-2.0 */
/* Products of layers in 8 or 4 bits by Transformer Engine, a row a recipe.
 *
 * Rates of kernels against bf16, and what casts take besides, as it times them itself
 * (docs/examples/gemm_profiling/gemm_profiling.rst; opened). A layer of 5 G parameters, 15,872 tokens: B300 13.1 ms in
 * bf16, 6.81 with scaled FP8, 7.16 MXFP8, 3.76 NVFP4; H200 32.0 and 16.8. With casts 9.15, 8.98, 6.45; 20.3 (delayed
 * scaling: 19.0). There every operand of every product is cast by itself, 1.24 G elements twice; a training casts them
 * once. Bytes: of the time of an element, at the share of memory bandwidth that the device reaches. Gathered: a byte or
 * half of one and a scale of a byte for 32 or 16 of them.
 *
 * Weights are cast once a step, and their casts are kept alongside them: in rows and, where products cannot read these
 * in columns, transposed (docs/features/low_precision_training: performance_considerations.rst; opened). FP8 on devices
 * before sm_100 has both; MXFP8 and NVFP4 have both everywhere, as their scales are along the sums.
 * Alone: Megatron-LM keeps such weights as their casts and updates these from fp32 (`--fp8-param-gather`,
 * `--fp4-param-gather`; training/arguments.py, core/fp8_utils.py of d98e8a64; opened), where ranks share the
 * optimizer's state: the distributed optimizer or Megatron FSDP. With the optimizer on the host it takes delayed
 * scaling alone. Kernels of a cast: largest value, scale and cast where scales are of the current values, of 4 bits
 * largest value and cast, else one (the same page). Which devices have which: Transformer Engine's support matrix
 * (support_matrix.html; opened). Products with scales of blocks of 128 are not timed there: rate 0, they are not
 * planned for GPUs. Operands that are kept: bits of a number, and how many numbers of a column share a scale (0: all
 * numbers share one), which has a byte, or the four of an f32 where there is one.
 *
 * Casts that stand alone are gathered as such (core/distributed/param_and_grad_buffer.py of d98e8a64; opened): the
 * distributed optimizer's buffer has bytes for FP8 and half bytes for NVFP4, in rows; copies in columns are made where
 * they are needed. MXFP8 is gathered in 16 bits by way of the gradients' buffer, and cast there. Megatron FSDP
 * gathers bytes; of MXFP8 those in rows for forward and those in columns for backward, or both after an update
 * (core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py: transpose_weight_buffer; opened). Largest
 * magnitudes, which ranks exchange before they cast, are left out: 4 bytes a tensor, of blocks 4 for 16 or 32
 * numbers, once a step. */
#include <zplan/buf.h>
#include <zplan/profile.h>

#include <assert.h>
#include <stdlib.h>

enum { ADA = 89, HOPPER = 90, BLACKWELL = 100, AFTER_BLACKWELL = 120, ANY = 1000 };

static const struct {
  const char *recipe;
  double rate, cast_bytes, gathered;
  int first_arch, end_arch;
  bool overlaps;
  int weight_32nds, weight_32nds_before_sm100, cast_kernels;
  int bits, group;
  int back_bits, unit_bits; /* of a cast that is gathered after the update, and by a unit */
} recipes[] = {
    {"fp8", 1.9, 4, 0.5, ADA, ANY, true, 32, 64, 1, 8, 0, 8, 8},
    {"fp8_current", 1.9, 6, 0.5, ADA, ANY, true, 32, 64, 3, 8, 0, 8, 8},
    {"mxfp8", 1.83, 4, 0.52, BLACKWELL, AFTER_BLACKWELL, true, 2 * (32 + 1), 0, 1, 8, 32, 16, 8},
    {"fp8_block", 0, 0, 0, ADA, ANY, false, 0, 0, 0, 8, 128, 0, 0},
    {"nvfp4", 3.48, 6, 0.28, BLACKWELL, AFTER_BLACKWELL, false, 2 * (16 + 2), 0, 2, 4, 16, 4, 0},
};

static int row_of(const char *recipe) {
  int i = 0;
  while (strcmp(recipes[i].recipe, recipe) != 0) assert((size_t)++i < sizeof recipes / sizeof *recipes);
  return i;
}

static int arch_of(const zp_device *device) {
  return device->arch && strncmp(device->arch, "sm_", 3) == 0 ? atoi(device->arch + 3) : 0;
}

/* Every node type's device; of a cluster with one type that one. */
static const zp_device *device_at(const zp_cluster *cluster, int i) {
  return cluster->groups.len ? &cluster->groups.data[i].type.device : &cluster->node.device;
}

const char *zp_software_with_recipe(zp_arena *arena, const char *recipe, const zp_cluster *cluster,
                                    const zp_software **software) {
  assert(recipe && cluster && software);
  for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
    if (strcmp(recipes[i].recipe, recipe) != 0) continue;
    int kept = recipes[i].weight_32nds;
    for (int d = 0; d == 0 || d < cluster->groups.len; d++) {
      const zp_device *device = device_at(cluster, d);
      int arch = arch_of(device);
      if (arch < recipes[i].first_arch || arch >= recipes[i].end_arch)
        return zp_format(arena, "device %s has no products in %s", device->name, recipe);
      if (arch < BLACKWELL) kept = recipes[i].weight_32nds_before_sm100;
    }
    if (!*software) return zp_format(arena, "zplan's own GPU trainer has no products in %s", recipe);
    if (recipes[i].rate == 0) return zp_format(arena, "products in %s have no published rates", recipe);
    if (!(*software)->engine)
      return zp_format(arena, "products in %s are not priced for profile %s", recipe, (*software)->name);
    zp_software *with = ZP_NEW(arena, zp_software);
    *with = **software;
    with->product_rate = recipes[i].rate;
    with->cast_bytes = recipes[i].cast_bytes;
    with->cast_kernels = recipes[i].cast_kernels;
    with->gathered = recipes[i].gathered;
    with->overlaps_tensor &= recipes[i].overlaps;
    with->weight_32nds = kept;
    *software = with;
  }
  return NULL;
}

bool zp_software_has_nodes(const zp_cluster *cluster) {
  for (int d = 0; d == 0 || d < cluster->groups.len; d++)
    if (arch_of(device_at(cluster, d)) < HOPPER) return false;
  return true;
}

bool zp_software_sends_once(const zp_software *software, const zp_cluster *cluster) {
  return software && software->own_experts && software->dispatcher == ZP_DISPATCH_NODES &&
         zp_software_has_nodes(cluster);
}

int64_t zp_recipe_operand_bytes(const char *recipe, int64_t rows, int64_t cols) {
  enum { F32_BYTES = 4 };
  assert(recipe && rows >= 0 && cols >= 0);
  int i = row_of(recipe);
  int64_t group = recipes[i].group, scales = group ? (rows + group - 1) / group * cols : F32_BYTES;
  return (rows * cols * recipes[i].bits + 7) / 8 + scales;
}

int zp_software_weight_32nds(const zp_software *software) { return software ? software->weight_32nds : 0; }

bool zp_software_casts_alone(const zp_software *software, const zp_train *train, const zp_choice *choice) {
  assert(train && choice);
  bool on_device = choice->home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_DEVICE;
  bool can = zp_shards_state(choice) && (on_device || train->precision == ZP_PREC_MIXED_FP8_DELAYED);
  if (zp_shards_gradients(choice)) can &= train->precision != ZP_PREC_MIXED_NVFP4;
  return can && zp_software_weight_32nds(software) > 0 && software->casts_alone && !train->bf16_weights;
}

int zp_software_gathered_bits(const zp_software *software, const zp_train *train, const zp_choice *choice) {
  enum { WHOLE = 16 };
  const char *recipe = zp_precision_recipe(train->precision); /* measured runs name theirs otherwise: predict.c */
  if (!recipe || !zp_software_casts_alone(software, train, choice)) return WHOLE;
  int row = row_of(recipe);
  return zp_shards_params(choice) ? recipes[row].unit_bits : recipes[row].back_bits;
}

int zp_software_least_weight_bytes(const zp_software *software, const zp_train *train, int compute_bytes) {
  int alone = zp_software_weight_32nds(software) / 32;
  bool less = alone > 0 && alone < compute_bytes && software->casts_alone && !train->bf16_weights;
  return less ? alone : compute_bytes;
}
