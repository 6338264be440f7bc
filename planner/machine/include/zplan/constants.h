/* SPDX-License-Identifier: Apache-2.0 */
/* Every constant of the cost model: name, value, unit, where it comes from. Library numbers, not calibrated on the
 * user's machine; the summary says so. Machine rates come from the .dz file, not from here. */
#ifndef ZPLAN_COST_CONSTANTS_H
#define ZPLAN_COST_CONSTANTS_H

#define ZP_COST_CONSTANTS(X)                                                                                           \
  X(GPU_UNITS, 108, "multiprocessors", "where a device does not say `cores`: A100 data sheet")                         \
  X(GPU_TILE_LOAD, 25, "elements", "operand traffic of a tile: 64 x 64 runs at 2/3 of 256 x 128; estimate")            \
  X(GPU_TILE_FILL, 96, "depth", "inner length whose time a tile spends on filling and writing; estimate")              \
  X(GPU_SPLIT_DEPTH, 1024, "depth", "shortest inner length that is divided over tiles (split-K); estimate")            \
  X(GPU_ALIGN_BYTES, 16, "bytes",                                                                                      \
    "rows of operands must be multiples for the fastest kernels; NVIDIA Deep Learning Performance Guide, section 2")   \
  X(VOLTA_ALIGN_BYTES, 8, "bytes",                                                                                     \
    "the same on V100: heads of 100 columns ran at the rate of aligned ones (DeepSpeed's runs on 16 V100, "            \
    "docs/evidence/accuracy.md)")                                                                                      \
  X(GPU_UNALIGNED, 0.5, "share",                                                                                       \
    "of the rate of one large product with aligned rows; a round figure: linear layers 1.3 to 4 times faster when "    \
    "padded (NVIDIA Linear/Fully-Connected Layers User's Guide), steps of GPT-2 124M on A100 14 % (rasbt/"             \
    "LLMs-from-scratch ch05/10) to 25 % (A. Karpathy, 3 February 2023, from memory) faster with 50,304 words")         \
  X(OWN_ATTENTION, 0.35, "share",                                                                                      \
    "of the single-precision peak that the GPU trainer's attention reaches where it is not on tensor cores, of "       \
    "the operations of dense tiles, those that causality cuts included: a roofline by hand of the emitted "            \
    "instructions, 118 ms of a step of GPT-2 124M, 32 x 1,024 tokens, on H100 (November 2026); estimate")              \
  X(OWN_DROPOUT, 56, "FLOP",                                                                                           \
    "of a pair of query and key, at the rate of attention on the cores for single precision, that each of its "        \
    "kernels takes to draw and to drop: as compiled for sm_90, heads of 64 on tensor cores (NVRTC 13.0), 22 to 26 "    \
    "instructions, 4 to 5 of them wide multiplications, which take two slots; estimate")                               \
  X(OWN_RELATIVE_BIAS, 20, "FLOP",                                                                                     \
    "the same for a pair whose bias is read from a line, or whose gradient is summed along a diagonal: 10 "            \
    "instructions; estimate by hand")                                                                                  \
  X(OWN_MMA_FORWARD_SM70, 0.4, "share",                                                                                \
    "the same forward on sm_70 with mma.m8n8k4: no measured rate of a kernel built alike was found. As compiled for "  \
    "sm_70 (NVRTC 12.9), heads of 64, at this share the port of shared memory is busy 32 % of the time and slots for " \
    "instructions 35 %, as much as at the measured rates of sm_80 and sm_90; estimate")                                \
  X(OWN_MMA_BACKWARD_SM70, 0.35, "share",                                                                              \
    "the same backward on sm_70, where warps of 16 rows read every operand: the port is busy 44 % of the time; "       \
    "estimate")                                                                                                        \
  X(OWN_MMA_FORWARD_SM80, 0.57, "share",                                                                               \
    "of the 16-bit peak that attention on tensor cores reaches, forward, sm_80 to sm_89 and sm_120: estimated "        \
    "as what FlashAttention-2, built alike, was measured at, causal, heads of 128, 144 (1,024 positions) and "         \
    "156 to 159 (4,096) of 312 TFLOP/s on A100, less what its tiles and fills cost; 185 without a mask "               \
    "(liangan1/GPU_travel, performance/flash-attn)")                                                                   \
  X(OWN_MMA_BACKWARD_SM80, 0.57, "share",                                                                              \
    "the same backward: as forward; FlashAttention-2 reached 77.4 backward for 81.9 TFLOP/s forward without a "        \
    "mask on an A5000 (gpu-mode/ring-attention issue 10) and up to 63 % on A100 (arXiv 2307.08691); estimate")         \
  X(OWN_MMA_FORWARD_SM90, 0.285, "share",                                                                              \
    "the same forward on sm_90, whose tensor cores are made for wgmma and not for mma.sync, heads of up to 64: 0.277 " \
    "to 0.284 at 1,024 positions, 0.33 at 16,384, in steps on an H100 (docs/evidence/gpu_measured.md)")                \
  X(OWN_MMA_FORWARD_WIDE_SM90, 0.29, "share", "the same with wider heads: heads of 128, 2,048 positions (as above)")   \
  X(OWN_MMA_BACKWARD_SM90, 0.3, "share",                                                                               \
    "the same backward, heads of up to 64: 0.29 at 1,024 positions, 0.35 at 16,384 (as above)")                        \
  X(OWN_MMA_BACKWARD_WIDE_SM90, 0.27, "share", "the same with wider heads: heads of 128, 2,048 positions (as above)")  \
  X(OWN_MMA_FORWARD_SM100, 0.14, "share",                                                                              \
    "the same forward on sm_100, made for tcgen05: 0.85, for a mask, of 354 to 362 of 2,250 TFLOP/s on B200 "          \
    "with heads of 128 (meta-pytorch/tritonbench pull request 171), 343 to 381 with heads of 64 "                      \
    "(flash-attention issue 1589); estimate")                                                                          \
  X(OWN_MMA_BACKWARD_SM100, 0.145, "share",                                                                            \
    "the same backward: 315 to 334 TFLOP/s at 4,096 to 16,384 positions without a mask (issue 1589); estimate")        \
  X(OWN_MMA_FILL, 96, "rows",                                                                                          \
    "of the other side whose time a block of attention on tensor cores spends on beginning and ending: of "            \
    "FlashAttention-2's forward rates at 512 to 4,096 positions 44 (A100) to 174 (B200), 143 on H100 (sources "        \
    "as above); estimate")                                                                                             \
  X(OWN_PRODUCTS_SM90, 1.2, "share",                                                                                   \
    "of efficiency.matmul, which programs with collectives alongside their products reach, that cuBLASLt 13.1 "        \
    "reaches "                                                                                                         \
    "alone on sm_90: 1.09 to 1.31 in layers of 768 to 2,048 columns, steps of GPT-2 on an H100 "                       \
    "(docs/evidence/gpu_measured.md)")                                                                                 \
  X(OWN_EPILOGUE_BYTES, 1.4, "share",                                                                                  \
    "of the time of the bytes that an epilogue moves alongside its product, by which it is longer: gelu's operand "    \
    "1.0 "                                                                                                             \
    "to 1.4, gradients of biases 1.3 to 2.2 (H100, as above)")                                                         \
  X(OWN_BYTES_SM90, 1.08, "share",                                                                                     \
    "of efficiency.memory that row kernels, losses and the update reach on sm_90: 0.94 to 1.16 (H100, as above)")      \
  X(OWN_COLUMN_SUMS_SM90, 0.88, "share", "the same of kernels with sums over columns: 0.76 to 0.98 (H100, as above)")  \
  X(OWN_ROW_OPERATIONS, 0.5, "share",                                                                                  \
    "of the single-precision peak that operations of row kernels and losses reach: one instruction each, where "       \
    "the peak counts two. Instructions an element as compiled for sm_90, for so many counted operations: GELU "        \
    "25 for 17, its gradient 38 for 54, layer_norm 12 for 8, cross-entropy 11 to 13 for 12 (NVRTC 13.0); "             \
    "estimate")                                                                                                        \
  X(OWN_ROW_OPERATIONS_SM80, 1, "share",                                                                               \
    "the same on sm_70 to sm_80, which issue 128 lanes a cycle and have 64 for single precision (CUDA C++ "            \
    "Programming Guide, throughput of native arithmetic instructions); estimate")                                      \
  X(OWN_DECISION_S, 2.5e-5, "s",                                                                                       \
    "of the kernel between norm and update besides its launch, one block: 256 sums of parts of a large segment, "      \
    "read four at a time from L2, and a sum over some 150 segments; hand count, estimate")                             \
  X(OWN_GATE_EXP_S, 1.2e-7, "s",                                                                                       \
    "of a sigmoid in f64 in a thread of the gate, after the one before: about 210 cycles at 1.75 GHz, an exponential " \
    "of some 12 and a division of some 10 dependent instructions of 8 cycles, and a load; hand count, not measured")   \
  X(OWN_GATE_EXP_FLOP, 80, "FLOP", "of the same in f64; hand count")                                                   \
  X(OWN_GATE_CHOICE_S, 4.6e-9, "s",                                                                                    \
    "of a choice that all 8 warps of a block of the gate compare with their experts: 8 cycles at 1.75 GHz; hand "      \
    "count, not measured")                                                                                             \
  X(OWN_COLUMN_BYTES_PER_S, 3e10, "bytes / s",                                                                         \
    "of one thread block of its kernels with sums over columns: hand count, 8 warps of which each has 3 loads of 3 "   \
    "packs of 512 bytes under way, a row in 1.2 us (latency of memory, about 1,000 instructions); not measured")       \
  X(ATTENTION_DROPOUT, 240, "FLOP",                                                                                    \
    "of a pair of query and key, at attention's rate, whose time drawing its number and dropping takes: 164 to 319, "  \
    "f32, heads of 32 to 128, forward and backward, x86-64-v4 (one core of a shared machine, November 2026)")          \
  X(CPU_GEMM_M_HALF, 4, "rows", "packing and edge loss of a blocked CPU matmul; estimate, to be calibrated")           \
  X(CPU_GEMM_N_HALF, 8, "columns", "as above")                                                                         \
  X(CPU_GEMM_K_HALF, 16, "depth", "as above")                                                                          \
  X(CPU_FLOAT8, 80, "FLOP",                                                                                            \
    "of a product in f32 in whose time a number of a tile is rounded to 8 bits: 60 with a scale for all (1.0 ns at "   \
    "61 GFLOP/s), 70 to 125 with scales of blocks, AVX2 (one core of an AMD EPYC, November 2026)")                     \
  X(SELECTIVE_BYTES_PER_FLOP, 0.02, "bytes / FLOP",                                                                    \
    "selective recomputation: row kernels give back 0.03 and more in half precision (up to 60 FLOP an element), "      \
    "products with inner length 64 and above 0.016 and less")                                                          \
  X(HOST_STREAM, 0.8, "share",                                                                                         \
    "of the host's memory channels that long streams reach: STREAM triad on two-socket servers of 2017 to 2023, "      \
    "about "                                                                                                           \
    "200 of 256 GB/s on Xeon 8168; from memory")                                                                       \
  X(COLLECTIVE_BASE_S, 2e-6, "s", "call overhead of one collective; estimate, to be calibrated")                       \
  X(TREE_SHARE, 0.92, "share", "bandwidth of tree all-reduces against rings; NCCL src/graph/tuning.cc")                \
  X(LL128_HOP, 0.56, "share", "of an NVLink hop of protocol Simple: 1.9 of 3.4 us; NCCL src/graph/tuning.cc")          \
  X(LL128_SHARE, 0.94, "share", "of Simple's bandwidth: 120 of 128 bytes are data; as above")                          \
  X(LL_HOP, 0.18, "share", "of an NVLink hop of protocol Simple: 0.6 of 3.4 us; as above")                             \
  X(LL_NETWORK_HOP, 0.19, "share", "of a network hop of protocol Simple: 2.7 of 14 us; as above")                      \
  X(LL_SHARE, 0.5, "share", "of Simple's bandwidth: 4 of 8 bytes are data; as above")                                  \
  X(LL_BYTES_PER_S, 39e9, "bytes / s", "most that LL reaches in a node, V100 (A100: 88e9); as above, llMaxBws")        \
  X(LL_NETWORK_BYTES_PER_S, 20e9, "bytes / s", "the same over more than two nodes; as above")                          \
  X(LINK_BLOCK_BYTES_PER_S, 12.5e9, "bytes / s",                                                                       \
    "of a GPU link's line rate that one thread block of a collective serves: 24 blocks on A100's 12 links; NVIDIA/"    \
    "nccl issue 1225")                                                                                                 \
  X(LINK_BLOCKS, 24, "thread blocks",                                                                                  \
    "most of a collective inside a node: 24 on H100 too; NVIDIA developer forum, topic 337991")                        \
  X(CARD_BLOCKS, 2, "thread blocks", "of a collective for each network card: 16 with 8 cards; NVIDIA/nccl issue 689")  \
  X(LINK_COPY, 0.54, "share",                                                                                          \
    "time of copies in memory, of that of the array on a switched GPU link; all-reduces of 1 MB to 1 GB over 2 to 8 "  \
    "A100: VIA-Research/vTrain trace/a100, within 2 %")                                                                \
  X(MESH_PAYLOAD, 0.9, "share",                                                                                        \
    "of the line rate that rings reach in the cube mesh of a DGX-1V, 2, 4 and 8 devices: VIA-Research/vTrain "         \
    "trace/v100")                                                                                                      \
  X(LINK_PAYLOAD, 0.8, "share",                                                                                        \
    "of a GPU link's line rate that messages carry: protocol overhead of about 20 %; NCCL maintainers, NVIDIA/"        \
    "nccl-tests issue 212, and NCCL src/graph/topo.h (20 of 25 GB/s a link)")                                          \
  X(NETWORK_PAYLOAD, 0.85, "share",                                                                                    \
    "of GPU nodes' NIC line rate that NCCL carries: 84.8 of 100 GB/s on 4 x HDR; NVIDIA/nccl-tests issue 119")         \
  X(PAIRS_LINK, 0.597, "share",                                                                                        \
    "of a GPU link's line rate that NCCL's all-to-alls reach, 2 to 8 B200: MooreThreads/SimuMax "                      \
    "configs/system/b200_bf16_ceperm.json @4dcaae51; opened")                                                          \
  X(DISPATCH_LINK, 0.525, "share",                                                                                     \
    "of a GPU link's line rate at which a dispatcher of tokens brings what other ranks want: calls of HybridEP in "    \
    "16 bits with 32 multiprocessors, both ways, 8 to 36 GB200, 450 to 490 of 900 GB/s without the rank's own "        \
    "(deepseek-ai/DeepEP, branch hybrid-ep, docs/README_Hybrid-EP.md; opened)")                                        \
  X(DISPATCH_LINK_KERNEL, 0.695, "share", "the same of its kernels alone: 598 to 657 GB/s (as above)")                 \
  X(DISPATCH_CALL_S, 1.9e-4, "s",                                                                                      \
    "that a call in a node takes besides its kernel, however much it brings: 0.17 to 0.22 ms to dispatch, 0.13 to "    \
    "0.24 to combine 320 to 430 MB, 8 to 36 GB200 with 32 multiprocessors (as above)")                                 \
  X(DISPATCH_NETWORK, 0.76, "share",                                                                                   \
    "of a card's line rate, the same between nodes: 38 of 50 GB/s without the node's own, 32 and 64 H100, eight of "   \
    "256 and 512 experts drawn at random (as above)")                                                                  \
  X(DISPATCH_NETWORK_KERNEL, 0.87, "share", "the same of its kernels alone: 43 GB/s (as above)")                       \
  X(SORTED_ROWS, 0.757, "share",                                                                                       \
    "of the memory bandwidth of other kernels that kernels reach which sort rows by expert, and back: 0.505 for "      \
    "0.667 of B200's 8 TB/s (configs/system/b200_bf16_ceperm.json, as above)")                                         \
  X(LATENT_FORWARD, 1.09, "share",                                                                                     \
    "of attention's rate that heads of 192 columns with values of 128 reach: half of 0.83 of B200's peak for 0.38, "   \
    "128 heads, 4,096 positions (as above)")                                                                           \
  X(LATENT_BACKWARD, 0.845, "share", "the same backward: half of 0.642 (as above)")                                    \
  X(NARROW_HEADS, 0.67, "share",                                                                                       \
    "of attention's rate that heads of 64 columns reach in cuDNN on H100: 408 for 609 TFLOP/s forward, 4,096 "         \
    "positions (arXiv 2407.08608, figure 5, as digitised by subtext.edge.nugit.net; opened)")                          \
  X(NARROW_HEADS_2023, 0.87, "share",                                                                                  \
    "the same of FlashAttention-2 and kernels like it: 321 for 368 TFLOP/s (as above)")                                \
  X(WINDOW_FILL_SM90, 121, "keys",                                                                                     \
    "a row that a window costs attention besides those that it sees: windows of 1,024, heads of 64, 4,096 positions "  \
    "on H200, forward 0.358 and backward 1.042 ms, at NARROW_HEADS of 591 and 474 TFLOP/s (NVIDIA/cudnn-frontend "     \
    "benchmark/sdpa_benchmark_training/results/h200_919_only_cudnn @3929da2; opened)")                                 \
  X(WINDOW_FILL_SM100, 329, "keys",                                                                                    \
    "the same of windows of 128 on GB200: 128 heads of 64, two samples of 4,096 positions, 0.210 and 0.465 ms, at "    \
    "NARROW_HEADS of hw.dz's 950 TFLOP/s (the same, results/gpt_oss; 456 at the 1,408 and 1,148 of results/llama3.1)") \
  X(NARROW_FORWARD, 1.33, "share",                                                                                     \
    "how many times faster attention is in MXFP8 than in bf16, 64 heads of 128, 4,096 positions, GB300: 2,272 for "    \
    "1,703 TFLOP/s (the same, results/llama3.1)")                                                                      \
  X(NARROW_BACKWARD, 0.92, "share", "the same backward: 1,143 for 1,248; windows of 128 take 1.87 ms for 0.44")        \
  X(NARROW_LATENT_FORWARD, 1.58, "share",                                                                              \
    "the same of heads of 192 with values of 128: 2,517 for 1,590 (results/dsv3)")                                     \
  X(NARROW_LATENT_BACKWARD, 1.33, "share", "the same backward: 1,522 for 1,143")                                       \
  X(STRIDED_ROWS, 0.446, "share",                                                                                      \
    "of the bandwidth of PyTorch's kernels on operands of one shape that those reach which read one row for all, and " \
    "so take an element at a time, as rows with a stride do: 0.62 for 1.39 TB/s, H200 (tile-ai/TileOPs pull request "  \
    "537; opened). That strides cost the same is assumed: it is the same kernel of TensorIterator")                    \
  X(FLEX_ATTENTION, 0.87, "share",                                                                                     \
    "of FlashAttention-2's rate that FlexAttention reaches: 0.9 forward, 0.85 backward (PyTorch blog, 7 August 2024; " \
    "from memory)")                                                                                                    \
  X(DISPATCH_UNITS, 32, "multiprocessors",                                                                             \
    "that a dispatcher keeps from kernels alongside it: moe_hybridep_num_sms, NVIDIA-NeMo/Megatron-Bridge "            \
    "scripts/performance/utils/overrides.py of v0.4.0; opened")                                                        \
  X(LINK_LATENCY_S, 3.4e-6, "s", "one NVLink hop of a ring, protocol Simple; NCCL src/graph/tuning.cc")                \
  X(LINK_LATENCY_SM100_S, 8.6e-6, "s",                                                                                 \
    "the same of NVLink 5: 9.2 us of all-gathers, 8.0 of reduce-scatters, each over 2 to 8 B200 (MooreThreads/"        \
    "SimuMax configs/system/b200_bf16_ceperm.json @4dcaae51)")                                                         \
  X(NETWORK_LATENCY_S, 14e-6, "s", "one network hop of a ring, protocol Simple; NCCL src/graph/tuning.cc")             \
  X(CONNECTION_BYTES, 6 << 21, "bytes",                                                                                \
    "of device memory, a channel to and from a neighbour in the node: buffers of LL (512 KiB), LL128 (4,800 KiB) and " \
    "Simple (4 MiB) and two heads, in pages of 2 MiB; NCCL src/init.cc, src/transport/p2p.cc; opened")                 \
  X(NETWORK_CONNECTION_BYTES, 10 << 21, "bytes",                                                                       \
    "the same over the network, with GPU-direct: LL128 and Simple to send, all three to receive; src/transport/"       \
    "net.cc; opened")                                                                                                  \
  X(COMMUNICATOR_BYTES, 1 << 28, "bytes",                                                                              \
    "of a communicator with several ranks in a node, besides connections: what the figures of NVIDIA/nccl issue 964 "  \
    "leave (planner/machine/communicators.c)")                                                                         \
  X(PAIR_BYTES, 7 << 21, "bytes",                                                                                      \
    "of device memory, a channel to and from a rank in the node that sends and receives: 3.28 GB more after the "      \
    "first "                                                                                                           \
    "all-to-all of 8 x H100 with 32 channels to each of 7 others; NVIDIA/nccl issue 1685")                             \
  X(PAIR_CHANNELS, 32, "channels", "with a rank of the node at most; NVIDIA/nccl issue 1685")                          \
  X(NETWORK_PAIR_CHANNELS, 2, "channels",                                                                              \
    "with any rank of a communicator over several nodes: NCCL_NCHANNELS_PER_NET_PEER; NVIDIA/nccl issues 1189, 1424")  \
  X(NETWORK_PAIR_POOL_BYTES, 1 << 21, "bytes",                                                                         \
    "a channel and direction, shared by all ranks of other nodes: 16 steps of 128 KiB; NCCL src/transport/net.cc, "    \
    "NVIDIA/nccl issue 1450; opened")                                                                                  \
  X(SUM_SHARES_BYTES, 1 << 26, "bytes",                                                                                \
    "where the trainer lets shares of a gradient's sum arrive, alongside NCCL's buffers (runtime/cuda/nccl.c)")        \
  X(RING_BYTES_PER_S, 25e9, "bytes / s", "line rate of one NVLink, which is what a ring takes; as in hw.dz")           \
  X(MOST_RINGS, 12, "rings", "in a node; each is doubled (NCCL src/graph/connect.cc; opened): 24 channels; estimate")

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
