/* SPDX-License-Identifier: Apache-2.0 */
/* Loads models from strings: shared by the test_sema*.c files. */
#ifndef ZPLAN_SEMA_FIXTURE_H
#define ZPLAN_SEMA_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/sema.h>

typedef struct fixture {
  zp_arena *arena;
  zp_diags *diags;
  zp_spec *spec;
} fixture;

static inline fixture load_sources(const zp_source_text *sources, int count) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  zp_load_options options = {.library_dir = ZPLAN_SOURCE_DIR "/frontend/library", .model_only = true};
  f.spec = zp_load(f.arena, f.diags, sources[0].path, sources, count, &options);
  return f;
}

static inline fixture load_text(const char *text) {
  zp_source_text source = {"test.dz", text, strlen(text), false};
  return load_sources(&source, 1);
}

/* All diagnostics as printed; free it. */
static inline char *printed(const fixture *f) {
  char *text = NULL;
  size_t len = 0;
  FILE *out = open_memstream(&text, &len);
  zp_diags_print(f->diags, out, false);
  fclose(out);
  return text;
}

static inline void unload(fixture *f) { zp_arena_free(f->arena); }

/* The text must load; prints what went wrong otherwise. */
static inline fixture load_good(const char *text) {
  fixture f = load_text(text);
  char *shown = f.spec ? NULL : printed(&f);
  cr_assert(f.spec, "%s", shown ? shown : "");
  return f;
}

/* The text must fail with exactly `errors` errors (0: any number) whose output has all words, separated by '|'. */
static inline void check_failure(const char *title, fixture *f, int errors, const char *words) {
  char *shown = printed(f), *list = strdup(words);
  cr_expect(!f->spec, "%s: loaded", title);
  if (errors)
    cr_expect(zp_diags_errors(f->diags) == errors, "%s: %d errors\n%s", title, zp_diags_errors(f->diags), shown);
  for (char *word = strtok(list, "|"); word; word = strtok(NULL, "|"))
    cr_expect(strstr(shown, word), "%s: no \"%s\" in\n%s", title, word, shown);
  free(list);
  free(shown);
}

#endif
