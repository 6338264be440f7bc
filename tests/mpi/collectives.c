/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the runtime against a naive computation, for one layout: collectives TENSOR PIPELINE DATA f32|f64.
 * Every rank can compute every rank's input, so each checks its own result, to the bit. Data lie in the arena, wherever
 * that is; the tests fill and read copies of the host. Prints nothing when all is well. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "../device/image.h"

enum { MICRO_BATCHES = 3 }; /* of test_pipeline */

/* Collectives go in pieces through memory that the runtime keeps for them. What is a little longer takes two. */
#ifdef ZPLAN_TEST_KERNELS
static int64_t piece_bytes(const zpr *c) { return zpr_window_bytes(c); }
#else
static int64_t piece_bytes(const zpr *c) { return (void)c, ZPR_STAGING_BYTES; }
#endif
enum { LONG = ZPR_STAGING_BYTES / 8 + 1001, LONG_ROUNDED = ZPR_STAGING_BYTES / 8 / 24 * 24 + 1200 };

static int failures;
enum { SPARE_BYTES = 8 * 700001, X_BYTES = 8 * SPARE_BYTES };
static char *buffer; /* of the host; the arena is laid out alike */

#define CHECK(what, ...)                                                                                               \
  do {                                                                                                                 \
    if (!(what)) {                                                                                                     \
      failures++;                                                                                                      \
      fprintf(stderr, "rank %d, line %d: ", c->rank, __LINE__);                                                        \
      fprintf(stderr, __VA_ARGS__);                                                                                    \
      fputc('\n', stderr);                                                                                             \
    }                                                                                                                  \
  } while (0)

/* Element i of a rank's input: rounding shows, because magnitudes differ. */
static double input(int rank, int64_t i) {
  static const double magnitude[] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6};
  uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 12345u;
  h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
  return ((double)h / 4294967296.0 - 0.5) * magnitude[h % 7];
}

static double get(const zpr *c, const void *x, int64_t i) {
  return c->program->dtype == ZPK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void put(const zpr *c, void *x, int64_t i, double value) {
  if (c->program->dtype == ZPK_F64)
    ((double *)x)[i] = value;
  else
    ((float *)x)[i] = (float)value;
}

static int node_of(const zpr *c, int rank) { return c->program->n_nodes ? rank / c->program->nodes[0].ranks : 0; }

/* ((x0 + x1) + x2) + ... in the dtype, of members first .. end - 1. */
static double sum_part(const zpr *c, const zpr_group *g, int64_t i, int first, int end) {
  if (c->program->dtype == ZPK_F64) {
    double sum = input(g->rank[first], i);
    for (int r = first + 1; r < end; r++) sum += input(g->rank[r], i);
    return sum;
  }
  float sum = (float)input(g->rank[first], i);
  for (int r = first + 1; r < end; r++) sum += (float)input(g->rank[r], i);
  return (double)sum;
}

static bool is_nccl(void) { return getenv("TEST_COMM") && strcmp(getenv("TEST_COMM"), "nccl") == 0; }

/* NCCL's own sums, which the emulated one makes in the order of the ranks. */
static bool by_nccl;

/* Members of a node of the group, where several nodes have equally many, and more than one; else all. */
static int members_of_nodes(const zpr *c, const zpr_group *g) {
  int members[8] = {0}, nodes = 0;
  if (by_nccl) return g->n;
  for (int r = 0; r < g->n; r++) nodes += members[node_of(c, g->rank[r])]++ == 0;
  for (int i = 0; i < 8; i++)
    if (members[i] > 0 && members[i] * nodes != g->n) return g->n;
  return nodes < g->n ? g->n / nodes : g->n;
}

/* In the order of the ranks: `local` of a node, then the nodes; over one node or uneven ones all of them. */
static double sum_in_order(const zpr *c, const zpr_group *g, int local, int64_t i) {
  double sum = sum_part(c, g, i, 0, local);
  for (int first = local; first < g->n; first += local) {
    double node = sum_part(c, g, i, first, first + local);
    sum = c->program->dtype == ZPK_F64 ? sum + node : (double)((float)sum + (float)node);
  }
  return sum;
}

/* A place of the host's buffer in the arena, and copies of elements between the two. */
static char *in_arena(const zpr *c, const void *host) { return c->arena + ((const char *)host - buffer); }

static void up(zpr *c, const void *x, int64_t elements) {
  to_arena(c, in_arena(c, x), x, elements * zpk_bytes(c->program->dtype));
}
static void down(zpr *c, void *x, int64_t elements) {
  from_arena(c, x, in_arena(c, x), elements * zpk_bytes(c->program->dtype));
}

static void fill(const zpr *c, void *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) put(c, x, i, input(c->rank, i));
}

