/* SPDX-License-Identifier: Apache-2.0 */
/* From syntax trees to a zp_spec: names, shapes (unification in block signatures), units, blocks inlined, segments
 * cut. */
#ifndef ZPLAN_SEMA_H
#define ZPLAN_SEMA_H

#include <zplan/ast.h>
#include <zplan/facts.h>
#include <zplan/model.h>
#include <zplan/spec.h>

/* A cluster that is not written in the file: `use` lines and one cluster block, which are added to its end. */
typedef struct zp_machine_text {
  const char *shown; /* what messages call it: "--machine dgx-h100" */
  const char *text;
} zp_machine_text;

typedef struct zp_load_options {
  const char *cluster; /* --cluster NAME: which cluster block, NULL = the only one or the first */
  const char *model;   /* --model NAME, NULL = train's model or the only one */
  const char *plan;    /* --plan NAME */
  int64_t gpus, nodes; /* --gpus, --nodes: override the cluster's size; 0 = as written. gpus not a multiple of a node's
                        * devices: the last node is partly used */
  const char *const *set; /* --set strings; two of one key add up, as two attributes of one block do */
  int n_set;
  int n_wishes;            /* the last so many of them are wishes of --why-not: decisions of a plan, nothing else */
  const char *library_dir; /* where std.nn, std.hw live (nn.dz, hw.dz) */
  bool model_only;         /* `check` of a file without cluster/train/plan is fine */
  const zp_machine_text *machine; /* in place of the file's cluster blocks; NULL: these count */
  /* The machine of a file without a cluster block; its text is among the sources then. NULL: such a file is wrong. */
  const zp_machine_text *(*machine_here)(void *user);
  void *user;
  const zp_source_text *edited; /* texts in place of what files of these (tidy) paths hold: an editor's */
  int n_edited;
  zp_facts *facts; /* is filled; NULL: nobody wants facts */
} zp_load_options;

/* Loads a file and everything it uses. NULL after reporting errors to diags. `sources`, when not NULL, holds texts to
 * use instead of the file system (a plan's embedded sources). Memory: arena. */
zp_spec *zp_load(zp_arena *arena, zp_diags *diags, const char *path, const zp_source_text *sources, int n_sources,
                 const zp_load_options *options);
/* Is it a key that --set takes without a prefix: one of `plan` or `train`? For another tool's word for one, *note says
 * what to write here; NULL otherwise. */
bool zp_is_setting_key(const char *word, const char **note);
/* Another tool's word, whatever its capitals: what to write here, or that it is not built. NULL: it is not known. */
const char *zp_foreign_word(const char *word);
bool zp_help_foreign(zp_diag *d, const char *word); /* adds that to a message, where there is something */
/* Does the setting "tensor<=8" speak of the plan, and not of the training or the machine? */
bool zp_is_plan_setting(const char *setting);

#endif
