/* SPDX-License-Identifier: Apache-2.0 */
/* What values are called in texts, and the words that explain the names. Names come from the model where it has one: of
 * operands and results, "ln_1"; with what expand.c says of a part, "ln_1_mean"; of a gradient, "d_ln_1". A value that
 * nothing names is called by its operation and operands: "x_plus_c_fc_bias". No name is a number, and none stands twice
 * in a program. Names are no part of a program's identity: kernels are shared between nodes, under the names of the
 * first. */
#include <assert.h>
#include <ctype.h>
#include <string.h>
#include "rowprog.h"

/* Longer ones are called by their operation alone. */
enum { MAX_NAME = 40 };

/* `name`: what the result is called, with a and b for the operands; `plain`: without them. */
static const struct {
  const char *name, *plain, *words;
} of_op[ZP_ROW_OP_COUNT] = {
    [ZP_ROW_IMM] = {"constant", "constant", "a number"},
    [ZP_ROW_UNKNOWN] = {"unknown", "unknown", "not kept from forward"},
    [ZP_ROW_ROWS] = {"x", "x", "operand, of the row"},
    [ZP_ROW_COLUMNS] = {"per_column", "per_column", "operand, the same for all rows"},
    [ZP_ROW_POSITION] = {"per_position", "per_position", "operand, of the row's position in its sample"},
    [ZP_ROW_KEEP] = {"keep", "keep", "0, or what makes up for the columns that are dropped"},
    [ZP_ROW_COS] = {"turn_cos", "turn_cos", "cosine of the rotary angle"},
    [ZP_ROW_SIN] = {"turn_sin", "turn_sin", "sine of the rotary angle, negative in the first column of a pair"},
    [ZP_ROW_NEG] = {"minus_a", "negated", "with the other sign"},
    [ZP_ROW_ADD] = {"a_plus_b", "added", "two values added"},
    [ZP_ROW_SUB] = {"a_less_b", "difference", "one value less another"},
    [ZP_ROW_MUL] = {"a_times_b", "product", "two values multiplied"},
    [ZP_ROW_DIV] = {"a_over_b", "quotient", "one value divided by another"},
    [ZP_ROW_EXP] = {"exp_a", "exponential", "e to the power of a value"},
    [ZP_ROW_LOG] = {"log_a", "logarithm", "natural logarithm"},
    [ZP_ROW_SQRT] = {"root_a", "root", "square root"},
    [ZP_ROW_RSQRT] = {"inverse_root_a", "inverse_root", "1 divided by the square root"},
    [ZP_ROW_TANH] = {"tanh_a", "hyperbolic", "hyperbolic tangent"},
    [ZP_ROW_SIGMOID] = {"logistic_a", "logistic", "1 / (1 + exp(-x)), between 0 and 1"},
    [ZP_ROW_ERF] = {"erf_a", "error_integral", "error function"},
    [ZP_ROW_CAST_BF16] = {"a_as_bf16", "as_bf16", "rounded to bf16"},
    [ZP_ROW_CAST_F16] = {"a_as_f16", "as_f16", "rounded to f16"},
    [ZP_ROW_CAST_F32] = {"a_as_f32", "as_f32", "rounded to f32"},
    [ZP_ROW_SELECT_LE] = {"chosen", "chosen", "one of two values, by a comparison"},
    [ZP_ROW_SWAP] = {"pair_of_a", "pair", "the other column of the pair"},
    [ZP_ROW_RSUM] = {"total_a", "total", "sum over the columns of the row"},
    [ZP_ROW_RMAX] = {"largest_a", "largest", "largest column of the row"},
    [ZP_ROW_RLSE] = {"log_total_exp_a", "log_total", "log of the sum of exp"},
};

/* ---- names from the model ---- */

/* Names that say nothing without what stands before them: the compiler's own, and what blocks call their parameters. */
static bool is_general(const char *name) {
  static const char *const general[] = {"weight",  "bias", "matmul", "sum",  "enter",  "add",      "sub",    "mul",
                                        "div",     "neg",  "scale",  "zero", "number", "gathered", "spread", "returned",
                                        "reduced", "norm", "lse",    "slot", "y",      "x",        "grad"};
  for (size_t i = 0; i < sizeof general / sizeof *general; i++)
    if (strcmp(general[i], name) == 0) return true;
  return isdigit((unsigned char)*name);
}

/* What kernels call other things, and the beginnings of such names. */
static bool is_taken(const char *name) {
  static const char *const own[] = {
      "a",        "c",        "i",       "w",        "row",      "end",       "pair",     "real",     "elem",
      "warp",     "sum",      "chunk",   "thread",   "stream",   "sample",    "position", "auto",     "break",
      "case",     "char",     "const",   "continue", "default",  "do",        "double",   "else",     "enum",
      "extern",   "float",    "for",     "goto",     "if",       "int",       "long",     "register", "return",
      "short",    "signed",   "sizeof",  "static",   "struct",   "switch",    "typedef",  "union",    "unsigned",
      "void",     "volatile", "while",   "bool",     "true",     "false",     "inline",   "restrict", "class",
      "new",      "delete",   "this",    "template", "operator", "namespace", "private",  "public",   "protected",
      "virtual",  "using",    "try",     "catch",    "throw",    "and",       "or",       "not",      "xor",
      "typename", "friend",   "mutable", "export",   "blockIdx", "threadIdx", "gridDim",  "blockDim", "asm",
      "signbit",  "isnan",    "isinf",   "k",        "at",       "from",      "to",       "first",    "packs",
      "columns",  "of_warps"};
  static const char *const beginnings[] = {"in_",   "out_",  "sum_",   "partial_", "kept_", "factor_", "cos_", "sin_",
                                           "held_", "pack_", "other_", "result_",  "zpd_",  "ZPD_",    "_"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strcmp(own[i], name) == 0) return true;
  for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
    if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0) return true;
  return false;
}

