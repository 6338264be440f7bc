/* SPDX-License-Identifier: Apache-2.0 */
/* zplan sample and zplan eval: a trained model is examined. A trainer for CPU ranks or GPUs is generated from the
 * model, with nothing of the plan that it was trained by (infer_spec.c), starts from the checkpoint's weights in f32,
 * and answers a request instead of training (runtime/infer/infer.c). */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/json.h>
#include <zplan/tokenizer.h>
#include <zplan/weights.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

typedef struct inference {
  zp_run_state *run;
  const char *name; /* "sample", "eval" */
  bool samples;     /* it is the former */
  bool decodes;     /* the trainer goes on position by position */
  zp_spec *spec;    /* the model, on this machine */
  zp_weight_folder *folder;
  int ranks; /* that share every layer */
  const char *binary;
  zp_json *request;
  zp_tokenizer *tokenizer;
  zp_decoder *decoder;
  const zp_input *prompt, *text; /* of an encoder-decoder: what its parts read; NULL: the text begins with the prompt */
} inference;

enum { USUAL_NEW_TOKENS = 64, EVAL_BATCH = 4 };

/* ---- the trainer ---- */

static const char *tree_of(const inference *i) {
  if (i->run->options.output) return i->run->options.output;
  return zp_format(i->run->arena, "%s.%s", i->spec->model->name, i->name);
}

/* Does a new token take its own position alone? Else it is told what it takes; encoder-decoders know no other way. */
static bool can_decode(const inference *i, const zp_plan *plan) {
  zp_run_state *run = i->run;
  zp_span where = ZP_NO_SPAN;
  const char *why = zp_trainer_cannot_decode(run->arena, plan, &where);
  const char *place = why && where.file >= 0 ? zp_diags_place(run->diags, run->arena, where) : "";
  if (why && i->text)
    zp_report(run->diags, ZP_Z0818, where, "the decoder does not go on with a text position by position: %s", why);
  else if (why)
    zp_say_lines(stderr, "every token takes a pass over the whole sample: %s%s%s\n", why, *place ? ", " : "", place);
  return !why;
}

static bool build(inference *i) {
  zp_run_state *run = i->run;
  zp_strings notes = {0};
  zp_weight_map *map = zp_weights_map(run->arena, run->diags, i->spec, run->options.load.library_dir, i->folder, NULL);
  const char *adapters = run->options.adapters;
  if (map && adapters && !zp_weights_add_adapters(run->arena, run->diags, i->spec, map, adapters, &notes)) return false;
  run->weights = map ? zp_weights_place(run->arena, run->diags, i->spec, map, i->folder, &notes) : NULL;
  if (!run->weights) return false;
  zp_search_options options = {.generated_only = true};
  zp_plan *plan = zp_search(run->arena, i->spec, i->ranks, &options);
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    return false;
  }
  if (!zp_can_generate(run, i->spec) || !zp_prove_plan(run, plan)) return false;
  zp_toolchain tools = zp_target_toolchain(run, i->spec);
  const char *error = NULL;
  tools.extras.decode = i->decodes = i->samples && can_decode(i, plan);
  if (i->text && !i->decodes) return false;
  /* Held until this process ends: the request and its answer lie there, too. */
  if (zp_tree_lock(run->arena, tree_of(i), &error) >= 0)
    i->binary = zp_trainer_build(run->arena, plan, run->diags, &tools, tree_of(i), &error);
  const char *path = zp_format(run->arena, "%s/weights.json", tree_of(i));
  if (i->binary && zp_write_file(run->arena, path, run->weights, strlen(run->weights), &error)) return true;
  zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "cannot build what runs the model: %s", error);
  return false;
}

