/* SPDX-License-Identifier: Apache-2.0 */
/* A hostfile lists hosts as the cluster block lists nodes. Ranks fill hosts in the order of the file, so a plan with
 * its nodes in another order has a hostfile of its own, alongside its trainer. */
#include "driver.h"

#include <zplan/buf.h>

#include <errno.h>
#include <stdio.h>

/* Lines that name a host, without what is empty or a comment. */
static zp_strings host_lines(zp_arena *arena, const char *text) {
  zp_strings lines = {0};
  while (*text) {
    size_t n = strcspn(text, "\n"), blank = strspn(text, " \t\r");
    if (blank < n && text[blank] != '#') zp_push(arena, &lines, zp_format(arena, "%.*s", (int)n, text));
    text += n + (text[n] == '\n');
  }
  return lines;
}

static bool refuse_number(zp_run_state *run, const zp_cluster *cluster, int hosts) {
  zp_diag *d =
      zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "the hostfile `%s` lists %d hosts, cluster `%s` has %d nodes",
                run->options.hostfile, hosts, cluster->name, cluster->nodes);
  zp_diag_note(d, "the plan fills the nodes in another order than written: %s", zp_show_nodes(run->arena, cluster));
  zp_diag_help(d,
               "list one host a node, as the cluster block lists them, or plan with --set 'node_order = \"written\"'");
  return zp_flush_diags(run);
}

bool zp_arrange_hosts(zp_run_state *run, const zp_plan *plan, const char *dir) {
  const zp_cluster *cluster = &plan->spec->cluster;
  if (!run->options.hostfile || !cluster->arranged) return true;
  size_t len;
  const char *error = NULL, *text = zp_read_file(run->arena, run->options.hostfile, &len, &error);
  if (!text) {
    zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "cannot read the hostfile `%s`: %s", run->options.hostfile, error);
    return zp_flush_diags(run);
  }
  zp_strings hosts = host_lines(run->arena, text);
  if (hosts.len != cluster->nodes) return refuse_number(run, cluster, hosts.len);
  zp_buf out = zp_buf_new(run->arena);
  for (int r = 0; r < cluster->n_ranges; r++)
    for (int i = 0; i < cluster->ranges[r].nodes; i++)
      zp_buf_line(&out, "%s", hosts.data[cluster->ranges[r].first + i]);
  const char *path = zp_format(run->arena, "%s/hosts", dir);
  FILE *file = fopen(path, "w");
  bool written = file && fputs(out.data, file) >= 0;
  if (file && fclose(file) != 0) written = false;
  if (!written) {
    zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "cannot write the hostfile `%s`: %s", path, strerror(errno));
    return zp_flush_diags(run);
  }
  run->options.hostfile = path;
  return true;
}
