/* Vision Transformers (arXiv 2010.11929) as transformers has them with a classifier on the class token
 * (ViTForImageClassification): fields, the model as .dz text, names of tensors. Pictures come as pixels, or as patches
 * that are cut already: the projection has the same elements. */
#include "hf.h"

const hf_name hf_vit_names[] = {{"cls_token", "vit.embeddings.cls_token"},
                                {"position", "vit.embeddings.position_embeddings"},
                                {"patches", "vit.embeddings.patch_embeddings.projection"},
                                {"layer.{}.layernorm_before", "vit.encoder.layer.{}.layernorm_before"},
                                {"layer.{}.attention.query", "vit.encoder.layer.{}.attention.attention.query"},
                                {"layer.{}.attention.key", "vit.encoder.layer.{}.attention.attention.key"},
                                {"layer.{}.attention.value", "vit.encoder.layer.{}.attention.attention.value"},
                                {"layer.{}.attention.dense", "vit.encoder.layer.{}.attention.output.dense"},
                                {"layer.{}.layernorm_after", "vit.encoder.layer.{}.layernorm_after"},
                                {"layer.{}.intermediate", "vit.encoder.layer.{}.intermediate.dense"},
                                {"layer.{}.dense", "vit.encoder.layer.{}.output.dense"},
                                {"layernorm", "vit.layernorm"},
                                {"classifier", "classifier"},
                                {NULL, NULL}};

static int64_t count_classes(hf_reader *r) {
  const zp_json *labels = hf_value(r, "id2label");
  if (hf_value(r, "num_labels")) return hf_size(r, "num_labels", 2, HF_MOST_WIDTH); /* counts where both are */
  int n = 0;
  while (labels && zp_json_key(labels, n)) n++;
  return n ? n : hf_size_or_null(r, "num_labels", 2, HF_MOST_WIDTH);
}

void hf_read_vit(hf_reader *r) {
  hf_model *m = r->model;
  m->layers_are = HF_VIT;
  m->n_heads = HF_VIT_INPUTS;
  m->head = HF_VIT_PIXELS;
  m->image = hf_size(r, "image_size", 224, 1 << 15);
  m->patch = hf_size(r, "patch_size", 16, 1 << 15);
  m->channels = hf_size(r, "num_channels", 3, HF_MOST_WIDTH);
  m->classes = count_classes(r);
  hf_read_encoder(r, 0);
  m->qkv_bias = hf_flag(r, "qkv_bias", true);
  m->proj_bias = m->mlp_bias = true;
  if (hf_is_sound(r) && m->image % m->patch)
    zp_report(r->diags, ZP_Z0683, hf_place(r, "patch_size"), "patches of %lld pixels do not fill pictures of %lld",
              (long long)m->patch, (long long)m->image);
  hf_check_heads(r, "num_attention_heads");
  hf_check_head_size(r);
}

/* ---- the text ---- */

static void write_layer(zp_buf *out, const hf_model *m) {
  const char *plain = hf_linear_options(out, m, true), *qkv = hf_linear_options(out, m, m->qkv_bias);
  const char *eps = hf_number(out->arena, m->eps);
  zp_buf_puts(out, "block self_attention(x: [B, S, d], heads: int) -> [B, S, d] {\n");
  zp_buf_printf(out, "  query = linear(x, d%s)\n  key   = linear(x, d%s)\n  value = linear(x, d%s)\n", qkv, qkv, qkv);
  zp_buf_puts(out, "  y     = attention(query, key, value, heads = heads, causal = false)\n");
  zp_buf_printf(out, "  dense = linear(y, d%s)\n  return dropout(dense)\n}\n\n", plain);
  zp_buf_puts(out, "block vit_layer(x: [B, S, d], heads: int, ff: int) -> [B, S, d] {\n");
  zp_buf_printf(out, "  layernorm_before = layer_norm(x, eps = %s)\n", eps);
  zp_buf_puts(out, "  attention        = self_attention(layernorm_before, heads = heads)\n"
                   "  a                = x + attention\n");
  zp_buf_printf(out, "  layernorm_after  = layer_norm(a, eps = %s)\n", eps);
  zp_buf_printf(out, "  intermediate     = linear(layernorm_after, ff%s)\n", plain);
  zp_buf_printf(out, "  dense            = linear(%s, d%s)\n", hf_activation_of(out, m, "intermediate"), plain);
  zp_buf_puts(out, "  return a + dropout(dense)\n}\n\n");
}

static void write_patches(zp_buf *out, const hf_model *m) {
  const char *std = hf_number(out->arena, m->std), *plain = hf_linear_options(out, m, true);
  bool pixels = m->head == HF_VIT_PIXELS;
  int64_t side = m->image / m->patch;
  if (pixels)
    zp_buf_printf(out, "model vit(S = %lld, C = %lld, height = %lld, patch = %lld, ", (long long)(m->image * m->image),
                  (long long)m->channels, (long long)m->image, (long long)m->patch);
  else
    zp_buf_printf(out, "model vit(S = %lld, p = %lld, ", (long long)(side * side),
                  (long long)(m->channels * m->patch * m->patch));
  zp_buf_printf(out, "d = %lld, layers = %lld, heads = %lld, ff = %lld, classes = %lld) {\n", (long long)m->hidden,
                (long long)m->layers, (long long)m->heads, (long long)m->ff, (long long)m->classes);
  zp_buf_puts(out, pixels ? "  input images: f32[B, S, C]  # pixels, row by row\n" : "  input images: f32[B, S, p]\n");
  zp_buf_printf(out, "  input labels: i32[B]\n\n  param cls_token: [1, d] ~ normal(std = %s)\n", std);
  zp_buf_printf(out, "  param position: [%s, d] ~ normal(std = %s)\n", pixels ? "S / (patch * patch) + 1" : "S + 1",
                std);
  if (pixels)
    zp_buf_printf(out, "  patches = conv2d_layer(images, d, kernel = patch, height = height, stride = patch%s)\n",
                  plain);
  else
    zp_buf_printf(out, "  patches = linear(images, d%s)\n", plain);
}

void hf_write_vit(zp_buf *out, const hf_model *m) {
  write_layer(out, m);
  write_patches(out, m);
  zp_buf_printf(out, "  x = %s\n", hf_dropped(out, m, "concat(cls_token, patches) + position"));
  zp_buf_puts(out, "  repeat layer in 0..layers {\n    x = vit_layer(x, heads = heads, ff = ff)\n  }\n");
  zp_buf_printf(out, "  layernorm  = layer_norm(x, eps = %s)\n", hf_number(out->arena, m->eps));
  zp_buf_printf(out, "  classifier = sample_linear(select(layernorm, 0), classes%s)\n",
                hf_linear_options(out, m, true));
  zp_buf_puts(out, "  output loss = cross_entropy(classifier, labels)\n}\n");
}

void hf_shape_of_vit(const hf_model *m, zp_hf_part *part) {
  bool matrix = part->rank == 2, table = strstr(part->name, "cls_token") || strstr(part->name, "position_embeddings");
  if (matrix && table) {
    part->rank = 3;
    part->shape[2] = part->shape[1], part->shape[1] = part->shape[0], part->shape[0] = 1;
  } else if (matrix && strstr(part->name, ".projection.")) {
    part->rank = 4;
    part->shape[1] = m->channels, part->shape[2] = part->shape[3] = m->patch;
  }
}
