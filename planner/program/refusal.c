/* Decisions that do not go together, whatever the model and its size. The search asks before it prices, plan files are
 * asked when they are read. */
#include "lower_internal.h"
#include "schedule.h"

static const char *refuse_homes(const zp_choice *c, const zp_node_type *node) {
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    const zp_home *home = &c->home[i];
    if (home->eighths < 0 || home->eighths > 8) return "offloaded shares are 0 to 8 eighths";
    if ((home->tier == ZP_TIER_DEVICE) != (home->eighths == 0)) return "what is offloaded needs a share and a place";
    if (home->tier == ZP_TIER_DEVICE) continue;
    if (node->device.is_cpu) return "CPU ranks compute in host memory: there is nowhere to offload to";
    if (node->pcie_bytes_per_s <= 0 || node->host_bytes_per_s <= 0)
      return "the node type states no PCIe or host memory bandwidth, which offloading needs";
    if (home->tier == ZP_TIER_NVME && (node->nvme_read_bytes_per_s <= 0 || node->nvme_write_bytes_per_s <= 0))
      return "the node type states no NVMe bandwidth";
  }
  return NULL;
}

/* 1-bit Adam sends momentum instead of gradients and keeps errors for the whole vector on every rank. */
static const char *refuse_compress(const zp_choice *c, const zp_train *train) {
  if (!c->compress) return NULL;
  if (train->optimizer == ZP_OPT_SGD) return "compress is for adam and adamw";
  if (c->data < 2) return "compress needs two or more data ranks";
  if (zp_expert_ranks(c) > 1) return "compress does not go with experts spread over data ranks";
  if (c->zero > 0) return "compress does not go with ZeRO 1 to 3";
  for (int i = 0; i < ZP_STATE_ACTIVATIONS; i++)
    if (c->home[i].eighths > 0) return "compress does not go with state off the device";
  return NULL;
}

static const char *refuse_modes(const zp_choice *c) {
  for (int s = 0; s < c->pipeline; s++)
    if (c->sequence && zp_stage_mode_split(zp_choice_mode(c, s))) return "sequence sharding splits kept inputs already";
  return NULL;
}

const char *zp_choice_refusal(const zp_choice *choice, const zp_spec *spec) {
  const char *why = zp_schedule_refusal(choice);
  if (!why) why = refuse_homes(choice, &spec->cluster.node);
  if (!why) why = refuse_compress(choice, &spec->train);
  if (why) return why;
  if (choice->zero < 0 || choice->zero > 3) return "ZeRO stages are 0 to 3";
  if (choice->data % zp_expert_ranks(choice)) return "expert groups divide the data ranks";
  if (choice->own_order && choice->own_order->microbatches != zp_microbatches(spec, choice))
    return "the order of the stages is one of another number of micro-batches";
  if (choice->sequence && choice->tensor < 2) return "sequence sharding needs two or more tensor ranks";
  return refuse_modes(choice);
}