/* The answer, owned; NULL after saying why there is none. */
static zp_json *ask(inference *i, int *status) {
  zp_run_state *run = i->run;
  const char *out = zp_format(run->arena, "%s/answer.json", tree_of(i)), *error = NULL;
  const char *path = zp_format(run->arena, "%s/request.json", tree_of(i));
  unlink(out);
  zp_json_set_string(i->request, "out", out);
  const char *text = zp_json_text(run->arena, i->request, true);
  *status = ZP_EXIT_ERROR;
  if (zp_write_file(run->arena, path, text, strlen(text), &error)) {
    zp_options own = run->options;
    run->options = (zp_options){.steps = -1, .threads = own.threads, .color = own.color, .hostfile = own.hostfile};
    zp_push(run->arena, &run->options.trainer_args, "--infer");
    zp_push(run->arena, &run->options.trainer_args, path);
    if (i->decodes && i->ranks > 1 && !i->spec->cluster.node.device.is_cpu) {
      /* What NCCL's ranks start is loaded before the first message; prompts have shapes that no rehearsal knows. */
      zp_push(run->arena, &run->options.trainer_args, "--comm");
      zp_push(run->arena, &run->options.trainer_args, "staged");
    }
    *status = zp_launch_trainer(run, i->binary, i->ranks, true);
    run->options = own;
    if (*status != ZP_EXIT_OK) return NULL;
    size_t len;
    text = zp_read_file(run->arena, out, &len, &error);
    zp_json *answer = text ? zp_json_parse(run->arena, text, len, &error) : NULL;
    if (answer) return answer;
    *status = ZP_EXIT_ERROR;
  }
  zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "%s", error);
  return NULL;
}

/* ---- what both begin with ---- */

/* CHECKPOINT [FILE]: the weights, and the model, which --ranks says nothing about. */
static const zp_spec *open_model(inference *i) {
  zp_run_state *run = i->run;
  zp_strings files = run->options.files;
  zp_options own = run->options;
  i->ranks = own.load.gpus > 0 ? (int)own.load.gpus : 1;
  run->options.load.gpus = 0;
  i->folder = zp_weights_open(run->arena, run->diags, files.data[0]);
  bool good = i->folder && (!own.ema || zp_weights_take_averages(run->arena, run->diags, i->folder));
  const zp_spec *spec = good ? zp_spec_of_checkpoint(run, i->folder, files.len == 2 ? files.data[1] : NULL) : NULL;
  run->options = own;
  return spec;
}

static int finish(inference *i, int status) {
  if (i->request) zp_json_free(i->request);
  zp_tokenizer_free(i->tokenizer);
  return zp_flush_diags(i->run) ? status : ZP_EXIT_ERROR;
}

/* ---- sample ---- */

static bool read_tokenizer(inference *i) {
  zp_run_state *run = i->run;
  const char *path = run->options.tokenizer;
  size_t len;
  if (!path) return true;
  const char *json = zp_tokenizer_text(run->arena, run->diags, path, &len);
  if (!json) return false;
  i->tokenizer = zp_tokenizer_read(run->arena, run->diags, path, json, len);
  if (!i->tokenizer) return false;
  i->decoder = zp_decoder_read(run->arena, json, len);
  (void)zp_tokenizer_fits(run, path, i->tokenizer, i->spec->model);
  if (run->options.eod && zp_tokenizer_added(i->tokenizer, run->options.eod) < 0)
    zp_report(run->diags, ZP_Z0806, ZP_NO_SPAN, "%s has no added token `%s`, which --eod asks for", path,
              run->options.eod);
  return zp_diags_errors(run->diags) == 0;
}

typedef struct ids {
  zp_json *list;
  int64_t n;
} ids;

static bool push_ids(void *user, const int32_t *id, int n) {
  ids *to = user;
  for (int k = 0; k < n; k++) zp_json_append_int(to->list, id[k]);
  to->n += n;
  return true;
}

static bool push_bytes(inference *i, const char *prompt, ids *to) {
  int64_t most = i->spec->model->vocabulary;
  for (size_t k = 0; prompt[k]; k++) {
    int32_t byte = (unsigned char)prompt[k];
    if (byte >= most) {
      zp_diag *d =
          zp_report(i->run->diags, ZP_Z0818, ZP_NO_SPAN, "byte %zu of the prompt is %d, and the model has %lld tokens",
                    k + 1, byte, (long long)most);
      zp_diag_help(d, "a model that was not trained on bytes needs its tokenizer: --tokenizer tokenizer.json");
      return false;
    }
    push_ids(to, &byte, 1);
  }
  return true;
}

/* For a prompt of n tokens and those that are asked for. An encoder's prompt may fill its sample, and the text of its
 * decoder begins with a token of its own. */