/* Bytes that all ranks sent on an axis since the last call. Collective. */
static double newly_sent(zpr *c, zpr_axis axis) {
  static int64_t before[ZPR_AXIS_COUNT];
  int64_t now = zpr_comm_sent_bytes(c, axis);
  double sent = (double)(now - before[axis]);
  before[axis] = now;
  zpr_world_sum(c, &sent, 1);
  return sent;
}

/* What of them left its node, since the last call. Collective. */
static double newly_across(zpr *c, zpr_axis axis) {
  static int64_t before[ZPR_AXIS_COUNT];
  int64_t now = zpr_comm_across_bytes(c, axis);
  double sent = (double)(now - before[axis]);
  before[axis] = now;
  zpr_world_sum(c, &sent, 1);
  return sent;
}

/* Bytes of a pass over `count` elements of every group of the axis, all shares equal: out of each of N
 * even nodes N - 1 of N parts of it, directly from every member what others have alongside those in its node; of NCCL's
 * rings what all members at the end of a node send on. */
typedef enum pass { SUM, GATHER, DIRECT } pass;
static double across_of(zpr *c, const zpr_group *g, pass what, int64_t count) {
  int local = members_of_nodes(c, g);
  double mine = 0, chunk = (double)count / g->n * (double)zpk_bytes(c->program->dtype);
  if (what != DIRECT && is_nccl() && (what == GATHER || by_nccl))
    mine = node_of(c, g->rank[(g->me + 1) % g->n]) != node_of(c, c->rank) ? (g->n - 1) * chunk : 0;
  else if (what != DIRECT && local < g->n)
    mine = (g->n / local - 1) * chunk;
  else
    for (int r = 0; r < g->n; r++) mine += node_of(c, g->rank[r]) != node_of(c, c->rank) ? chunk : 0;
  zpr_world_sum(c, &mine, 1);
  return mine;
}

static void check_across(zpr *c, zpr_axis axis, double want, const char *what) {
  double sent = newly_across(c, axis);
  CHECK(fabs(sent - want) <= 1e-9 * want, "%s: %.0f bytes left their node, expected %.0f", what, sent, want);
}

static void check_sum(zpr *c, const zpr_group *g, const void *x, int64_t begin, int64_t end, int64_t shift) {
  const int local = members_of_nodes(c, g);
  for (int64_t i = begin; i < end; i++) {
    double want = sum_in_order(c, g, local, i + shift);
    if (get(c, x, i) == want) continue;
    CHECK(false, "element %lld is %.17g, expected %.17g", (long long)i, get(c, x, i), want);
    return;
  }
}

static void test_all_reduce(zpr *c, zpr_axis axis, void *x, int64_t count) {
  zpr_group g = zpr_axis_group(c, axis);
  by_nccl = is_nccl();
  fill(c, x, count);
  up(c, x, count);
  zpr_all_reduce(c, axis, in_arena(c, x), count);
  down(c, x, count);
  check_sum(c, &g, x, 0, count, 0);
  double groups = (double)c->ranks / g.n,
         want = 2.0 * (g.n - 1) * (double)(count * zpk_bytes(c->program->dtype)) * groups;
  double sent = newly_sent(c, axis);
  CHECK(sent == want, "all-reduce of %lld elements sent %.0f bytes, expected %.0f", (long long)count, sent, want);
  double across = across_of(c, &g, SUM, count) + across_of(c, &g, GATHER, count);
  if (count % g.n == 0)
    check_across(c, axis, across, "all-reduce");
  else
    newly_across(c, axis);
  by_nccl = false;
}

