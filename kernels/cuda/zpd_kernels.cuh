/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels that are written by hand, for one dtype: what a generated kernels.cu includes. ZPD_TENSOR_CORES:
 * attention on tensor cores where the arch has them for the dtype: bf16 and f16 since sm_80, f16 on sm_70 and sm_72.
 * ZPD_ADAFACTOR, ZPD_MUON, ZPD_ONE_BIT, ZPD_ONE_BIT_LAMB, ZPD_ZERO_ONE_ADAM: what these optimizers need, which
 * others' images leave out; ZPD_STOCHASTIC_SUMS: gradients that the end of a step reads are bf16; ZPD_EXPERTS: what
 * models with experts do; ZPD_DECODE: what trainers do that continue texts position by position, which have no
 * attention on tensor cores. */
#if !defined(ZPD_TENSOR_CORES)
#elif defined(ZPD_HOST) || __CUDA_ARCH__ >= 800
#define ZPD_ATTENTION_ON_TENSOR_CORES
#elif defined(ZPD_F16) && __CUDA_ARCH__ >= 700 && __CUDA_ARCH__ < 750
#define ZPD_ATTENTION_ON_TENSOR_CORES
#endif
#ifdef ZPD_ATTENTION_ON_TENSOR_CORES
#include "zpd_mma_attention_grad.cuh"
#else
#include "zpd_attention.cuh"
#endif
#ifdef ZPD_DECODE
#include "zpd_stretch.cuh"
#endif
#ifdef ZPD_ADAFACTOR
#include "zpd_adafactor.cuh"
#endif
#ifdef ZPD_ONE_BIT
#include "zpd_one_bit.cuh"
#endif
#ifdef ZPD_ONE_BIT_LAMB
#include "zpd_one_bit_lamb.cuh"
#endif
#ifdef ZPD_ZERO_ONE_ADAM
#include "zpd_one_bit_local.cuh"
#endif
#include "zpd_cross_entropy.cuh"
#ifdef ZPD_EXPERTS
#include "zpd_experts.cuh"
#endif
#include "zpd_flat.cuh"
#include "zpd_lookup.cuh"
#ifdef ZPD_CONTEXT_KEYS
#include "zpd_merge.cuh"
#endif
#ifdef ZPD_MUON
#include "zpd_muon.cuh"
#endif
#include "zpd_positions.cuh"
#include "zpd_step.cuh"
#ifdef ZPD_STOCHASTIC_SUMS
#include "zpd_stochastic.cuh"
#endif
/* Only models with such operations have these. */
#ifdef ZPD_AXES
#include "zpd_gather.cuh"
#include "zpd_reduce.cuh"
#include "zpd_squared_error.cuh"
#include "zpd_transpose.cuh"
#include "zpd_unfold.cuh"
#endif
