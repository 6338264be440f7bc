/* SPDX-License-Identifier: Apache-2.0 */
/* A run goes on from a checkpoint: what of data, batch and seed is not what it was.
 *
 * What is kept is the number of samples that have been used. Another batch goes on with the sample after the last one,
 * another sample length after the last token: both are reported. What cannot be continued, because other samples would
 * come again or never, is rejected unless --accept-changes is given:
 *
 *   other tokens                     accepted: begins at the first sample of the new data
 *   another order, or seed of it     accepted: as many samples of the new order are passed over
 *   another sample length, shuffled  accepted: likewise, as many tokens
 *   another sample length, mixed,    accepted: likewise, all sources together
 *   or pieces of documents
 *   other masks                      accepted: the same samples are masked by the new rule
 *   another seed of the run          accepted: dropout goes on with other random numbers
 *
 * Data that only became longer (the first tokens are those of before) goes on where it was in the first pass over
 * sequential data. */
#include <assert.h>
#include <stdarg.h>
#include <string.h>
#include "checkpoint.h"
#include "state.h"

typedef struct changes {
  const zpr *c;
  const zpr_manifest *m;
  zpr_data_identity now;
  int64_t sequence;          /* tokens of a sample */
  bool begins_alike, longer; /* than what the checkpoint was trained on */
  char refused[400], told[400];
} changes;

/* "a; b" */
__attribute__((format(printf, 3, 4))) static void add(char *list, size_t size, const char *format, ...) {
  size_t length = strlen(list);
  if (length > 0 && length + 3 < size) length += (size_t)snprintf(list + length, size - length, "; ");
  va_list args;
  va_start(args, format);
  vsnprintf(list + length, size - length, format, args);
  va_end(args);
}
#define REFUSE(...) add(ch->refused, sizeof ch->refused, __VA_ARGS__)
#define TELL(...) add(ch->told, sizeof ch->told, __VA_ARGS__)

/* The end of a long path says most. */
static const char *tail(const char *path) {
  enum { MOST = 60 };
  size_t length = strlen(path);
  return length > MOST ? path + length - MOST : path;
}

static const char *order(bool shuffled) { return shuffled ? "shuffled" : "sequential"; }

static const char *masks(const zpr_data_identity *d) { return d->masks[0] ? d->masks : "none"; }

/* What an identity counts of the data. */
static const char *counted(const zpr_data_identity *d) {
  return d->kind == ZPR_NPY ? "samples" : d->kind == ZPR_MIX ? "tokens or samples" : "tokens";
}

static const char *data_text(char buf[160], const zpr_data_identity *d) {
  if (d->tokens > 0)
    snprintf(buf, 160, "%s\"%.60s\" (%lld %s, hash %08llx)",
             d->kind == ZPR_LINES       ? "lines of "
             : d->kind == ZPR_DOCUMENTS ? "documents of "
                                        : "",
             tail(d->path), (long long)d->tokens, counted(d), (unsigned long long)(d->hash & 0xffffffff));
  else
    snprintf(buf, 160, "%s", zpr_data_kind_name(d->kind));
  return buf;
}