/* In the order of the ranks, or of the sums of nodes; what is not of the owner's node is rounded to bf16. */
static float rounded_sum(const zpr *c, const zpr_group *g, int64_t i, int64_t count) {
  int owner = 0, local = g->local > 0 ? g->local : 1;
  float sum = 0;
  while (zpr_chunk_piece(count, g->n, owner, 0, count).begin + zpr_chunk_piece(count, g->n, owner, 0, count).count <= i)
    owner++;
  for (int k = 0; k < g->n / local; k++) {
    float part = (float)sum_part(c, g, i, k * local, (k + 1) * local);
    uint16_t bits;
    if (node_of(c, g->rank[k * local]) != node_of(c, g->rank[owner])) {
      zpk_round(ZPK_BF16, &part, &bits, 1);
      zpk_widen(ZPK_BF16, &bits, &part, 1);
    }
    sum = k == 0 ? part : sum + part;
  }
  return sum;
}

/* Gradients that are rounded to leave a node: to the bit, the same on all ranks, and in how many bytes. */
static void test_rounded(zpr *c, zpr_program *program, void *x, int64_t count) {
  program->rounds_sums = true;
  zpr_group g = zpr_axis_group(c, ZPR_DATA);
  const bool rounds = zpr_rounds_sum(c, &g, ZPR_DATA);
  fill(c, x, count);
  up(c, x, count);
  zpr_group_all_reduce(c, &g, ZPR_DATA, ZPK_F32, in_arena(c, x), count);
  down(c, x, count);
  for (int64_t i = 0; i < count; i++) {
    float want = rounds ? rounded_sum(c, &g, i, count) : (float)sum_in_order(c, &g, members_of_nodes(c, &g), i);
    if (get(c, x, i) == (double)want) continue;
    CHECK(false, "rounded: element %lld of %lld is %.9g, expected %.9g", (long long)i, (long long)count, get(c, x, i),
          (double)want);
    break;
  }
  double halved = across_of(c, &g, SUM, count) / 2, all = (double)c->ranks / g.n, sent = newly_sent(c, ZPR_DATA),
         want = 2.0 * (g.n - 1) * (double)count * 4 * all - halved;
  CHECK(fabs(sent - want) <= 4 * c->ranks, "rounded: %.0f bytes sent, expected %.0f", sent, want);
  double across = across_of(c, &g, SUM, count) - halved + across_of(c, &g, GATHER, count);
  if (count % g.n == 0)
    check_across(c, ZPR_DATA, across, "rounded");
  else
    newly_across(c, ZPR_DATA);
  program->rounds_sums = false;
}

/* An element gets the same bits at another place of the buffer: what tied weights rely on. */
static void test_place(zpr *c, zpr_axis axis, void *x) {
  zpr_group g = zpr_axis_group(c, axis);
  enum { COUNT = 1000, SHIFT = 333 };
  by_nccl = is_nccl();
  for (int64_t i = 0; i < COUNT; i++) put(c, x, i, input(c->rank, i + SHIFT));
  up(c, x, COUNT);
  zpr_all_reduce(c, axis, in_arena(c, x), COUNT);
  down(c, x, COUNT);
  check_sum(c, &g, x, 0, COUNT, SHIFT);
  newly_sent(c, axis);
  newly_across(c, axis);
  by_nccl = false;
}

static void test_reduce_scatter(zpr *c, zpr_axis axis, void *x, int64_t shard) {
  zpr_group g = zpr_axis_group(c, axis);
  fill(c, x, shard * g.n);
  up(c, x, shard * g.n);
  zpr_group_reduce_scatter(c, &g, axis, c->program->dtype, in_arena(c, x), shard);
  down(c, x, shard * g.n);
  check_sum(c, &g, x, g.me * shard, (g.me + 1) * shard, 0);
  double groups = (double)c->ranks / g.n,
         want = (double)((g.n - 1) * g.n * shard * zpk_bytes(c->program->dtype)) * groups;
  double sent = newly_sent(c, axis);
  CHECK(sent == want, "reduce-scatter of %lld elements sent %.0f bytes, expected %.0f", (long long)shard, sent, want);
  check_across(c, axis, across_of(c, &g, SUM, shard * g.n), "reduce-scatter");
}

