/* SPDX-License-Identifier: Apache-2.0 */
/* A table of the products that were asked for: descriptors and the algorithm of each. */
#include "gpu_product.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
  gpu_shape shape;
  void *product, *a, *b, *c, *d; /* descriptors */
  gpu_algorithm algorithm;
} entry;

struct gpu_products {
  const gpu_api *api;
  void *handle;
  int n, room;
  entry *entries;
};

enum { NO_MEMORY = 3, NOT_SUPPORTED = 15 }; /* cublasStatus_t */

gpu_products *gpu_products_open(const gpu_api *api, int *status) {
  gpu_products *p = calloc(1, sizeof *p);
  *status = p ? api->blas_create(&p->handle) : NO_MEMORY;
  if (*status == 0) {
    p->api = api;
    return p;
  }
  free(p);
  return NULL;
}

static void release(const gpu_api *api, entry *e) {
  void *const layouts[] = {e->a, e->b, e->c, e->d};
  for (int i = 0; i < 4; i++)
    if (layouts[i]) api->release_layout(layouts[i]);
  if (e->product) api->release_product(e->product);
}

void gpu_products_close(gpu_products *p) {
  if (!p) return;
  for (int i = 0; i < p->n; i++) release(p->api, &p->entries[i]);
  p->api->blas_destroy(p->handle);
  free(p->entries);
  free(p);
}

/* ---- descriptors ---- */