const char *zp_row_short_name(zp_arena *arena, const char *path) {
  static const char gradient[] = ".grad";
  if (!path || !*path) return "value";
  size_t length = strlen(path), tail = strlen(gradient);
  if (length > tail && strcmp(path + length - tail, gradient) == 0)
    return zp_format(arena, "d_%s", zp_row_short_name(arena, zp_strndup(arena, path, length - tail)));
  const char *hole = strstr(path, "{}."), *start = hole ? hole + 3 : path, *last = start + strlen(start);
  do { /* from the end to the first part that says something */
    while (last > start && last[-1] == '.') last--;
    while (last > start && last[-1] != '.') last--;
    const char *end = last + strcspn(last, ".");
    if (!is_general(zp_strndup(arena, last, (size_t)(end - last)))) break;
  } while (last > start);
  char *name = zp_strdup(arena, last);
  for (char *p = name; *p; p++)
    if (!isalnum((unsigned char)*p)) *p = '_';
  if (!strpbrk(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")) return "value";
  return is_taken(name) || isdigit((unsigned char)*name) ? zp_format(arena, "value_%s", name) : name;
}

int zp_row_named(zp_row_program *program, int v, const char *name, const char *words) {
  zp_row_value *value = &program->values.data[v];
  bool is_operand = zp_row_args(value->op) == 0 && value->op != ZP_ROW_KEEP;
  if (!value->name && !is_operand) {
    value->name = name;
    value->words = words;
  }
  return v;
}

int zp_row_part(zp_row_program *program, int v, const char *part, const char *words) {
  if (!program->scope) return v;
  return zp_row_named(program, v, zp_format(program->arena, "%s_%s", program->scope, part), words);
}

/* ---- names for all values ---- */

static const char *argument_name(const zp_row_program *program, const zp_row_value *v, int k) {
  const zp_row_value *arg = &program->values.data[v->arg[k]];
  return arg->op == ZP_ROW_IMM ? "constant" : arg->name;
}

/* The name of an operation with its operands in it. */
static const char *composed(const zp_row_program *program, const zp_row_value *v) {
  if (v->op == ZP_ROW_MUL && v->arg[0] == v->arg[1])
    return zp_format(program->arena, "%s_squared", argument_name(program, v, 0));
  bool constant = zp_row_args(v->op) == 2 && program->values.data[v->arg[1]].op == ZP_ROW_IMM;
  if (constant && (v->op == ZP_ROW_MUL || v->op == ZP_ROW_ADD))
    return zp_format(program->arena, v->op == ZP_ROW_MUL ? "%s_scaled" : "%s_shifted", argument_name(program, v, 0));
  const char *name = "";
  for (const char *p = of_op[v->op].name; *p;) {
    size_t n = strcspn(p, "_");
    bool letter = n == 1 && (*p == 'a' || *p == 'b') && zp_row_args(v->op) > 0;
    const char *word = letter ? argument_name(program, v, *p - 'a') : zp_strndup(program->arena, p, n);
    name = zp_format(program->arena, "%s%s%s", name, *name ? "_" : "", word);
    p += n + (p[n] == '_');
  }
  return name;
}

static bool is_used(const zp_row_program *program, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (program->values.data[i].name && strcmp(program->values.data[i].name, name) == 0) return true;
  return false;
}

/* The name, or with a word after it when an earlier value has it: "whole" is what a gradient is after others. */
static const char *unique(const zp_row_program *program, int count, const char *name) {
  static const char *const words[] = {"whole", "also", "too", "again", "besides", "further", "still", "yet", "more"};
  if (!is_used(program, count, name)) return name;
  for (size_t i = strncmp(name, "d_", 2) == 0 ? 0 : 1; i < sizeof words / sizeof *words; i++) {
    const char *other = zp_format(program->arena, "%s_%s", name, words[i]);
    if (!is_used(program, count, other)) return other;
  }
  return unique(program, count, zp_format(program->arena, "%s_%s", name, words[1]));
}

static const char *leaf_name(const zp_row_program *program, const zp_row_value *v) {
  const char *name = v->name;
  if (v->op == ZP_ROW_ROWS || v->op == ZP_ROW_COLUMNS || v->op == ZP_ROW_POSITION) name = program->in_name[v->input];
  if (!name) name = of_op[v->op].plain;
  return v->swap.head ? zp_format(program->arena, "%s_of_pair", name) : name;
}

void zp_row_name_values(zp_row_program *program) {
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    if (sink->kind == ZP_ROW_STORE && sink->name)
      zp_row_named(program, sink->value, sink->name, zp_format(program->arena, "result, to out[%d]", sink->index));
  }
  for (int i = 0; i < program->values.len; i++) {
    zp_row_value *v = &program->values.data[i];
    v->is_named = v->name != NULL;
    const char *name = v->name;
    if (zp_row_args(v->op) == 0)
      name = leaf_name(program, v);
    else if (!name)
      name = composed(program, v);
    if (strlen(name) > MAX_NAME && !v->is_named) name = of_op[v->op].plain;
    v->name = unique(program, i, name);
    if (!v->words) v->words = of_op[v->op].words;
  }
}
