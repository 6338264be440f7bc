/* SPDX-License-Identifier: Apache-2.0 */
/* einsum: an equation of letters, lowered to the products and sums that there are. What it would need besides is
 * refused. */
#include "builtins.h"

typedef struct equation {
  const char *a, *b, *out; /* letters; b NULL: one operand */
} equation;

static const char *const HELP =
    "built are products with a parameter, \"bsd,df->bsf\", \"bsd,fd->bsf\" and of experts \"becd,edf->becf\"; "
    "elementwise "
    "ones, \"bsd,d->bsd\" and \"bsd,sd->bsd\"; those summed over the positions or the columns; sums, \"bsd->bs\"; "
    "and \"bsd->bds\"";

static bool wrong(zp_elab *e, const zp_slot *slot, const char *why) {
  zp_diag *d = zp_report(e->diags, ZP_Z0237, slot->value.span, "`equation` of `einsum`: %s", why);
  zp_diag_help(d, "an equation has a letter for every dimension, as in \"bsd,df->bsf\"");
  return false;
}

/* Letters, each once, up to `end`. */
static const char *letters(zp_elab *e, const char *from, const char *end) {
  char *text = zp_alloc(e->arena, (size_t)(end - from) + 1);
  int n = 0;
  for (const char *c = from; c < end; c++) {
    if (*c == ' ') continue;
    if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z'))) return NULL;
    for (int i = 0; i < n; i++)
      if (text[i] == *c) return NULL;
    text[n++] = *c;
  }
  text[n] = 0;
  return text;
}

static bool parse(zp_elab *e, const zp_slot *slot, equation *q) {
  if (slot->value.kind != ZP_VAL_STRING) return wrong(e, slot, "it is a string");
  const char *text = slot->value.text, *arrow = strstr(text, "->"), *comma = strchr(text, ',');
  if (!arrow) return wrong(e, slot, "it says what comes out after \"->\"");
  if (comma > arrow) return wrong(e, slot, "what comes out is one tensor");
  q->a = letters(e, text, comma ? comma : arrow);
  q->b = comma ? letters(e, comma + 1, arrow) : NULL;
  q->out = letters(e, arrow + 2, arrow + strlen(arrow));
  if (!q->a || (comma && !q->b) || !q->out) return wrong(e, slot, "dimensions are letters, each once in an operand");
  return true;
}

/* The letters without the one in place i. */
static bool is_without(const char *out, const char *all, size_t i) {
  size_t n = strlen(all);
  return i < n && strlen(out) == n - 1 && strncmp(out, all, i) == 0 && strcmp(out + i, all + i + 1) == 0;
}

static bool ends_with(const char *all, const char *end) {
  size_t n = strlen(all), m = strlen(end);
  return m > 0 && m <= n && strcmp(all + n - m, end) == 0;
}

/* Is out = x with its last letter k become n, and the matrix, after `experts` letters, kn or nk? */
static bool is_product(const equation *q, size_t experts, bool *trans) {
  size_t n = strlen(q->a), m = strlen(q->out);
  if (n != m || strlen(q->b) != experts + 2 || n < 2 || strncmp(q->a, q->out, n - 1) != 0) return false;
  char k = q->a[n - 1], j = q->out[n - 1];
  const char *w = q->b + experts;
  *trans = w[1] == k;
  return j != k && ((w[0] == k && w[1] == j) || (w[0] == j && w[1] == k));
}

static bool refuse(zp_elab *e, const zp_slot *slot) {
  zp_diag *d = zp_report(e->diags, ZP_Z0216, slot->value.span, "`einsum` of \"%s\" is known but not built yet",
                         slot->value.text);
  zp_diag_help(d, "%s", HELP);
  return false;
}

/* x summed, or turned over, as the letters say; *built: that is one of the sums that there are. */
static bool sum(zp_elab *e, const zp_expr *call, const char *all, const char *out, zp_value *x, bool *built) {
  zp_value in = *x;
  *built = true;
  if (strcmp(all, out) == 0) return true;
  if (strlen(all) == 3 && strlen(out) == 3 && out[0] == all[0] && out[1] == all[2] && out[2] == all[1])
    return zp_elab_apply(e, call, ZP_OP_TRANSPOSE, &in, 1, (zp_op_attr){0}, "einsum", x);
  bool columns = is_without(out, all, 2), positions = is_without(out, all, 1);
  *built = strlen(all) == 3 && (columns || positions);
  if (!*built) return false;
  zp_op_attr attr = {.value = 1, .reduction = ZP_REDUCE_SUM};
  return zp_elab_apply(e, call, columns ? ZP_OP_REDUCE_COLUMNS : ZP_OP_MEAN, &in, 1, attr, "einsum", x);
}

static bool has_letters(zp_elab *e, const zp_slot *slot, const zp_value *x, const char *of) {
  zp_shape shape = zp_elab_value_shape(e, x);
  if (shape.rank == (int)strlen(of)) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0209, slot->value.span, "\"%s\" has %d letters, and the operand is %s", of,
                         (int)strlen(of), zp_shape_text(e->arena, &shape));
  zp_diag_help(d, "a letter for every dimension");
  return false;
}

static bool two(zp_elab *e, const zp_expr *call, const zp_slot *text, equation q, zp_value *in, zp_value *value) {
  bool trans = false, built;
  if (e->handles.data[in[0].tensor].kind == ZP_HANDLE_PARAM) { /* the parameter stands second */
    zp_value first = in[0];
    in[0] = in[1], in[1] = first;
    const char *letters_of_first = q.a;
    q.a = q.b, q.b = letters_of_first;
  }
  if (is_product(&q, 0, &trans))
    return zp_elab_apply(e, call, ZP_OP_MATMUL, in, 2, (zp_op_attr){.trans = trans}, "einsum", value);
  if (strlen(q.a) == 4 && strlen(q.b) == 3 && q.b[0] == q.a[1] && is_product(&q, 1, &trans))
    return zp_elab_apply(e, call, ZP_OP_BATCHED_MATMUL, in, 2, (zp_op_attr){.trans = trans}, "einsum", value);
  size_t n = strlen(q.a);
  bool summed = n == 3 && (is_without(q.out, q.a, 1) || is_without(q.out, q.a, 2));
  if (!ends_with(q.a, q.b) || (strcmp(q.out, q.a) != 0 && !summed)) return refuse(e, text);
  return zp_elab_apply(e, call, ZP_OP_MUL, in, 2, (zp_op_attr){0}, "einsum", value) &&
         sum(e, call, q.a, q.out, value, &built);
}

bool zp_apply_einsum(zp_elab *e, zp_call *call, zp_value *value) {
  static const char *const operands[] = {"a", "b"};
  const zp_slot *text = zp_call_slot(call, "equation");
  equation q;
  bool built;
  if (!parse(e, text, &q)) return false;
  for (int i = 0; i < (q.b ? 2 : 1); i++) {
    const zp_slot *slot = zp_call_slot(call, operands[i]);
    if (!zp_call_requires(e, call, operands[i]) || !zp_call_is_tensor(e, call, operands[i])) return false;
    if (!has_letters(e, slot, &slot->value, i == 0 ? q.a : q.b)) return false;
    call->in[call->n_in++] = slot->value;
  }
  if (!q.b && zp_call_slot(call, "b")->given) return wrong(e, text, "it has one operand, and the call two");
  if (q.b) return two(e, call->expr, text, q, call->in, value);
  *value = call->in[0];
  bool ok = sum(e, call->expr, q.a, q.out, value, &built);
  return built ? ok : refuse(e, text);
}