static void test_all_gather(zpr *c, zpr_axis axis, void *x, void *spare, int64_t count, bool in_place) {
  zpr_group g = zpr_axis_group(c, axis);
  int64_t size = zpk_bytes(c->program->dtype);
  void *in = in_place ? (char *)x + g.me * count * size : spare;
  fill(c, in, count);
  up(c, in, count);
  zpr_all_gather(c, axis, in_arena(c, in), count, in_arena(c, x));
  down(c, x, g.n * count);
  for (int64_t i = 0; i < g.n * count; i++) {
    double want = input(g.rank[i / count], i % count);
    if (c->program->dtype == ZPK_F32) want = (double)(float)want;
    if (get(c, x, i) == want) continue;
    CHECK(false, "gathered element %lld is wrong", (long long)i);
    break;
  }
  double groups = (double)c->ranks / g.n, want = (double)((g.n - 1) * g.n * count * size) * groups;
  double sent = newly_sent(c, axis);
  CHECK(sent == want, "all-gather of %lld elements sent %.0f bytes, expected %.0f", (long long)count, sent, want);
  check_across(c, axis, across_of(c, &g, GATHER, count * g.n), "all-gather");
}

/* Shares of 3 samples: gathered, every sample has the members' shares side by side; and whole samples of which every
 * member has a part, summed in rank order to the member's share, the parts left as they were. */
static void test_sequence(zpr *c, char *x, int64_t elements) {
  enum { SAMPLES = 3 };
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t size = zpk_bytes(c->program->dtype), all = SAMPLES * g.n * elements;
  char *whole = x + SAMPLES * elements * size, *share = whole + all * size;
  by_nccl = is_nccl();
  fill(c, x, SAMPLES * elements);
  up(c, x, SAMPLES * elements);
  zpr_all_gather_sequence(c, in_arena(c, x), SAMPLES, elements, in_arena(c, whole));
  down(c, whole, all);
  bool right = true;
  for (int64_t i = 0; i < all; i++) {
    double want = input(g.rank[i / elements % g.n], i / elements / g.n * elements + i % elements);
    right &= get(c, whole, i) == (c->program->dtype == ZPK_F32 ? (double)(float)want : want);
  }
  CHECK(right, "gathered shares of %lld elements are wrong", (long long)elements);
  fill(c, whole, all);
  up(c, whole, all);
  zpr_reduce_scatter_sequence(c, in_arena(c, whole), SAMPLES, elements, in_arena(c, share));
  down(c, share, SAMPLES * elements);
  for (int64_t b = 0; b < SAMPLES; b++)
    check_sum(c, &g, share + b * elements * size, 0, elements, (b * g.n + g.me) * elements);
  down(c, whole, all);
  for (int64_t i = 0; i < all; i++) {
    double want = input(c->rank, i);
    right &= get(c, whole, i) == (c->program->dtype == ZPK_F32 ? (double)(float)want : want);
  }
  CHECK(right, "the parts of %lld elements were changed", (long long)elements);
  double want = 2.0 * (double)(c->ranks * (g.n - 1) * SAMPLES * elements * size), sent = newly_sent(c, ZPR_TENSOR);
  CHECK(sent == want, "shares of %lld elements sent %.0f bytes, expected %.0f", (long long)elements, sent, want);
  double across = across_of(c, &g, SUM, g.n * elements) + across_of(c, &g, GATHER, g.n * elements);
  check_across(c, ZPR_TENSOR, SAMPLES * across, "shares");
  by_nccl = false;
}

/* Slots of 3 samples and 2 experts a rank: what member m has for my expert j stands at [sample][j][m] here; and
 * back. */