static bool has_room(const inference *i, int64_t n) {
  int64_t S = i->prompt ? i->prompt->shape.dim[1] : i->spec->model->sequence, most = i->prompt ? S : S - 1;
  int64_t room = i->text ? i->text->shape.dim[1] - 1 : S - n;
  int64_t asked = i->run->options.tokens; /* 0: as many as there is room for, at most the usual number */
  if (n > 0 && n <= most && asked <= room) return true;
  zp_diag *d = zp_report(i->run->diags, ZP_Z0818, ZP_NO_SPAN,
                         "the prompt has %lld tokens, and a sample of the model %lld", (long long)n, (long long)S);
  if (n > 0 && n <= most)
    zp_diag_help(d, "--tokens can add up to %lld, not %lld", (long long)room, (long long)asked);
  else
    zp_diag_help(d, "between 1 and %lld are possible%s", (long long)most, i->text ? "" : ", so that one more has room");
  return false;
}

static bool push_prompt(inference *i, zp_json *prompts, const char *prompt) {
  zp_run_state *run = i->run;
  const char *error = NULL;
  ids to = {.list = zp_json_append(prompts, zp_json_array())};
  if (!i->tokenizer && !push_bytes(i, prompt, &to)) return false;
  if (i->tokenizer && !zp_tokenize(i->tokenizer, prompt, strlen(prompt), push_ids, &to, &error))
    return zp_report(run->diags, ZP_Z0808, ZP_NO_SPAN, "the prompt cannot be tokenized: %s", error), false;
  if (i->text && run->options.eod) {
    int32_t end = zp_tokenizer_added(i->tokenizer, run->options.eod);
    push_ids(&to, &end, 1); /* an encoder sees where its text ends */
  }
  return has_room(i, to.n);
}

/* A model of two texts, labels and maybe the first one's length. */
static bool find_pair(inference *i) {
  const zp_model *model = i->spec->model;
  const zp_input *first = NULL, *last = NULL;
  int texts = 0, lengths = 0, labels = 0, others = 0;
  for (int k = 0; k < model->inputs.len; k++) {
    const zp_input *input = &model->inputs.data[k];
    bool whole = input->element == ZP_ELEM_I32;
    labels += input->labels;
    if (whole && !input->labels && input->shape.rank == 2)
      texts++, first = first ? first : input, last = input;
    else if (whole && !input->labels && input->shape.rank == 1)
      lengths++;
    else
      others += !input->labels;
  }
  if (texts != 2 || labels != 1 || lengths > 1 || others > 0) return false;
  i->prompt = first;
  i->text = last;
  return true;
}

/* Does the node make a position of others, so perhaps of later ones? Columns stay where they are; a prefix is put in
 * front, and cut off. */
static bool mixes_positions(const zp_node *n) {
  return n->op == ZP_OP_ATTENTION ? !n->attr.causal : zp_op_has(n->op, ZP_FLAG_MIXES_POSITIONS);
}

/* A token that is to come next must not be seen by those before it. */
static bool looks_back(inference *i) {
  const zp_model *model = i->spec->model;
  const zp_input *foreign = zp_model_foreign_input(model);
  if (find_pair(i)) return true; /* the trainer's printer finds out which attention sees what */
  if (foreign) {
    zp_report(i->run->diags, ZP_Z0818, foreign->span, "the model reads `%s` %s: there is no text to go on with",
              foreign->name, zp_shape_text(i->run->arena, &foreign->shape));
    return false;
  }
  for (int s = 0; s < model->segments.len; s++)
    for (int k = 0; k < model->segments.data[s].graph->nodes.len; k++) {
      const zp_node *n = &model->segments.data[s].graph->nodes.data[k];
      if (!mixes_positions(n)) continue;
      zp_report(i->run->diags, ZP_Z0818, n->span, "%s sees what comes after a token: there is no next one",
                n->op == ZP_OP_ATTENTION ? "attention" : zp_format(i->run->arena, "`%s`", zp_op_name(n->op)));
      return false;
    }
  return true;
}

