/* SPDX-License-Identifier: Apache-2.0 */
/* A language server for .dz files: the Language Server Protocol 3.17 over two file descriptors. It knows the front end
 * and nothing of plans; what belongs to the command comes from its host. */
#ifndef ZPLAN_LSP_H
#define ZPLAN_LSP_H

#include <zplan/sema.h>

typedef struct zp_lsp_host {
  const char *version, *library_dir;
  /* As `zplan check` reads the file: everything that it would report is in diags. edited: what editors hold; facts:
   * filled with what is known of names. */
  void (*check)(void *user, zp_arena *arena, zp_diags *diags, const char *path, const zp_source_text *edited,
                int n_edited, zp_facts *facts);
  void *user;
} zp_lsp_host;

/* Serves until the client says `exit` or the input ends. The exit status: 0 when `shutdown` came before, else 1. */
int zp_lsp_serve(const zp_lsp_host *host, int in, int out);

#endif