static void test_exchange(zpr *c, char *x, int64_t elements) {
  enum { SAMPLES = 3, EXPERTS = 2 };
  zpr_group g = zpr_axis_group(c, ZPR_EXPERT);
  int64_t block = EXPERTS * elements, count = SAMPLES * g.n * block, size = zpk_bytes(c->program->dtype);
  char *there = x + count * size, *back = there + count * size;
  fill(c, x, count);
  up(c, x, count);
  zpr_spread_slots(c, in_arena(c, x), SAMPLES, EXPERTS, elements, in_arena(c, there));
  down(c, there, count);
  for (int64_t i = 0; i < count; i++) {
    int64_t e = i % elements, m = i / elements % g.n, j = i / elements / g.n % EXPERTS,
            b = i / elements / g.n / EXPERTS;
    double want = input(g.rank[m], (b * g.n + g.me) * block + j * elements + e);
    if (c->program->dtype == ZPK_F32) want = (double)(float)want;
    if (get(c, there, i) == want) continue;
    CHECK(false, "spread element %lld is wrong", (long long)i);
    break;
  }
  zpr_return_slots(c, in_arena(c, there), SAMPLES, EXPERTS, elements, in_arena(c, back));
  down(c, back, count);
  CHECK(memcmp(x, back, (size_t)(count * size)) == 0, "%lld elements did not come back", (long long)count);
  double want = 2.0 * (double)(c->ranks * (g.n - 1) * SAMPLES * block * size), sent = newly_sent(c, ZPR_EXPERT);
  CHECK(sent == want, "exchanges of %lld elements sent %.0f bytes, expected %.0f", (long long)count, sent, want);
  check_across(c, ZPR_EXPERT, 2 * across_of(c, &g, DIRECT, count), "exchanges");
}

enum { ROW_EXPERTS = 2, CHOICES = 60 };

/* Where member m's rows for expert e begin: more and more of them, and less for the first ones with every member; or
 * all are for the second expert, and every other has none. */
static int32_t first_row(const zpr_group *g, int m, int64_t e, bool skewed) {
  int64_t n = g->n * ROW_EXPERTS;
  if (skewed || e == n) return e > 1 ? CHOICES : 0;
  return (int32_t)(CHOICES * e * (e + m) / (n * (n - 1 + m)));
}

/* Rows sorted by expert go to its rank, in the order of the members, and come back; what is left is zero. */
static void test_rows(zpr *c, char *x, int64_t cols, bool skewed) {
  zpr_group g = zpr_axis_group(c, ZPR_EXPERT);
  int64_t n = g.n * ROW_EXPERTS, size = zpk_bytes(c->program->dtype), own = CHOICES * cols, room = g.n * own, at = 0;
  zpr_spread s = {.experts = ROW_EXPERTS, .choices = CHOICES, .room = g.n * CHOICES};
  int32_t first[64] = {0}, counts[256];
  char *there = x + own * size, *back = there + room * size;
  double routed = (double)-zpr_comm_routed_bytes(c);
  for (int64_t e = 0; e < n; e++) first[e] = first_row(&g, g.me, e, skewed);
  fill(c, x, own);
  zpr_spread_counts(c, &s, first, 256, counts);
  zpr_spread_rows(c, &s, counts, x, cols, there);
  for (int64_t e = g.me * ROW_EXPERTS; e < (g.me + 1) * ROW_EXPERTS; e++)
    for (int m = 0; m < g.n; m++)
      for (int64_t i = first_row(&g, m, e, skewed) * cols; i < first_row(&g, m, e + 1, skewed) * cols; i++, at++) {
        double want = input(g.rank[m], i);
        if (c->program->dtype == ZPK_F32) want = (double)(float)want;
        if (get(c, there, at) != want)
          CHECK(false, "element %lld of expert %lld is wrong", (long long)at, (long long)e);
      }
  CHECK(at == counts[ROW_EXPERTS] * cols, "%d rows came, expected %lld elements", counts[ROW_EXPERTS], (long long)at);
  for (; at < room; at++)
    if (get(c, there, at) != 0) CHECK(false, "element %lld after the last row is not zero", (long long)at);
  zpr_return_rows(c, &s, counts, there, cols, back);
  CHECK(memcmp(x, back, (size_t)(own * size)) == 0, "%d rows did not come back", CHOICES);
  routed += (double)zpr_comm_routed_bytes(c);
  zpr_world_sum(c, &routed, 1);
  double told = (double)(c->ranks * (g.n - 1) * ROW_EXPERTS * 4), sent = newly_sent(c, ZPR_EXPERT);
  CHECK(sent == routed + told, "%.0f bytes were sent, %.0f of rows are counted", sent, routed);
  if (skewed) /* what leaves the other ranks comes back */
    CHECK(routed == 2.0 * (double)(c->ranks / g.n * (g.n - 1) * own * size), "%.0f bytes of rows", routed);
}

/* Several micro-batches travel up, then down, the next one sent while the last may still be on its way. What was
 * received is checked only at the end: nothing waits between two of them. */
