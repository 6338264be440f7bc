/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a launch of Megatron-LM into flags. A flag is one of three: it is read (megatron.h), it changes nothing that
 * a plan knows, or it is named in a message (megatron_others.def). Any other word is an error. */
#include "megatron.h"

#include <errno.h>
#include <stdlib.h>

typedef enum takes { NONE, INT, REAL, TEXT } takes;
static const struct {
  const char *name;
  takes takes;
} flags[] = {
#define MEGATRON_ROW(id, flag, takes, file) {flag, takes},
    ZP_MEGATRON_FLAGS(MEGATRON_ROW) MEGATRON_READ(MEGATRON_ROW)
#undef MEGATRON_ROW
};

typedef enum other_kind { NOTHING, NAMED, REFUSED } other_kind;
/* Rows of megatron_others.def. */
static const struct {
  other_kind kind;
  const char *names, *text;
} others[] = {
#define MEGATRON_NOTHING(names) {NOTHING, names, NULL},
#define MEGATRON_NAMED(names, text) {NAMED, names, text},
#define MEGATRON_REFUSED(names, text) {REFUSED, names, text},
#include "megatron_others.def"
};
enum { N_OTHERS = sizeof others / sizeof *others };

/* Values with which a flag of these tables says what the program does without it. */
static const struct {
  const char *name, *value;
} harmless[] = {{"--moe-layer-freq", "1"},
                {"--softmax-type", "vanilla"},
                {"--mtp-num-layers", "0"},
                {"--rotary-percent", "1.0"},
                {"--rotary-percent", "1"},
                {"--cuda-graph-impl", "none"},
                {"--exp-avg-dtype", "fp32"},
                {"--exp-avg-sq-dtype", "fp32"},
                {"--main-grads-dtype", "fp32"},
                {"--main-params-dtype", "fp32"},
                {"--cpu-offloading-num-layers", "0"},
                {"--rotary-seq-len-interpolation-factor", "1"}};

static bool is_harmless(const char *name, const char *value) {
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (strcmp(harmless[i].name, name) == 0 && strcmp(harmless[i].value, value) == 0) return true;
  return false;
}

const char *megatron_name(megatron_flag flag) { return flags[flag].name; }
bool megatron_has(const megatron *m, megatron_flag flag) { return m->given[flag].is; }
int64_t megatron_int(const megatron *m, megatron_flag flag, int64_t missing) {
  return m->given[flag].is ? m->given[flag].whole : missing;
}
double megatron_real(const megatron *m, megatron_flag flag, double missing) {
  return m->given[flag].is ? m->given[flag].real : missing;
}
const char *megatron_text(const megatron *m, megatron_flag flag, const char *missing) {
  return m->given[flag].is ? m->given[flag].text : missing;
}

const char *megatron_from(const megatron *m, megatron_flag flag) {
  const megatron_given *g = &m->given[flag];
  if (!g->is) return zp_format(m->l->arena, "%s, by default", flags[flag].name);
  return *g->text ? zp_format(m->l->arena, "%s %s", flags[flag].name, g->text) : flags[flag].name;
}

void megatron_clash(megatron *m, megatron_flag a, megatron_flag b, const char *why) {
  if (!m->given[a].is || !m->given[b].is) return;
  zp_diag *d =
      launch_complain(m->l, m->given[b].at, "%s and %s contradict each other: %s", flags[a].name, flags[b].name, why);
  zp_diag_also(d, m->given[a].at, "the other one");
}

static zp_span join(zp_span a, zp_span b) {
  return a.file == b.file && b.end > a.begin ? (zp_span){a.file, a.begin, b.end} : a;
}

/* ---- one flag ---- */

typedef struct word {
  const char *name; /* "--num-layers" */
  zp_span at;
  const char *text; /* of its values */
  int values;
  bool unknown, open;
  zp_span open_test;
} word;

static const char *const expected[] = {
    [NONE] = "nothing", [INT] = "a whole number", [REAL] = "a number", [TEXT] = "a value"};

static bool read_number(megatron *m, const word *w, takes kind, megatron_given *g) {
  char *end = NULL;
  errno = 0;
  if (kind == INT) {
    g->whole = strtoll(w->text, &end, 10);
    g->real = (double)g->whole;
  } else {
    g->real = strtod(w->text, &end);
  }
  bool huge = kind == INT ? g->whole > INT64_C(1) << 50 || g->whole < -1 : !(g->real > -1e300 && g->real < 1e300);
  if (w->values == 1 && end != w->text && !*end && !errno && !huge) return true;
  launch_complain(m->l, w->at, "%s takes %s, not `%s`", w->name, expected[kind], w->text);
  return false;
}

static void take_flag(megatron *m, const word *w, megatron_flag flag, bool over) {
  takes kind = flags[flag].takes;
  megatron_given g = {.is = true, .at = w->at, .text = w->text}, *old = &m->given[flag];
  if (kind == NONE && w->values > 0) {
    launch_complain(m->l, w->at, "%s takes no value, and `%s` follows it", w->name, w->text);
    return;
  }
  if (kind != NONE && w->values == 0) {
    launch_complain(m->l, w->at, "%s wants %s", w->name, expected[kind]);
    return;
  }
  if ((kind == INT || kind == REAL) && w->unknown) {
    zp_diag *d =
        launch_complain(m->l, w->at, "the script does not say what `%s` is, the value of %s", w->text, w->name);
    zp_diag_help(d, "give it after `--`: -- %s %s", w->name, kind == INT ? "N" : "X");
    return;
  }
  if ((kind == INT || kind == REAL) && !read_number(m, w, kind, &g)) return;
  if (old->is && !over && strcmp(old->text, g.text) != 0) {
    zp_diag *d = launch_complain(m->l, w->at, "%s is given twice, as %s and as %s", w->name, old->text, g.text);
    zp_diag_also(d, old->at, "the first one");
    return;
  }
  if (old->is && over && strcmp(old->text, g.text) != 0)
    launch_note(m->l, "%s %s after `--` takes the place of %s", w->name, g.text, old->text);
  *old = g;
}

