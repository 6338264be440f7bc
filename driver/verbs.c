/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands, one table for dispatch, help, completion and reference. libzplan compiles it as well, with
 * ZPLAN_IN_LIBRARY: it explains all verbs and has those whose answer is a value. What it links follows from them. */
#include "driver.h"

#ifdef ZPLAN_IN_LIBRARY
#define COMMAND(run) NULL
#else
#define COMMAND(run) run
#endif

static const zp_verb verbs[] = {
    {"new", COMMAND(zp_cmd_new), "text FILE... | fine-tune FOLDER | plan MODEL on MACHINE [-o FILE.dz]",
     "write a .dz file to start from: own text, published weights, a plan for a machine", false},
    {"models", zp_cmd_models, "[WORD...] [--json]", "published models by name, for --model and new", true},
    {"machines", zp_cmd_machines, "[WORD...] [--json]", "nodes and devices by name, for --machine and new", true},
    {"plan", zp_cmd_plan, "FILE.dz [--gpus N|auto|LOW..HIGH] [-o PLAN.json]", "search the best plan (the default verb)",
     true},
    {"check", zp_cmd_check, "FILE.dz [--json]", "shapes, parameter count, lints", true},
    {"build", COMMAND(zp_cmd_build), "FILE.dz|PLAN.json [--ranks N] [-o DIR]",
     "generate and compile the trainer, print its path", false},
    {"run", COMMAND(zp_cmd_run), "FILE.dz|PLAN.json [--ranks N] [--steps N] [--resume] [--log F.jsonl]",
     "build if stale, then train", false},
    {"watch", COMMAND(zp_cmd_watch), "LOG.jsonl... [--once [--json]] [--tensorboard FOLDER] [--prometheus FILE]",
     "runs that are going on, by their logs: loss, speed, memory, time left, what is wrong", false},
    {"report", zp_cmd_report, "PLAN.json [--log F.jsonl] [--html F [--front F.json]] [--trace F]",
     "tables, HTML and Chrome trace of a plan", false},
    {"explain", zp_cmd_explain, "WORD | CODE | FILE.dz|PLAN.json [--why-not 'tensor=8, zero=1']",
     "a key, an operation, a flag or a message; why a plan is best", true},
    {"diff", zp_cmd_diff, "PLAN.json PLAN.json [--json]",
     "what differs between two plans; exit status 4 when a decision does", true},
    {"compare", zp_cmd_compare,
     "FILE.dz|PLAN.json... [--plan NAME]... [--machine NAME]... [--gpus N]... [--json] [--html F]",
     "whole plans side by side: decisions, time, memory, traffic, price", true},
    {"verify", zp_cmd_verify, "PLAN.json [-o NEW.json]",
     "prove a plan file, independently of the search; the order of its stages may be edited", false},
    {"validate", zp_cmd_validate, "RUNS.csv... [--json]", "predict a table of measured runs, print the errors", true},
    {"calibrate", COMMAND(zp_cmd_calibrate), "[-o FILE.json] [-t SECONDS]", "measure this machine for --calibration",
     false},
    {"bench", COMMAND(zp_cmd_bench), "FILE.dz [--ranks N] [--top K] [--steps S] [--json]",
     "run the best plans, predicted alongside measured", true},
    {"export", COMMAND(zp_cmd_export),
     "deepspeed|megatron|megatron-bridge|torchtitan|fsdp2|slurm FILE.dz|PLAN.json [--gpus N] [-o FILE] | "
     "hf CHECKPOINT -o FOLDER",
     "the plan in the words of another program; a checkpoint's weights for Hugging Face", false},
    {"import", COMMAND(zp_cmd_import),
     "hf CONFIG.json|FOLDER | nccl|slurm FILE | megatron [SCRIPT.sh] | deepspeed CONFIG.json --model MODEL | "
     "torchtitan [CONFIG.toml] "
     "[--gpus N] [--machine NAME] [-- WORDS...] [-o FILE.dz]",
     "a model of Hugging Face, nodes of NCCL or Slurm, a launch of Megatron-LM, DeepSpeed or torchtitan as a .dz file",
     false},
    {"sample", COMMAND(zp_cmd_sample), "CHECKPOINT [FILE.dz] --prompt TEXT... [--temperature T]",
     "generate text from a checkpoint", true},
    {"eval", COMMAND(zp_cmd_eval), "CHECKPOINT [FILE.dz] --data FILE [--json]",
     "loss, perplexity and accuracy of a trained model", true},
    {"data", COMMAND(zp_cmd_data), "FILES... -o TOKENS.bin [--tokenizer F.json] | jsonl, table, squad, pairs FILES...",
     "text files to token ids; JSON lines, tables, questions and answers, pairs of sentences to arrays", false},
    {"fmt", COMMAND(zp_cmd_fmt), "FILE.dz... [--check]", "canonical layout", false},
    {"lsp", COMMAND(zp_cmd_lsp), "", "language server for editors, on standard input and output", false},
    {"doctor", COMMAND(zp_cmd_doctor), "", "what was found on this machine", false},
    {"completion", COMMAND(zp_cmd_completion), "bash|zsh|fish", "completion for a shell, on standard output", false},
};
const char zp_exit_statuses[] =
    "0 done, 1 error in the input or the work, 2 usage, 3 no feasible plan,\n"
    "4 fmt or diff found a difference; of the trainer: 5 failed, 8 out of memory,\n"
    "127 it or mpirun cannot be started, 128 + N a rank died of signal N; 130, 143 interrupted;\n"
    "70 a bug of zplan: a plan that did not pass its proof, nothing was written";

enum { N_VERBS = sizeof verbs / sizeof *verbs };

int zp_verb_count(void) { return N_VERBS; }

const zp_verb *zp_verb_at(int index) { return &verbs[index]; }

const zp_verb *zp_find_verb(const char *name) {
  for (int i = 0; i < N_VERBS; i++)
    if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
  return NULL;
}