static void test_pipeline(zpr *c, char *x, int64_t count) {
  enum { SEND_BUFFERS = 2 };
  int P = c->program->pipeline;
  int64_t size = zpk_bytes(c->program->dtype);
  for (int direction = 0; direction < 2; direction++) {
    bool upwards = direction == 0;
    for (int64_t mb = 0; mb < MICRO_BATCHES; mb++) {
      if (upwards ? c->p > 0 : c->p + 1 < P)
        zpr_recv(c, 0, upwards, in_arena(c, x + (SEND_BUFFERS + mb) * count * size), count, mb);
      if (upwards ? c->p + 1 < P : c->p > 0) {
        char *out = x + mb % SEND_BUFFERS * count * size;
        if (mb > 0) zpr_send_wait(c, 0, upwards, mb - 1);
        for (int64_t i = 0; i < count; i++) put(c, out, i, input(c->rank, i + mb));
        up(c, out, count);
        zpr_send(c, 0, upwards, in_arena(c, out), count, mb);
      }
    }
    for (int64_t mb = 0; mb < MICRO_BATCHES && (upwards ? c->p > 0 : c->p + 1 < P); mb++) {
      char *received = x + (SEND_BUFFERS + mb) * count * size;
      int from = c->rank + (upwards ? -1 : 1) * c->program->tensor * c->program->data;
      double want = input(from, count - 1 + mb);
      if (c->program->dtype == ZPK_F32) want = (double)(float)want;
      down(c, received, count);
      CHECK(get(c, received, count - 1) == want, "message of micro-batch %lld is wrong", (long long)mb);
    }
    zpr_send_wait(c, 0, upwards, MICRO_BATCHES - 1);
  }
  double want = 2.0 * MICRO_BATCHES * (double)(count * size) * (P - 1) * c->program->tensor * c->program->data;
  double sent = newly_sent(c, ZPR_PIPELINE);
  CHECK(sent == want, "pipeline sent %.0f bytes, expected %.0f", sent, want);
}

static void test_tie(zpr *c, void *x) {
  enum { COUNT = 777 };
  zpr_group g = zpr_tie_group(c, 0);
  fill(c, x, COUNT);
  up(c, x, COUNT);
  zpr_group_all_reduce(c, &g, ZPR_TIE, c->program->dtype, in_arena(c, x), COUNT);
  down(c, x, COUNT);
  if (g.n > 1) check_sum(c, &g, x, 0, COUNT, 0);
  bool tied = c->program->pipeline > 1;
  double want = tied ? 2.0 * COUNT * (double)zpk_bytes(c->program->dtype) * c->program->tensor * c->program->data : 0;
  double sent = newly_sent(c, ZPR_TIE);
  CHECK(sent == want, "tie sent %.0f bytes, expected %.0f", sent, want);
}

static void test_control(zpr *c) {
  double sums[2] = {c->rank + 0.5, 1};
  zpr_world_sum(c, sums, 2);
  int n = c->ranks;
  CHECK(sums[0] == n * (n - 1) / 2.0 + 0.5 * n && sums[1] == n, "world sum is %g, %g", sums[0], sums[1]);
  zpr_group data = zpr_axis_group(c, ZPR_DATA);
  int64_t *counts = calloc(100000, sizeof *counts), wrong = 0; /* two rounds of them, each beyond what f64 holds */
  for (int64_t i = 0; i < 100000; i++) counts[i] = ((int64_t)1 << 54) + data.me * i;
  zpr_sum_counts(c, &data, counts, 100000);
  for (int64_t i = 0; i < 100000; i++)
    wrong += counts[i] != data.n * ((int64_t)1 << 54) + data.n * (data.n - 1) / 2 * i;
  CHECK(wrong == 0, "%lld of 100000 counts are wrong", (long long)wrong);
  free(counts);
  CHECK(zpr_world_min(c, 100 - c->rank) == 100 - (n - 1), "world minimum is wrong");
  CHECK(zpr_ranks_on_host(c) == n, "all ranks run on this host");
}

