/* SPDX-License-Identifier: Apache-2.0 */
/* Names in a generated trainer: identifiers, places in the model's text, segments and their functions. */
#include "emit.h"

#include <ctype.h>

static const char *const reserved[] = {
    "auto",     "break",    "case",   "char",     "const",  "continue", "default", "do",     "double", "else",
    "enum",     "extern",   "float",  "for",      "goto",   "if",       "inline",  "int",    "long",   "main",
    "register", "restrict", "return", "short",    "signed", "sizeof",   "static",  "struct", "switch", "typedef",
    "union",    "unsigned", "void",   "volatile", "while",  "real",     "grad",    "bool",   "true",   "false"};

const char *zp_emit_identifier(zp_arena *arena, const char *name) {
  char *id = zp_format(arena, "%s%s", isdigit((unsigned char)name[0]) ? "_" : "", name);
  for (char *p = id; *p; p++)
    if (!isalnum((unsigned char)*p)) *p = '_';
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strcmp(id, reserved[i]) == 0) return zp_format(arena, "%s_", id);
  return id;
}

const char *zp_emit_place(const zp_emit *e, zp_span span) {
  if (!e->diags || span.file < 0) return "";
  const char *place = zp_diags_place(e->diags, e->arena, span), *slash = strrchr(place, '/');
  return slash ? slash + 1 : place;
}

/* Only where stages or their layers differ do names say what is recomputed. */
static const char *mode_suffix(const zp_emit *e, int segment, zp_stage_mode mode) {
  static const char *const suffix[ZP_STAGE_MODES] = {[ZP_RECOMPUTE_NONE] = "",
                                                     [ZP_RECOMPUTE_SELECTIVE] = "_selective",
                                                     [ZP_RECOMPUTE_FULL] = "_full",
                                                     [ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT] = "_full_split"};
  return zp_choice_has_modes(&e->program->choice) && e->lowered->segments[segment].segment->is_repeat ? suffix[mode]
                                                                                                      : "";
}

const char *zp_emit_function_name(const zp_emit *e, int segment, zp_stage_mode mode, zp_pass pass) {
  static const char *const name[] = {"forward", "loss", "backward", "inputs", "weights", "gather", "scatter", "decode"};
  return zp_format(e->arena, "%s_%s%s", zp_emit_identifier(e->arena, e->lowered->segments[segment].segment->name),
                   name[pass], mode_suffix(e, segment, mode));
}

const char *zp_emit_segment(const zp_emit *e, int segment, zp_stage_mode mode) {
  char *name =
      zp_format(e->arena, "SEG_%s%s", zp_emit_identifier(e->arena, e->lowered->segments[segment].segment->name),
                mode_suffix(e, segment, mode));
  for (char *p = name; *p; p++) *p = (char)toupper((unsigned char)*p);
  return name;
}
