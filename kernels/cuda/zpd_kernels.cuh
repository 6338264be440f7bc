/* All kernels that are written by hand, for one dtype: what a generated kernels.cu includes. */
#include "zpd_attention.cuh"
#include "zpd_compress.cuh"
#include "zpd_cross_entropy.cuh"
#include "zpd_experts.cuh"
#include "zpd_flat.cuh"
#include "zpd_lookup.cuh"
#include "zpd_step.cuh"