static bool write_request(inference *i) {
  zp_run_state *run = i->run;
  const zp_options *o = &run->options;
  i->request = zp_json_object();
  zp_json_set_string(i->request, "task", "sample");
  zp_json_set_int(i->request, "new", o->tokens > 0 ? o->tokens : USUAL_NEW_TOKENS);
  zp_json_set_int(i->request, "seed", o->seed);
  zp_json_set_int(i->request, "top_k", o->top_k);
  if (o->no_cache) zp_json_set_int(i->request, "whole", 1);
  if (o->eod) zp_json_set_int(i->request, "stop", zp_tokenizer_added(i->tokenizer, o->eod));
  zp_json_set_string(i->request, "temperature", zp_format(run->arena, "%.17g", o->temperature));
  zp_json_set_string(i->request, "top_p", zp_format(run->arena, "%.17g", o->top_p));
  zp_json *prompts = zp_json_set(i->request, "prompts", zp_json_array());
  for (int k = 0; k < o->prompts.len; k++)
    if (!push_prompt(i, prompts, o->prompts.data[k])) return false;
  return true;
}

/* Tokens a second, which differ from run to run, and so are no part of the answer. */
static void tell_speed(const inference *i, const zp_json *answer) {
  double prompt_s = zp_json_get_real(answer, "prompt_s", 0), text_s = zp_json_get_real(answer, "text_s", 0);
  long long prompts = zp_json_get_int(answer, "prompt_tokens", 0), tokens = zp_json_get_int(answer, "text_tokens", 0);
  zp_buf line = zp_buf_new(i->run->arena);
  zp_buf_printf(&line, "prompts of %lld tokens in %.3f s", prompts, prompt_s);
  if (tokens > 0 && text_s > 0) zp_buf_printf(&line, ", %lld more at %.4g tokens/s", tokens, (double)tokens / text_s);
  zp_say_line(stderr, "%s%s", line.data,
              i->decodes && !i->run->options.no_cache ? "" : ", without kept keys and values");
}

static void print_answer(const inference *i, zp_json *answer) {
  zp_json_remove(answer, "prompt_s");
  zp_json_remove(answer, "text_s");
  zp_print_json(i->run->arena, answer);
}

/* Prompt and what follows, one text after the other. */
static void print_texts(inference *i, const zp_json *answer) {
  const zp_strings *prompts = &i->run->options.prompts;
  for (int k = 0; k < prompts->len; k++) {
    const zp_json *list = zp_json_at(zp_json_get(answer, "tokens"), k);
    zp_buf out = zp_buf_new(i->run->arena);
    for (int t = 0; t < zp_json_count(list); t++) {
      int32_t id = (int32_t)zp_json_int(zp_json_at(list, t), 0);
      char byte = (char)id;
      if (i->decoder)
        zp_decode(i->decoder, id, &out);
      else
        zp_buf_put(&out, &byte, 1);
    }
    if (k) puts("---");
    zp_hand_on(stdout, prompts->data[k], strlen(prompts->data[k]));
    zp_hand_on(stdout, out.data, out.len);
    putchar('\n');
  }
}

/* A line for the sum of several losses, and one for each. Of nothing there is no mean. */
static void show_losses(const inference *i, zp_json *answer, const zp_json *losses) {
  double loss = zp_json_get_real(answer, "loss", NAN), exact = zp_json_get_real(answer, "exact_match", NAN);
  if (isnan(loss))
    printf("no sample has a label");
  else
    printf("loss %.6f", loss);
  if (!isnan(exact)) printf("  exact match %.2f%%", 100 * exact);
  printf("  %lld samples\n", (long long)zp_json_get_int(answer, "samples", 0));
  const zp_graph *last = i->spec->model->segments.data[i->spec->model->segments.len - 1].graph;
  for (int k = 0; k < last->losses.len; k++) {
    const char *name = last->nodes.data[last->tensors.data[last->losses.data[k]].producer].name;
    const zp_json *one = zp_json_get(losses, name);
    if (isnan(zp_json_get_real(one, "loss", NAN)))
      zp_say_lines(stdout, "%s  no label\n", name);
    else if (zp_json_get(one, "rows"))
      zp_say_lines(stdout, "%s  loss %.6f  %lld rows\n", name, zp_json_get_real(one, "loss", NAN),
                   (long long)zp_json_get_int(one, "rows", 0));
    else
      zp_say_lines(stdout, "%s  loss %.6f  accuracy %.2f%%  %lld labels\n", name, zp_json_get_real(one, "loss", NAN),
                   100 * zp_json_get_real(one, "accuracy", NAN), (long long)zp_json_get_int(one, "labels", 0));
  }
  zp_json_free(answer);
}

