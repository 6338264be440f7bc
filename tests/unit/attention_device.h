/* SPDX-License-Identifier: Apache-2.0 */
/* Problems of attention for device kernels: their arguments, rows that begin at multiples of 16 bytes, texts with
 * layouts. */
#ifndef ATTENTION_DEVICE_H
#define ATTENTION_DEVICE_H

#include "attention_testing.h"
#include "device_kernels.h"
#include <zplan/buf.h>
#include <zplan/zpd_mma_geometry.h>
#include "../../runtime/cuda/attention_args.h"

/* Rows of the packed matrix have 3 elements more than the heads, so only some rows begin at multiples of 16 bytes;
 * these begin all there, even of 32, where the head size allows. */
static inline void align(problem *p) {
  zpk_attention_args *a = &p->a;
  int64_t rows = a->B * a->S, e = zpk_bytes(a->dtype), old_ld = a->q_ld, ld = (old_ld - 3 + 15) / 16 * 16;
  char *qkv = aligned_alloc(32, (size_t)((rows * ld * e + 31) / 32 * 32));
  char *d_qkv = aligned_alloc(32, (size_t)((rows * ld * e + 31) / 32 * 32));
  memset(d_qkv, 0xff, (size_t)(rows * ld * e));
  for (int64_t r = 0; r < rows; r++)
    memcpy(qkv + r * ld * e, (char *)p->qkv + r * old_ld * e, (size_t)((old_ld - 3) * e));
  int64_t k_at = a->H * a->hd * e, v_at = (a->H + a->G) * a->hd * e;
  free(p->qkv);
  free(p->d_qkv);
  p->qkv = qkv;
  p->d_qkv = d_qkv;
  a->q = qkv, a->k = qkv + k_at, a->v = qkv + v_at;
  a->dq = d_qkv, a->dk = d_qkv + k_at, a->dv = d_qkv + v_at;
  a->q_ld = a->k_ld = a->v_ld = a->dq_ld = a->dk_ld = a->dv_ld = ld;
}

static inline void put_lines(zp_buf *out, const char *name, int id, const zpk_block_list *list, int64_t n) {
  zp_buf_printf(out, "ZPD_TABLE int %s_first%d[] = {", name, id);
  for (int64_t i = 0; i <= n; i++) zp_buf_printf(out, "%d,", (int)list->first[i]);
  zp_buf_printf(out, "};\nZPD_TABLE zpd_run %s%d[] = {", name, id);
  for (int32_t r = 0; r < list->first[n]; r++)
    zp_buf_printf(out, "{%d,%d},", (int)list->run[r].first, (int)list->run[r].end);
  zp_buf_puts(out, "};\n");
}

/* As generated kernels have it: the tables of all layouts, numbered from 1, what finds them, the kernels. Heads may
 * have different ones. */
static inline const char *text_with(zp_arena *arena, const char *text, const blocks *layouts, int n) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "#include \"zpd_device.h\"\n");
  for (int i = 0; i < n; i++) {
    put_lines(&out, "keys", i + 1, &layouts[i].layout.keys, layouts[i].n);
    put_lines(&out, "queries", i + 1, &layouts[i].layout.queries, layouts[i].n);
  }
  zp_buf_printf(&out,
                "#define ZPD_LAYOUTS %d\n#define ZPD_HEAD_LAYOUTS\nZPD_DEVICE zpd_layout zpd_layout_of(int id) {\n  "
                "switch (id) {\n",
                n);
  for (int i = 1; i <= n; i++)
    zp_buf_printf(&out, "  case %d: %sreturn {%d, {keys_first%d, keys%d}, {queries_first%d, queries%d}};\n", i,
                  i < n ? "" : "default: ", (int)layouts[i - 1].layout.block, i, i, i, i);
  zp_buf_puts(&out, "  }\n}\n");
  zp_buf_puts(&out, text);
  return out.data;
}

/* Layouts of all tests of device attention, so that they ask for one text a kind of kernel, which is compiled once
 * (kept_objects.h). Some have blocks for tensor cores alone. Those from FIRST_OF_SETS on are taken in turns by heads,
 * two and three. */
