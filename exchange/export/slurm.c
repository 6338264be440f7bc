/* SPDX-License-Identifier: Apache-2.0 */
/* A batch script that starts the ranks of a plan: those of the trainer that `zplan build` makes, or of the command that
 * it is given, on GPUs with the variables that programs on torch.distributed read. Plans for other programs have no
 * trainer, so there a command must be given. */
#include "export_internal.h"

#include <zplan/quote.h>

#include <math.h>

/* Seconds to ask for: those of the whole run and a fifth more, at least ten minutes. */
static double run_seconds(const zp_exporter *e) {
  return fmax(600, ceil(e->plan->best.estimate.step_s * (double)e->spec->train.steps * 1.2));
}

/* D-HH:MM:SS */
static const char *time_limit(const zp_exporter *e) {
  int64_t s = (int64_t)run_seconds(e);
  return zp_format(e->arena, "%lld-%02lld:%02lld:%02lld", (long long)(s / 86400), (long long)(s / 3600 % 24),
                   (long long)(s / 60 % 60), (long long)(s % 60));
}

/* Letters, digits and what else needs no quoting. */
static const char *plain_name(zp_arena *arena, const char *name) {
  char *copy = zp_strdup(arena, name);
  for (char *c = copy; *c; c++)
    if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c)) *c = '_';
  return copy;
}

static void put_resources(zp_buf *out, const zp_exporter *e) {
  const zp_machine *machine = &e->plan->machine;
  const zp_device *device = &machine->node->device;
  int ranks = zp_choice_ranks(e->choice), nodes = (int)zp_machine_nodes(machine);
  int each = ranks < machine->devices_per_node ? ranks : machine->devices_per_node;
  zp_buf_printf(out, "#SBATCH --nodes=%d\n#SBATCH --ntasks=%d\n#SBATCH --ntasks-per-node=%d\n", nodes, ranks, each);
  if (device->is_cpu)
    zp_buf_printf(out, "#SBATCH --cpus-per-task=%d\n", device->cores > each ? device->cores / each : 1);
  else
    zp_buf_printf(out, "#SBATCH --gpus-per-node=%d\n", each);
  zp_buf_puts(out, "#SBATCH --mem=0\n#SBATCH --exclusive\n#SBATCH --distribution=block\n");
}

static bool has_trainer(const zp_exporter *e) {
  return e->spec->cluster.node.device.is_cpu || e->spec->cluster.trainer == ZP_TRAINER_ZPLAN;
}

/* What is started unless the script is given something else; it goes on where a checkpoint is. */
static void put_trainer(zp_buf *out, const zp_exporter *e, const char *name) {
  const char *dir = e->spec->train.checkpoint_dir;
  zp_buf_printf(out, "if [ $# -eq 0 ]; then\n  set -- ./%s.zplan/trainer\n", name);
  if (dir)
    zp_buf_printf(out, "  [ ! -e %s ] || set -- \"$@\" --resume\n",
                  zp_quote_shell(e->arena, zp_format(e->arena, "%s/latest", dir)));
  zp_buf_puts(out, "fi\n");
}

static void put_start(zp_buf *out, const zp_exporter *e, const char *name) {
  bool cpu = e->spec->cluster.node.device.is_cpu;
  if (has_trainer(e))
    put_trainer(out, e, name);
  else
    zp_buf_puts(out, "if [ $# -eq 0 ]; then\n"
                     "  echo 'say what to start: sbatch SCRIPT COMMAND [ARGUMENT]...' >&2\n"
                     "  exit 2\n"
                     "fi\n");
  if (!cpu)
    zp_buf_puts(out, "hosts=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n"
                     "MASTER_ADDR=${hosts%%$'\\n'*}\n"
                     "export MASTER_ADDR MASTER_PORT=\"${MASTER_PORT:-29500}\" WORLD_SIZE=\"$SLURM_NTASKS\"\n");
  zp_buf_puts(out, "\n# The signal comes two minutes before the time is up; srun, which is $! as soon as it runs, "
                   "hands it to all ranks.\n");
  zp_buf_printf(out, "trap '[ -z \"${!:-}\" ] || kill -%s \"$!\"' USR1\n", has_trainer(e) ? "USR1" : "TERM");
  zp_buf_printf(out, "srun --kill-on-bad-exit=1 %s &\n",
                cpu ? "\"$@\""
                    : "bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; exec \"$@\"' rank \"$@\"");
  zp_buf_puts(out, "ranks=$!\nstatus=0\nwait \"$ranks\" || status=$?\n"
                   "while kill -0 \"$ranks\" 2>/dev/null; do\n"
                   "  status=0\n  wait \"$ranks\" || status=$?\n"
                   "done\nexit \"$status\"\n");
}

static void put_head(zp_buf *out, const zp_exporter *e, const char *name) {
  const zp_estimate *estimate = &e->plan->best.estimate;
  zp_export_comment(out, zp_format(e->arena, "%s on %d x %s; made by zplan export slurm.", e->spec->model->name,
                                   e->plan->devices, e->spec->cluster.node.device.name));
  zp_export_comment(out, zp_format(e->arena, "%s.", zp_export_headline(e)));
  zp_export_comment(out, zp_format(e->arena, "Time: %lld steps, an estimated %s each, and a fifth more.",
                                   (long long)e->spec->train.steps, zp_show_seconds(e->arena, estimate->step_s)));
  zp_buf_puts(out, "#\n");
  if (has_trainer(e))
    zp_buf_printf(out, "#   zplan build PLAN.json -o %s.zplan && sbatch %s\n", name, e->name);
  else
    zp_buf_printf(out,
                  "#   sbatch %s bash -c 'source ARGUMENTS.sh; exec python pretrain_gpt.py \"${MEGATRON_ARGS[@]}\"'\n",
                  e->name);
  for (int i = 0; i < e->result->notes.len; i++)
    zp_export_comment(out, zp_format(e->arena, "- %s.", e->result->notes.data[i]));
}

void zp_export_slurm(zp_exporter *e) {
  if (e->spec->cluster.groups.len > 1)
    zp_export_refuse(e, "--cluster with one node type", "cluster `%s` has several node types, a job has one",
                     e->spec->cluster.name);
  enum { WEEK_S = 7 * 86400 };
  if (run_seconds(e) > WEEK_S)
    zp_export_note(
        e, "--time is that of the whole run: lower it to what the partition grants, and submit again to go on from "
           "the last checkpoint");
  if (run_seconds(e) > 3e9) zp_export_refuse(e, "fewer steps", "the run takes an estimated %.3g s", run_seconds(e));
  int idle = zp_plan_idle(e->plan, e->choice);
  if (idle > 0) zp_export_note(e, "%d of %d devices stay idle", idle, e->plan->devices);
  const char *name = plain_name(e->arena, e->spec->model->name);
  zp_buf out = zp_buf_new(e->arena);
  zp_buf_puts(&out, "#!/bin/bash\n");
  zp_buf_printf(&out, "#SBATCH --job-name=%s\n", name);
  put_resources(&out, e);
  zp_buf_printf(&out,
                "#SBATCH --time=%s\n#SBATCH --signal=B:USR1@120\n#SBATCH --open-mode=append\n"
                "#SBATCH --output=%s-%%j.log\n",
                time_limit(e), name);
  zp_buf_puts(&out, "#\n");
  put_head(&out, e, name);
  zp_buf_puts(&out, "\nset -euo pipefail\n");
  put_start(&out, e, name);
  e->result->text = out.data;
}
