/* SPDX-License-Identifier: Apache-2.0 */
/* The .dz file of a launch: the model, the cluster, the training, and two plan blocks. `launched` is the launch as it
 * is; `free` leaves every decision to the search. */
#include "launch.h"

#include <assert.h>
#include <zplan/quote.h>

/* One to a line, so that a comment says where it is from. */
static void put_lines(zp_buf *out, const launch_lines *lines) {
  for (int i = 0; i < lines->len; i++) {
    const launch_line *line = &lines->data[i];
    zp_buf_printf(out, "  %s %s %s", line->key, line->permits ? "in" : "=", line->value);
    if (line->from) zp_buf_printf(out, "  # %s", zp_quote_terminal(out->arena, line->from));
    zp_buf_puts(out, "\n");
  }
}

static int64_t nodes_of(const launch *l) { return (l->gpus + l->words->gpus_per_node - 1) / l->words->gpus_per_node; }

static void put_cluster(zp_buf *out, const launch *l) {
  zp_buf_printf(out, "\ncluster launched {\n  nodes = %lld  # %lld GPUs, %s\n  %s}\n", (long long)nodes_of(l),
                (long long)l->gpus, l->gpus_from, l->words->node);
}

static void put_head(zp_buf *out, const launch *l) {
  zp_buf_printf(out,
                "# A launch of %s, imported from %s. Lines of `train` and `plan launched` say which words of it they "
                "are from.\n#\n#   zplan plan FILE.dz --plan launched                    fits or not, time of a step\n"
                "#   zplan compare FILE.dz --plan launched --plan free     what would be better\n\n",
                l->program, zp_quote_terminal(l->arena, l->path));
}

void launch_write(launch *l) {
  assert(l->gpus >= 1 && l->words->gpus_per_node >= 1 && l->words->node);
  zp_buf out = zp_buf_new(l->arena);
  int64_t idle = nodes_of(l) * l->words->gpus_per_node - l->gpus;
  launch_pin_int(l, "idle", idle, NULL);
  if (idle > 0)
    launch_note(l, "%lld GPUs of the cluster block stay idle in `launched`; `free` may use them", (long long)idle);
  if (!l->words->node_from) launch_note(l, "no machine is named: nodes of dgx-h100 are written (--machine NAME)");
  put_head(&out, l);
  if (l->model_text) {
    zp_buf_puts(&out, l->model_text);
  } else {
    zp_buf_puts(&out, "use std.nn\nuse std.hw\n\n");
    launch_put_model(&out, &l->model);
  }
  put_cluster(&out, l);
  zp_buf_printf(&out, "\ntrain {\n  model = %s\n%s", l->model.name,
                l->model_text ? "" : "  data = synthetic(seed = 1)\n");
  put_lines(&out, &l->train);
  zp_buf_puts(&out, "}\n\n# The launch as it is.\nplan launched {\n");
  zp_buf_printf(&out, "  for = \"%s\"\n", l->word);
  put_lines(&out, &l->pins);
  zp_buf_printf(&out, "}\n\n# All other decisions are the search's.\nplan free {\n  for = \"%s\"\n}\n", l->word);
  l->result->text = out.data;
}