int zp_cmd_sample(zp_run_state *run) {
  inference i = {.run = run, .name = "sample", .samples = true};
  const zp_options *o = &run->options;
  int n = o->files.len;
  if (n < 1 || n > 2 || o->prompts.len == 0)
    return zp_usage_error("usage: zplan sample CHECKPOINT [FILE.dz] --prompt TEXT... [--tokenizer FILE.json]");
  if (o->eod && !o->tokenizer)
    return zp_usage_error("--eod names a token of a tokenizer: say --tokenizer FILE.json, too");
  if (o->temperature == 0 && (o->top_k || o->top_p < 1 || o->seed))
    return zp_usage_error("--top-k, --top-p and --seed are about tokens that --temperature draws");
  if (!zp_inference_options(run)) return ZP_EXIT_USAGE;
  const zp_spec *trained = open_model(&i);
  if (trained) i.spec = zp_inference_spec(run, trained, 1, i.ranks);
  if (!i.spec || !looks_back(&i) || !read_tokenizer(&i) || !write_request(&i) || !build(&i))
    return finish(&i, ZP_EXIT_ERROR);
  int status;
  zp_json *answer = ask(&i, &status);
  if (answer) tell_speed(&i, answer);
  if (answer && o->json)
    print_answer(&i, answer);
  else if (answer) {
    print_texts(&i, answer);
    zp_json_free(answer);
  }
  return finish(&i, status);
}

/* ---- eval ---- */

int zp_cmd_eval(zp_run_state *run) {
  inference i = {.run = run, .name = "eval"};
  const zp_options *o = &run->options;
  if (o->files.len < 1 || o->files.len > 2 || !o->data)
    return zp_usage_error("usage: zplan eval CHECKPOINT [FILE.dz] --data FILE");
  if (!zp_inference_options(run)) return ZP_EXIT_USAGE;
  const zp_spec *trained = open_model(&i);
  if (trained) i.spec = zp_inference_spec(run, trained, EVAL_BATCH, i.ranks);
  if (i.spec) i.spec->train.data = zp_data_at(trained, o->data);
  if (!i.spec || !zp_find_words(run, i.folder->path, &i.spec->train.data) || !build(&i))
    return finish(&i, ZP_EXIT_ERROR);
  i.request = zp_json_object();
  zp_json_set_string(i.request, "task", "eval");
  int status;
  zp_json *answer = ask(&i, &status);
  if (!answer) return finish(&i, status);
  double loss = zp_json_get_real(answer, "loss", NAN);
  const zp_json *losses = zp_json_get(answer, "losses");
  bool judged = zp_json_get(answer, "accuracy") != NULL; /* not of squared errors */
  if (!losses && judged) zp_json_set_real(answer, "perplexity", exp(loss));
  if (o->json) {
    zp_print_json(run->arena, answer);
    return finish(&i, status);
  }
  if (losses) {
    show_losses(&i, answer, losses);
    return finish(&i, status);
  }
  if (isnan(loss)) {
    printf("no sample has a label  %lld samples\n", (long long)zp_json_get_int(answer, "samples", 0));
    zp_json_free(answer);
    return finish(&i, status);
  }
  if (!judged) {
    printf("loss %.6f  %lld samples\n", loss, (long long)zp_json_get_int(answer, "samples", 0));
    zp_json_free(answer);
    return finish(&i, status);
  }
  zp_say_lines(stdout, "loss %.6f  perplexity %.4f  accuracy %.2f%%  %lld %s of %lld samples\n", loss, exp(loss),
               100 * zp_json_get_real(answer, "accuracy", NAN), (long long)zp_json_get_int(answer, "tokens", 0),
               zp_model_reads_tokens(i.spec->model) ? "tokens" : "labels",
               (long long)zp_json_get_int(answer, "samples", 0));
  zp_json_free(answer);
  return finish(&i, status);
}
