/* Every constant of the cost model: name, value, unit, where it comes from. Library numbers, not calibrated on the
 * user's machine; the summary says so. Machine rates come from the .dz file, not from here. */
#ifndef ZPLAN_COST_CONSTANTS_H
#define ZPLAN_COST_CONSTANTS_H

#define ZP_COST_CONSTANTS(X)                                                                                           \
  X(GPU_GEMM_TILE, 128, "rows and columns", "output tile of large matrix kernels; CUTLASS default shapes")             \
  X(GPU_GEMM_UNITS, 100, "tiles at once", "between the SM counts of V100 (80), A100 (108) and H100 (132)")             \
  X(GPU_GEMM_K_HALF, 64, "depth", "inner length at half efficiency; estimate, to be calibrated")                       \
  X(CPU_GEMM_M_HALF, 4, "rows", "packing and edge loss of a blocked CPU matmul; estimate, to be calibrated")           \
  X(CPU_GEMM_N_HALF, 8, "columns", "as above")                                                                         \
  X(CPU_GEMM_K_HALF, 16, "depth", "as above")                                                                          \
  X(COLLECTIVE_BASE_S, 2e-6, "s", "call overhead of one collective; estimate, to be calibrated")

enum zp_cost_constant {
#define ZP_CONSTANT_ROW(name, value, unit, source) ZP_COST_##name,
  ZP_COST_CONSTANTS(ZP_CONSTANT_ROW)
#undef ZP_CONSTANT_ROW
      ZP_COST_CONSTANT_COUNT
};

typedef struct zp_cost_row {
  const char *name;
  double value;
  const char *unit, *source;
} zp_cost_row;
/* The whole table, for the report. */
const zp_cost_row *zp_cost_rows(void);
double zp_cost_constant(enum zp_cost_constant which);

#endif