static int64_t windows(const zpr_data_identity *d, int64_t sequence) {
  if (d->kind == ZPR_NPY) return d->tokens;
  return d->tokens > sequence ? (d->tokens - 1) / sequence : 1;
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* The first sample of the new length after all tokens that were used. */
static int64_t after_resizing(const changes *ch) {
  const zpr_manifest *m = ch->m;
  int64_t S = ch->sequence;
  /* Made up: any sample that was not used yet. Arrays, lines: samples stay what they are. */
  if (ch->now.tokens == 0 || ch->now.kind == ZPR_NPY || ch->now.kind == ZPR_LINES) return m->samples;
  if (ch->now.kind == ZPR_MIX || ch->now.kind == ZPR_DOCUMENTS) return ceil_div(m->samples * m->sequence, S);
  int64_t W = windows(&ch->now, m->sequence), passes = m->samples / W, used = m->samples % W * m->sequence;
  return passes * windows(&ch->now, S) + ceil_div(used, S);
}

static void compare_data(changes *ch) {
  char before[160], after[160];
  const zpr_data_identity *was = &ch->m->data, *is = &ch->now;
  if (was->kind == ZPR_NO_DATA || is->kind == ZPR_NO_DATA) return;
  bool unknown = was->kind == ZPR_DOCUMENTS; /* how many there were */
  if (!ch->begins_alike || (ch->longer && (unknown || was->shuffled || ch->m->samples > windows(was, ch->m->sequence))))
    REFUSE("data %s, this run has %s", data_text(before, was), data_text(after, is));
  else if (ch->longer)
    TELL("data of %lld %s, now there are %lld, the first ones alike", (long long)was->tokens, counted(was),
         (long long)is->tokens);
  if (was->shuffled != is->shuffled && is->tokens > 0)
    REFUSE("%s data, this run has %s", order(was->shuffled), order(is->shuffled));
  else if (was->seed != is->seed)
    REFUSE("data of seed %lld, this run has %lld", (long long)was->seed, (long long)is->seed);
  if (strcmp(was->masks, is->masks) != 0) REFUSE("masks (%s), this run has (%s)", masks(was), masks(is));
}

static void compare(changes *ch) {
  const zpr_manifest *m = ch->m;
  const zpr_program *p = ch->c->program;
  if (m->batch == 0) return;
  if (m->seed != (int64_t)p->seed) REFUSE("seed %lld, this run has %lld", (long long)m->seed, (long long)p->seed);
  if (m->samples == 0) return; /* nothing is trained yet */
  compare_data(ch);
  bool mixed = ch->now.kind == ZPR_MIX, pieces = ch->now.kind == ZPR_DOCUMENTS;
  if (m->sequence != ch->sequence && (mixed || pieces || ch->now.shuffled) && ch->now.tokens > 0)
    REFUSE("samples of %lld tokens, %s, this run has %lld", (long long)m->sequence,
           mixed    ? "mixed"
           : pieces ? "of documents"
                    : "shuffled",
           (long long)ch->sequence);
  else if (m->sequence != ch->sequence)
    TELL("samples of %lld tokens, now %lld", (long long)m->sequence, (long long)ch->sequence);
  if (m->batch != p->batch) TELL("batch %lld, now %lld", (long long)m->batch, (long long)p->batch);
}

int64_t zpr_resume_sample(const zpr *c, const zpr_manifest *m, zpr_error *error) {
  assert(c->rank == 0);
  const zpr_data *data = c->state->data;
  changes change = {.c = c, .m = m, .now = zpr_data_identify(data)}, *ch = &change;
  ch->sequence = data ? zpr_data_length(data) : c->program->sequence;
  if (m->batch == 0) {
    fprintf(stderr, "note: the checkpoint does not say what it was trained on: not compared with this run's data\n");
    return m->samples >= 0 ? m->samples : m->step * c->program->batch;
  }
  bool known = m->data.kind != ZPR_NO_DATA && ch->now.kind != ZPR_NO_DATA;
  ch->begins_alike = !known || zpr_data_begins_with(data, &m->data);
  ch->longer = known && ch->now.tokens > m->data.tokens;
  compare(ch);
  bool accepts = c->state->options.accept_changes;
  if (ch->refused[0] && !accepts) {
    zpr_error_set(error, "Z0814", "the checkpoint of step %lld was trained with %s; --accept-changes goes on with it",
                  (long long)m->step, ch->refused);
    return 0;
  }
  int64_t next = !ch->begins_alike ? 0 : m->sequence != ch->sequence ? after_resizing(ch) : m->samples;
  if (ch->refused[0] || ch->told[0])
    zpr_say_line(
        stderr, "warning: the checkpoint of step %lld was trained with %s%s%s; goes on with sample %lld of the data",
        (long long)m->step, ch->refused, ch->refused[0] && ch->told[0] ? "; " : "", ch->told, (long long)next + 1);
  return next;
}
