/* SPDX-License-Identifier: Apache-2.0 */
/* What this command is: version, commit, and the libraries that it was built with; as `zplan --version` and `zplan
 * doctor` show it. */
#include "driver.h"

#include <zplan/import.h>

#include <stdio.h>
#include <unistd.h>
#include <zplan_commit.h>

/* Libraries that trainers alone need. NULL: built without it. */
static const char *given(const char *version) { return zp_has_backend && *version ? version : NULL; }

typedef struct library {
  const char *name, *version, *needed_for; /* version NULL: without */
} library;
typedef ZP_VEC(library) libraries;

static libraries built_with(zp_arena *arena) {
  libraries rows = {0};
  const library all[] = {
      {"LLVM", given(ZPLAN_LLVM), "row kernels of trainers"},
      {"Jansson", zp_json_library(), "everything"},
      {"Expat", zp_xml_library(), "zplan import nccl"},
      {"PCRE2", zp_tokenizer_pcre2(arena), "tokenizer files"},
      {"libunistring", zp_tokenizer_unistring(arena), "tokenizer files"},
      {"liburing", given(ZPLAN_LIBURING), "NVMe through io_uring; without it pread, pwrite"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) zp_push(arena, &rows, all[i]);
  return rows;
}

const char *zp_version(void) { return ZPLAN_VERSION; }

const char *zp_version_line(zp_arena *arena) {
  return zp_format(arena, "zplan %s%s%s", ZPLAN_VERSION, *ZPLAN_COMMIT ? " commit " : "", ZPLAN_COMMIT);
}

void zp_print_version(zp_arena *arena) {
  libraries rows = built_with(arena);
  zp_say_line(stdout, "%s%s", zp_version_line(arena), zp_has_backend ? "" : ", plan-only");
  for (int i = 0; i < rows.len; i++)
    zp_say_lines(stdout, "%-12s %s\n", rows.data[i].name, rows.data[i].version ? rows.data[i].version : "without");
}

void zp_doctor_begin(zp_doctor *d) {
  libraries rows = built_with(d->arena);
  d->version = zp_format(d->arena, "%s%s", zp_version_line(d->arena), zp_has_backend ? "" : ", plan-only");
  for (int i = 0; i < rows.len; i++) {
    const library *l = &rows.data[i];
    zp_push(d->arena, &d->built_with, ((zp_finding){l->name, l->version, l->needed_for}));
  }
}

void zp_doctor_machine(zp_doctor *d) {
  int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
  zp_doctor_row(d, "cores", zp_format(d->arena, "%ld", sysconf(_SC_NPROCESSORS_ONLN)), "");
  zp_doctor_row(d, "memory", zp_show_gib(d->arena, bytes), "");
}