static double cpu_s(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double clock_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Ranks that wait a second for another one must leave the cores alone; longer, where the other one is kept from
 * them. */
static void test_waiting(zpr *c) {
  zpr_barrier(c);
  double before = cpu_s(), began = clock_s();
  if (c->rank == 0) usleep(1000000);
  zpr_barrier(c);
  double used = cpu_s() - before, waited = clock_s() - began;
  CHECK(used < 0.2 * waited, "waited %.2f s with %.2f s of CPU time", waited, used);
}

/* Elements of every rank. */
static void test_shares(zpr *c, zpr_axis axis, void *x, void *spare, int64_t count) {
  test_reduce_scatter(c, axis, x, count);
  test_all_gather(c, axis, x, spare, count, true);
  test_all_gather(c, axis, x, spare, count, false);
}

static void test_axis(zpr *c, zpr_axis axis, void *x, void *spare) {
  static const int64_t counts[] = {0, 1, 2, 3, 5, 1000};
  const int64_t members = zpr_axis_group(c, axis).n;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    test_all_reduce(c, axis, x, counts[i]);
    test_shares(c, axis, x, spare, counts[i]);
  }
  if (members > 1) { /* alone nothing moves, however long it is */
    test_all_reduce(c, axis, x, LONG);
    test_shares(c, axis, x, spare, piece_bytes(c) / zpk_bytes(c->program->dtype) / members + 101);
  }
  test_place(c, axis, x);
}

int main(int argc, char **argv) {
  if (argc != 5 && argc != 6) {
    fprintf(stderr, "usage: %s TENSOR PIPELINE DATA f32|f64 [EXPERT]\n", argv[0]);
    return 2;
  }
  zpr context, *c = &context;
  zpr_stage stages[8] = {0};
  for (int i = 0; i < 8; i++) stages[i].arena_bytes = X_BYTES + SPARE_BYTES;
  zpr_nodes nodes = {8, getenv("TEST_NODE") ? atoi(getenv("TEST_NODE")) : 8};
  zpr_program program = {.name = "collectives",
                         .tensor = atoi(argv[1]),
                         .pipeline = atoi(argv[2]),
                         .data = atoi(argv[3]),
                         .microbatches = MICRO_BATCHES};
  if (getenv("TEST_NODE")) program.n_nodes = 1, program.nodes = &nodes; /* so many ranks a node */
  if (argc == 6) program.expert = atoi(argv[5]);
  program.dtype = strcmp(argv[4], "f64") == 0 ? ZPK_F64 : ZPK_F32;
  program.stages = stages;
  int tied_stages[2] = {0, program.pipeline - 1};
  int64_t offsets[2] = {0, 0};
  zpr_tie tie = {.name = "tied", .n_stages = program.pipeline > 1 ? 2 : 1, .stages = tied_stages, .offset = offsets};
  program.ties = &tie;
  program.n_ties = 1;
  device_image(&program);
  zpr_options options = zpr_default_options;
  options.comm = getenv("TEST_COMM");
  zpr_open(c, &program, &options, &argc, &argv);
  char *x = buffer = calloc(1, X_BYTES + SPARE_BYTES), *spare = x + X_BYTES;
  if (!x) zpr_fail(c, "Z0822", "cannot get memory");
  test_axis(c, ZPR_TENSOR, x, spare);
  test_axis(c, ZPR_DATA, x, spare);
  for (int i = 0; i < 3 && program.dtype == ZPK_F32; i++)
    test_rounded(c, &program, x, (const int64_t[]){5, 1200, LONG_ROUNDED}[i]);
  test_sequence(c, x, 1);
  if (program.tensor > 1) test_sequence(c, x, 77001);
  test_exchange(c, x, 1);
  if (program.expert > 1) test_exchange(c, x, 77001); /* more than the staging buffer holds */
  test_rows(c, x, 3, false);
  test_rows(c, x, 3, true);
  test_rows(c, x, 6007, true); /* more than the staging buffer holds, of one expert */
  if (program.expert > 1)      /* of several: pieces end inside experts */
    test_rows(c, x, X_BYTES / (8 * CHOICES * (program.expert + 2)), false);
  test_pipeline(c, x, 5);
  test_pipeline(c, x, 400000);
  test_tie(c, x);
  test_control(c);
  if (getenv("TEST_WAITING")) test_waiting(c);
  double all = failures;
  zpr_world_sum(c, &all, 1);
  free(x);
  zpr_close(c);
  return all > 0;
}