static const struct {
  int64_t n, block;
  int some; /* of a hundred pairs of blocks */
  bool causal;
} drawn_layouts[] = {
    {5, 64, 30, true},  {3, 64, 40, false},  {2, 128, 50, true}, {3, 192, 0, true},  {2, 128, 0, false},
    {4, 64, 100, true}, {5, 64, 40, true},   {3, 64, 50, false}, {2, 128, 0, false}, {2, 192, 0, true},
    {9, 16, 30, true},  {5, 32, 40, false},  {3, 48, 50, false}, {6, 32, 40, false}, {3, 128, 50, true},
    {3, 48, 0, true},   {2, 192, 100, true}, {7, 16, 60, false}, {3, 64, 20, false}, {3, 64, 70, false},
    {6, 32, 20, true},  {6, 32, 70, true},   {6, 32, 45, true},
};
enum { FIRST_OF_SETS = 18, ALL_LAYOUTS = sizeof drawn_layouts / sizeof *drawn_layouts };

/* The layouts, numbered as their text numbers them. */
static inline void draw_layouts(blocks all[ALL_LAYOUTS]) {
  for (int i = 0; i < ALL_LAYOUTS; i++) {
    all[i] = make_blocks(drawn_layouts[i].n, drawn_layouts[i].block, drawn_layouts[i].causal, drawn_layouts[i].some,
                         (uint64_t)i);
    all[i].layout.id = i + 1;
  }
}

static inline void free_layouts(blocks all[ALL_LAYOUTS]) {
  for (int i = 0; i < ALL_LAYOUTS; i++) free_blocks(&all[i]);
}

/* Kernels with the first `n` layouts, which run dense problems, too. */
static inline host_object device_open_with(const char *text, const blocks *all, int n, zpk_dtype dtype, int head,
                                           bool watch) {
  zp_arena *arena = zp_arena_new("test");
  host_object k = device_open_as(text_with(arena, text, all, n), dtype, head, watch);
  zp_arena_free(arena);
  return k;
}

/* With dropout, where it has some. */
static inline zpd_attention device_args(const problem *p) {
  zpd_attention a = zpr_attention_args(&p->a);
  zpr_add_dropout(&p->a.dropout, &a);
  return a;
}

/* On the plain f32 and f64 units. */
static inline void launch_plain_of(const host_object *k, const char *name, const zpd_attention *a, int64_t rows,
                                   int64_t heads) {
  device_launch(k, name, a, (rows + ZPD_ATTENTION_ROWS - 1) / ZPD_ATTENTION_ROWS, heads, a->B, ZPD_ATTENTION_THREADS);
}

static inline void launch_plain(const host_object *k, const zpd_attention *a) {
  launch_plain_of(k, "zpd_attention_forward", a, a->S, a->H);
  launch_plain_of(k, "zpd_attention_grad_q", a, a->S, a->H);
  launch_plain_of(k, "zpd_attention_grad_kv", a, zpr_keys_of(a), a->G);
}

static inline void run_plain_forward(const host_object *k, const problem *p) {
  zpd_attention a = device_args(p);
  launch_plain_of(k, "zpd_attention_forward", &a, a.S, a.H);
}

static inline void run_plain(const host_object *k, const problem *p) {
  zpd_attention a = device_args(p);
  launch_plain(k, &a);
}

static inline int64_t even(int64_t n) { return (n + 1) / 2 * 2; }

/* On tensor cores, as the runtime launches it; `head`: what the text was compiled for; rows: queries or keys of a
 * sample, whichever tiles are of. */
static inline void launch_mma(const host_object *k, const char *name, int kind, int head, const zpd_attention *a,
                              int64_t rows, int64_t heads, int block) {
  char symbol[64];
  int tile = zpd_mma_rows(kind, head, block);
  if (tile == zpd_mma_rows(kind, head, 0))
    snprintf(symbol, sizeof symbol, "%s", name);
  else
    snprintf(symbol, sizeof symbol, "%s_%d", name, tile);
  device_launch_with(k, symbol, a, (rows + tile - 1) / tile, heads, a->B, ZPD_ATTENTION_THREADS,
                     (unsigned)zpd_mma_shared_bytes(kind, head, tile, ZPD_MMA_SHARED_BYTES));
}

static inline void run_mma(const host_object *k, const problem *p, int head) {
  zpd_attention a = device_args(p);
  int block = p->a.layout ? (int)p->a.layout->block : 0;
  size_t bytes = (size_t)(8 * a.B * a.H * even(a.S));
  a.facts = aligned_alloc(32, (bytes + 31) / 32 * 32);
  memset(a.facts, 0xff, bytes);
  launch_mma(k, "zpd_mma_forward", ZPD_MMA_FORWARD, head, &a, a.S, a.H, block);
  launch_mma(k, "zpd_mma_grad_q", ZPD_MMA_GRAD_Q, head, &a, a.S, a.H, block);
  launch_mma(k, "zpd_mma_grad_kv", ZPD_MMA_GRAD_KV, head, &a, a.S, a.G, block);
  free(a.facts);
}

#endif
