/* SPDX-License-Identifier: Apache-2.0 */
/* Vision Transformers (arXiv 2010.11929) as ViTConfig of transformers has them, with a classifier on the class token.
 * Pictures come as pixels (head 0), or as patches that are cut already (head 1): the projection has the same
 * elements. */
#include "hf.h"

static void count_labels(hf_reader *r) {
  const zp_json *labels = hf_json(r, "id2label");
  int n = 0;
  while (labels && zp_json_key(labels, n)) n++;
  hf_set_int(r->arena, r->model, "labels", n);
}

/* clang-format off */
static const hf_row of_vit[] = {
    LET("variants", "2"),
    LET("eps_of_class", "1e-12"),
    LET("dropout_of_class", "0.0"),
    SIZE("image_size", "image", "224", 1 << 15),
    SIZE("patch_size", "patch", "16", 1 << 15),
    SIZE("num_channels", "channels", "3", HF_MOST_WIDTH),
    CALL(count_labels), /* num_labels counts where both are */
    SIZE_OR_NULL("num_labels", "classes", "labels ? labels : 2", "labels ? labels : 2", HF_MOST_WIDTH),
    END};

static const hf_row others[] = {
    FLAG("qkv_bias", "qkv_bias", "1"),
    WRONG("patch_size", "image % patch != 0", "patches of ${patch} pixels do not fill pictures of ${image}"),
    NOTHING("encoder_stride pooler_act pooler_output_size"),
    END};
/* clang-format on */

static const hf_name names[] = {
    NAME_AS(HF_SHARED, "cls_token", "vit.embeddings.cls_token"),
    NAME_AS(HF_SHARED, "position", "vit.embeddings.position_embeddings"),
    NAME_AS(HF_WINDOWS, "patches.weight", "vit.embeddings.patch_embeddings.projection.weight"),
    NAME("patches", "vit.embeddings.patch_embeddings.projection"),
    NAME("layer.{}.layernorm_before", "vit.encoder.layer.${i}.layernorm_before"),
    NAME("layer.{}.attention.dense", "vit.encoder.layer.${i}.attention.output.dense"),
    NAME("layer.{}.attention", "vit.encoder.layer.${i}.attention.attention"),
    NAME("layer.{}.layernorm_after", "vit.encoder.layer.${i}.layernorm_after"),
    NAME("layer.{}.intermediate", "vit.encoder.layer.${i}.intermediate.dense"),
    NAME("layer.{}.dense", "vit.encoder.layer.${i}.output.dense"),
    NAME("layernorm", "vit.layernorm"),
    NAME("classifier", "classifier"),
    NAME_END};

const hf_family hf_vit = {.type = "vit",
                          .classes = {{"ViTForImageClassification", 0}, {"ViTModel", 0}},
                          .rows = {of_vit, hf_encoder_sizes, others, hf_whole_heads},
                          .text = "vit",
                          .prefix = "vit.",
                          .names = names};
