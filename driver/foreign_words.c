/* SPDX-License-Identifier: Apache-2.0 */
/* What other tools call verbs and options. Words for settings stand in the tables of their blocks. */
#include "driver.h"

#include <string.h>

typedef struct foreign_word {
  const char *word, *here;
} foreign_word;

static const foreign_word verbs[] = {
    {"train", "run"},
    {"launch", "run"},
    {"start", "run"},
    {"fit", "run"},
    {"finetune", "new"},
    {"search", "plan"},
    {"optimize", "plan"},
    {"tune", "plan"},
    {"estimate", "plan"},
    {"simulate", "plan"},
    {"compile", "build"},
    {"generate", "sample"},
    {"infer", "sample"},
    {"chat", "sample"},
    {"evaluate", "eval"},
    {"tokenize", "data"},
    {"prepare", "data"},
    {"init", "new"},
    {"create", "new"},
    {"format", "fmt"},
    {"list", "models"},
    {"why", "explain"},
    {"profile", "run --profile"},
};
static const foreign_word options[] = {
    {"num_gpus", "--gpus N"},
    {"n_gpus", "--gpus N"},
    {"ngpus", "--gpus N"},
    {"gpus_per_node", "--gpus N"},
    {"world_size", "--gpus N"},
    {"np", "--ranks N"},
    {"n", "--ranks N"},
    {"nproc_per_node", "--ranks N"},
    {"num_processes", "--ranks N"},
    {"nnodes", "--nodes N"},
    {"num_nodes", "--nodes N"},
    {"output", "-o FILE"},
    {"out", "-o FILE"},
    {"output_dir", "-o FOLDER"},
    {"out_dir", "-o FOLDER"},
    {"resume_from_checkpoint", "--resume"},
    {"max_steps", "--steps N"},
    {"train_iters", "--steps N"},
    {"save", "--checkpoint FOLDER"},
    {"load", "--resume"},
    {"device", "--target cpu|cuda"},
    {"gpu_memory", "--device-memory 40GB"},
    {"max_memory", "--device-memory 40GB"},
};

static const char *find(const foreign_word *words, size_t n, const char *word) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(words[i].word, word) == 0) return words[i].here;
  return NULL;
}

const char *zp_foreign_verb(const char *word) { return find(verbs, sizeof verbs / sizeof *verbs, word); }

const char *zp_near_foreign_verb(const char *word) {
  enum { N = sizeof verbs / sizeof *verbs };
  const char *words[N];
  for (int i = 0; i < N; i++) words[i] = verbs[i].word;
  const char *near = zp_closest(word, words, N);
  return near ? zp_foreign_verb(near) : NULL;
}

const char *zp_foreign_option(const char *key) { return find(options, sizeof options / sizeof *options, key); }
