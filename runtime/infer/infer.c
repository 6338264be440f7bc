/* SPDX-License-Identifier: Apache-2.0 */
/* The request of `zplan sample` and `zplan eval`, read as strictly as if somebody else had written it. */
#include "infer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

enum { MOST_REQUEST_BYTES = 16 << 20 };

/* Tokens that a prompt may have: of a sample, or of an encoder's. */
static int64_t most_tokens(const zpr_program *p) {
  for (int i = 0; i < p->n_named; i++)
    if (i != p->text_input && !p->named[i].numbers && !p->named[i].labels && p->named[i].elements > 1)
      return p->named[i].elements;
  return p->sequence;
}

static bool read_prompt(zpr_json *j, zpr_request *r, int64_t sequence, int64_t vocabulary) {
  if (r->n_prompts == ZPR_MOST_PROMPTS) return false;
  int32_t *ids = calloc((size_t)sequence, sizeof *ids);
  if (!ids) return false;
  int64_t n = 0, id = 0;
  r->prompts[r->n_prompts] = ids;
  for (zpr_json_array(j); zpr_json_item(j); ids[n++] = (int32_t)id)
    if (!zpr_json_int(j, &id) || id >= vocabulary || n == sequence) return false;
  r->lengths[r->n_prompts++] = n;
  return n > 0 && !j->failed;
}

/* Reals stand as text: a request has no fractions. */
static bool read_real(zpr_json *j, double *value) {
  char text[64], *end;
  if (!zpr_json_string(j, text, sizeof text)) return false;
  *value = strtod(text, &end);
  return end != text && !*end && *value >= 0 && *value < 1e9;
}

static bool parse(const zpr *c, zpr_request *r, const char *text, size_t bytes) {
  char key[32], task[16] = "";
  int64_t whole = 0;
  zpr_json j = zpr_json_open(text, bytes);
  zpr_json_object(&j);
  while (zpr_json_key(&j, key, sizeof key)) {
    if (strcmp(key, "task") == 0)
      zpr_json_string(&j, task, sizeof task);
    else if (strcmp(key, "out") == 0)
      zpr_json_string(&j, r->out, sizeof r->out);
    else if (strcmp(key, "new") == 0)
      zpr_json_int(&j, &r->new_tokens);
    else if (strcmp(key, "seed") == 0)
      zpr_json_int(&j, &r->seed);
    else if (strcmp(key, "top_k") == 0)
      zpr_json_int(&j, &r->top_k);
    else if (strcmp(key, "whole") == 0)
      zpr_json_int(&j, &whole);
    else if (strcmp(key, "stop") == 0)
      zpr_json_int(&j, &r->stop);
    else if (strcmp(key, "temperature") == 0 || strcmp(key, "top_p") == 0) {
      if (!read_real(&j, key[1] == 'e' ? &r->temperature : &r->top_p)) return false;
    } else if (strcmp(key, "prompts") == 0) {
      for (zpr_json_array(&j); zpr_json_item(&j);)
        if (!read_prompt(&j, r, most_tokens(c->program), c->program->vocabulary)) return false;
    } else
      zpr_json_skip(&j);
  }
  r->sample = strcmp(task, "sample") == 0;
  r->whole = whole != 0;
  return zpr_json_done(&j) && r->out[0] && (r->sample ? r->n_prompts > 0 : strcmp(task, "eval") == 0);
}

static char *load(const char *path, size_t *bytes) {
  struct stat status;
  int fd = zpr_open_file(path);
  bool good = fd >= 0 && fstat(fd, &status) == 0 && status.st_size <= MOST_REQUEST_BYTES;
  char *text = good ? malloc((size_t)status.st_size + 1) : NULL;
  *bytes = good ? (size_t)status.st_size : 0;
  good = text && read(fd, text, *bytes) == (ssize_t)*bytes;
  if (fd >= 0) close(fd);
  if (good) return text;
  free(text);
  return NULL;
}

/* Ranks that share every layer can look. */
static const char *cannot(const zpr *c, bool sample) {
  const zpr_program *p = c->program;
  if (p->pipeline > 1 || p->data > 1) return "it has several stages or replicas";
  if (p->n_inputs < 2 && p->n_named == 0) return "the model has no labels";
  if (sample && p->n_named > 0 && !p->decode) return "the model has no text to go on with";
  return NULL;
}

static bool answer(zpr *c, const zpr_request *r, zpr_error *error) {
  FILE *out = fopen(c->rank == 0 ? r->out : "/dev/null", "w");
  if (!out) {
    zpr_error_set(error, "Z0818", "cannot write \"%s\": %s", r->out, strerror(errno));
    return false;
  }
  c->training = false;
  if (r->sample)
    zpr_sample_texts(c, r, out);
  else
    zpr_evaluate(c, out);
  bool good = !ferror(out);
  if (fclose(out) != 0 || !good) zpr_error_set(error, "Z0818", "cannot write \"%s\": %s", r->out, strerror(errno));
  return !error->code[0];
}

int zpr_infer(zpr *c, const char *path) {
  zpr_request r = {.stop = -1, .top_p = 1};
  zpr_error error = {0};
  size_t bytes;
  r.lengths = zpr_alloc(c, ZPR_MOST_PROMPTS, sizeof *r.lengths);
  r.prompts = zpr_alloc(c, ZPR_MOST_PROMPTS, sizeof *r.prompts);
  char *text = load(path, &bytes);
  bool good = text && parse(c, &r, text, bytes);
  const char *why = cannot(c, r.sample);
  if (why)
    zpr_error_set(&error, "Z0818", "this trainer cannot look at its model: %s", why);
  else if (!good)
    zpr_error_set(&error, "Z0818", "\"%s\" is no request of `zplan sample` or `zplan eval`", path);
  else
    answer(c, &r, &error);
  free(text);
  for (int64_t i = 0; i < ZPR_MOST_PROMPTS; i++) free(r.prompts[i]);
  free(r.prompts);
  free(r.lengths);
  zpr_agree(c, &error);
  return 0;
}