/* Flags that exports write and that decide nothing here: data, logs, checkpoints, kernels, how a loss scale moves. */
static const megatron_flag without_effect[] = {
    F_LOG_INTERVAL,       F_SAVE,          F_LOAD,        F_SAVE_INTERVAL,  F_EXIT_SIGNAL,
    F_EVAL_ITERATIONS,    F_EVAL_INTERVAL, F_MOCK_DATA,   F_IMPLEMENTATION, F_DISPATCHER,
    F_DISPATCHER_BACKEND, F_GROUPED_GEMM,  F_META_DEVICE, F_CKPT_FORMAT,    F_NO_FUSED_ACCUMULATION,
    F_PRECISION_AWARE,    F_PAD_CAPACITY,  F_DROP_POLICY, F_MIN_SCALE,      F_INITIAL_SCALE,
    F_HYSTERESIS,         F_WSD_STYLE,     F_GROUP};

static bool decides(megatron_flag flag) {
  for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++)
    if (without_effect[i] == flag) return false;
  return true;
}

static int find_flag(const char *name) {
  for (int i = 0; i < MEGATRON_FLAG_COUNT; i++)
    if (strcmp(flags[i].name, name) == 0) return i;
  return -1;
}

static int find_other(const char *name) {
  for (int i = 0; i < N_OTHERS; i++)
    if (launch_among(others[i].names, name + 2)) return i;
  return -1;
}

/* All names of the tables, for spelling. */
static const char *closest(megatron *m, const char *name) {
  zp_strings names = {0};
  for (int i = 0; i < MEGATRON_FLAG_COUNT; i++) zp_push(m->l->arena, &names, flags[i].name);
  for (int i = 0; i < N_OTHERS; i++)
    for (const char *at = others[i].names; *at; at += strspn(at, " ")) {
      size_t n = strcspn(at, " ");
      zp_push(m->l->arena, &names, zp_format(m->l->arena, "--%.*s", (int)n, at));
      at += n;
    }
  return zp_closest(name, names.data, names.len);
}

static void take_word(megatron *m, const word *w, bool over) {
  int flag = find_flag(w->name);
  if (flag >= 0 && !decides((megatron_flag)flag)) return;
  if (flag >= 0 && w->open && !(m->given[flag].is && strcmp(m->given[flag].text, w->text) == 0)) {
    zp_diag *d =
        launch_complain(m->l, w->at, "the script does not say whether %s is given: that is left to a test", w->name);
    zp_diag_also(d, w->open_test, "the test");
    zp_diag_help(d, "write the script's flags as they come out, or what the test compares");
    return;
  }
  if (flag >= 0) {
    take_flag(m, w, (megatron_flag)flag, over);
    return;
  }
  int other = find_other(w->name);
  if (other < 0) {
    const char *near = closest(m, w->name);
    zp_diag *d = launch_complain(m->l, w->at, "%s is no flag of Megatron-LM (" ZP_MEGATRON_VERSION ")", w->name);
    if (near) zp_diag_help(d, "did you mean %s?", near);
    return;
  }
  if (is_harmless(w->name, w->text)) return;
  if (others[other].kind == NAMED)
    launch_note(m->l, "%s%s%s is not planned: %s", w->name, *w->text ? " " : "", w->text, others[other].text);
  if (others[other].kind == REFUSED)
    launch_refuse(m->l, w->at, "%s%s%s: %s", w->name, *w->text ? " " : "", w->text, others[other].text);
}

static bool is_flag(const char *text) { return strncmp(text, "--", 2) == 0 && text[2]; }

void megatron_take(megatron *m, const shell_words *words, bool over) {
  zp_arena *arena = m->l->arena;
  for (int i = 0; i < words->len;) {
    const shell_word *first = &words->data[i++];
    if (!is_flag(first->text)) {
      if (first->unknown)
        launch_note(m->l, "`%s` is no flag, and only a run would tell what it is: it was left out", first->text);
      else
        launch_complain(m->l, first->at, "`%s` belongs to no flag", first->text);
      continue;
    }
    const char *equals = strchr(first->text, '=');
    word w = {.name = first->text,
              .at = first->at,
              .text = equals ? equals + 1 : "",
              .values = equals ? 1 : 0,
              .unknown = equals && first->unknown,
              .open = first->open,
              .open_test = first->open_test};
    if (equals) w.name = zp_strndup(arena, first->text, (size_t)(equals - first->text));
    for (; !equals && i < words->len && !is_flag(words->data[i].text); i++) {
      w.text = w.values++ ? zp_format(arena, "%s %s", w.text, words->data[i].text) : words->data[i].text;
      w.unknown |= words->data[i].unknown;
      if (!w.open && words->data[i].open) w.open_test = words->data[i].open_test;
      w.open |= words->data[i].open;
      w.at = join(w.at, words->data[i].at);
    }
    take_word(m, &w, over);
  }
}