static int make_layout(const gpu_api *api, void **layout, const gpu_shape *s, int64_t rows, int64_t cols, int64_t ld,
                       int64_t step, bool result) {
  int32_t count = (int32_t)s->count, type = result && s->sums ? GPU_F32 : s->type;
  int status = api->new_layout(layout, type, (uint64_t)rows, (uint64_t)cols, ld);
  if (status == 0 && count > 1) status = api->set_layout(*layout, GPU_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (status == 0 && count > 1) status = api->set_layout(*layout, GPU_LAYOUT_BATCH_STEP, &step, sizeof step);
  return status;
}

/* Tells where the epilogue's vector and matrix are: for every product, and before the heuristic, which reads their
 * alignment. */
static int set_places(const gpu_api *api, void *product, const gpu_operands *o) {
  void *bias = (void *)(uintptr_t)o->bias, *aux = (void *)(uintptr_t)o->aux;
  int status = bias ? api->set_product(product, GPU_PRODUCT_BIAS, &bias, sizeof bias) : 0;
  if (status == 0 && aux) status = api->set_product(product, GPU_PRODUCT_AUX, &aux, sizeof aux);
  return status;
}

static int make_product(const gpu_api *api, entry *e, const gpu_operands *o) {
  const gpu_shape *s = &e->shape;
  uint32_t epilogue = (uint32_t)s->epilogue;
  bool f64 = s->type == GPU_F64;
  int32_t trans_a = s->trans_a, trans_b = s->trans_b;
  int status =
      api->new_product(&e->product, f64 ? GPU_COMPUTE_F64 : GPU_COMPUTE_F32, f64 ? (int)GPU_F64 : (int)GPU_F32);
  if (status == 0) status = api->set_product(e->product, GPU_PRODUCT_TRANS_A, &trans_a, sizeof trans_a);
  if (status == 0) status = api->set_product(e->product, GPU_PRODUCT_TRANS_B, &trans_b, sizeof trans_b);
  if (status == 0) status = api->set_product(e->product, GPU_PRODUCT_EPILOGUE, &epilogue, sizeof epilogue);
  if (status == 0 && o->aux) status = api->set_product(e->product, GPU_PRODUCT_AUX_LD, &s->aux_ld, sizeof s->aux_ld);
  return status == 0 ? set_places(api, e->product, o) : status;
}

static int describe(const gpu_api *api, entry *e, const gpu_operands *o) {
  const gpu_shape *s = &e->shape;
  int status = make_product(api, e, o);
  if (status == 0)
    status = make_layout(api, &e->a, s, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->a_ld, s->a_step, false);
  if (status == 0)
    status = make_layout(api, &e->b, s, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->b_ld, s->b_step, false);
  if (status == 0) status = make_layout(api, &e->c, s, s->m, s->n, s->c_ld, s->d_step, true);
  if (status == 0) status = make_layout(api, &e->d, s, s->m, s->n, s->d_ld, s->d_step, true);
  return status;
}

/* ---- the algorithm ---- */

/* Where the inner dimension is divided, parts are kept and added in the type that sums have, in an order of their own:
 * not in the output's, which may have 16 bits. */
static int prefer(const gpu_api *api, void *preference, const entry *e, size_t workspace_bytes) {
  static const int alignment[] = {GPU_PREFER_ALIGNMENT_A, GPU_PREFER_ALIGNMENT_B, GPU_PREFER_ALIGNMENT_C,
                                  GPU_PREFER_ALIGNMENT_D};
  uint64_t workspace = workspace_bytes;
  uint32_t reductions = GPU_REDUCE_COMPUTE_TYPE;
  int status = api->set_preference(preference, GPU_PREFER_WORKSPACE_BYTES, &workspace, sizeof workspace);
  if (status == 0) status = api->set_preference(preference, GPU_PREFER_REDUCTIONS, &reductions, sizeof reductions);
  for (int i = 0; i < 4 && status == 0; i++) {
    uint32_t bytes = (uint32_t)e->shape.alignment[i];
    status = api->set_preference(preference, alignment[i], &bytes, sizeof bytes);
  }
  return status;
}

static int choose(gpu_products *p, entry *e, size_t workspace_bytes) {
  const gpu_api *api = p->api;
  void *preference = NULL;
  gpu_heuristic first = {0};
  int n = 0, status = api->new_preference(&preference);
  if (status == 0) status = prefer(api, preference, e, workspace_bytes);
  if (status == 0)
    status = api->choose_algorithm(p->handle, e->product, e->a, e->b, e->c, e->d, preference, 1, &first, &n);
  if (status == 0) status = n < 1 ? NOT_SUPPORTED : first.state;
  if (preference) api->release_preference(preference);
  e->algorithm = first.algorithm;
  return status;
}

/* ---- running ---- */

static entry *find(const gpu_products *p, const gpu_shape *shape) {
  for (int i = 0; i < p->n; i++)
    if (memcmp(&p->entries[i].shape, shape, sizeof *shape) == 0) return &p->entries[i];
  return NULL;
}

static int add(gpu_products *p, const gpu_shape *shape, const gpu_operands *o, size_t workspace_bytes, entry **added) {
  if (p->n == p->room) {
    int room = p->room > 0 ? 2 * p->room : 32;
    entry *more = realloc(p->entries, (size_t)room * sizeof *more);
    if (!more) return NO_MEMORY;
    p->entries = more;
    p->room = room;
  }
  entry *e = *added = &p->entries[p->n];
  *e = (entry){.shape = *shape};
  int status = describe(p->api, e, o);
  if (status == 0) status = choose(p, e, workspace_bytes);
  if (status == 0)
    p->n++;
  else
    release(p->api, e);
  return status;
}

/* The largest power of two that divides the address, up to what cudaMalloc gives. */
static int32_t alignment_of(gpu_pointer at) {
  enum { MOST = 256 };
  int32_t bytes = 1;
  while (bytes < MOST && at % (gpu_pointer)(2 * bytes) == 0) bytes *= 2;
  return bytes;
}

static gpu_shape key_of(const gpu_shape *shape, const gpu_operands *o) {
  gpu_shape key = *shape;
  const gpu_pointer at[] = {o->a, o->b, o->c, o->d, o->bias, o->aux};
  for (int i = 0; i < 6; i++) key.alignment[i] = alignment_of(at[i]);
  return key;
}

bool gpu_products_has(const gpu_products *p, const gpu_shape *shape, const gpu_operands *o) {
  gpu_shape key = key_of(shape, o);
  return find(p, &key);
}

int gpu_products_run(gpu_products *p, const gpu_shape *shape, const gpu_operands *o, gpu_pointer workspace,
                     size_t workspace_bytes, void *stream) {
  assert(shape->m >= 1 && shape->n >= 1 && shape->k >= 1 && shape->count >= 1 && shape->count <= INT32_MAX);
  gpu_shape key = key_of(shape, o);
  entry *e = find(p, &key);
  int status = e ? set_places(p->api, e->product, o) : add(p, &key, o, workspace_bytes, &e);
  if (status != 0) return status;
  const float one = 1, beta = o->add;
  const double one_f64 = 1, beta_f64 = o->add;
  bool f64 = key.type == GPU_F64;
  const void *alpha = f64 ? (const void *)&one_f64 : &one, *scale = f64 ? (const void *)&beta_f64 : &beta;
  return p->api->multiply(p->handle, e->product, alpha, o->a, e->a, o->b, e->b, scale, o->c, e->c, o->d, e->d,
                          &e->algorithm, workspace, workspace_bytes, stream);
}

/* ---- what was chosen ---- */

/* Those that a version of the library lacks are 0. The last two have 16 bits. */
static void settings_of(const gpu_products *p, const entry *e, uint32_t settings[GPU_ALGORITHM_SETTINGS]) {
  for (int i = 0; i < GPU_ALGORITHM_SETTINGS; i++) {
    size_t bytes = i < 7 ? sizeof(uint32_t) : sizeof(uint16_t), written = 0;
    settings[i] = 0; /* little endian: 16 bits of it, too */
    if (p->api->ask_algorithm(&e->algorithm, i, &settings[i], bytes, &written)) settings[i] = 0;
  }
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
  for (size_t i = 0; i < n; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(1099511628211);
  return hash;
}

uint64_t gpu_products_hash(const gpu_products *p) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (int i = 0; i < p->n; i++) {
    uint32_t settings[GPU_ALGORITHM_SETTINGS];
    settings_of(p, &p->entries[i], settings);
    hash = hash_bytes(hash_bytes(hash, &p->entries[i].shape, sizeof p->entries[i].shape), settings, sizeof settings);
  }
  return hash;
}

bool gpu_products_describe(const gpu_products *p, int i, char *text, size_t size) {
  if (i >= p->n) return false;
  const gpu_shape *s = &p->entries[i].shape;
  uint32_t a[GPU_ALGORITHM_SETTINGS];
  settings_of(p, &p->entries[i], a);
  snprintf(text, size,
           "\"m\": %lld, \"n\": %lld, \"k\": %lld, \"count\": %lld, \"trans\": [%d, %d], \"sums\": %s, "
           "\"epilogue\": %d, \"algorithm\": [%u, %u, %u, %u, %u, %u, %u, %u, %u]",
           (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->count, s->trans_a, s->trans_b,
           s->sums ? "true" : "false", s->epilogue, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
  return true;
}
