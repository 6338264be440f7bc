/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: any layout loads any other's; which folders there are, and which of them count. */
#define _XOPEN_SOURCE 700
#include "checkpoint_testing.h"

TestSuite(rt_checkpoint, .init = setup, .fini = teardown);

Test(rt_checkpoint, any_layout_loads_any_other) {
  for (int from = 0; from < LAYOUTS; from++) every_layout_loads(ZPK_F64, from);
  every_layout_loads(ZPK_F32, 1);
}

Test(rt_checkpoint, files_are_the_same_for_all_layouts) {
  for (int i = 0; i < LAYOUTS; i++) {
    layout *l = make_layout(layouts[i][0], layouts[i][1], layouts[i][2], layouts[i][3], ZPK_F32);
    save_all(l, i);
    free(l);
  }
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
  for (int f = 0; f < 2; f++)
    for (int i = 1; i < LAYOUTS; i++) {
      char path[64];
      size_t bytes, other_bytes;
      snprintf(path, sizeof path, "step_000000/%s", names[f]);
      char *text = file_bytes(path, &bytes);
      snprintf(path, sizeof path, "step_%06d/%s", i, names[f]);
      char *other = file_bytes(path, &other_bytes);
      cr_expect(bytes == other_bytes && memcmp(text, other, bytes) == 0, "layout %d, %s", i, names[f]);
      free(text);
      free(other);
    }
}

Test(rt_checkpoint, header_is_what_other_readers_expect) {
  layout *l = make_layout(2, 1, 1, 0, ZPK_F32);
  size_t bytes;
  save_all(l, 7);
  char *text = file_bytes("step_000007/model.safetensors", &bytes);
  uint64_t header = (unsigned char)text[0] | (uint64_t)(unsigned char)text[1] << 8;
  static const char start[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"h.0.attn.weight\":{\"dtype\":\"F32\",\"shape\":[6,30],"
      "\"data_offsets\":[0,720]},\"h.0.ln.gain\":{\"dtype\":\"F32\",\"shape\":[6],"
      "\"data_offsets\":[720,744]},";
  cr_expect(memcmp(text + 8, start, strlen(start)) == 0);
  cr_expect_eq(header % 8, 0);
  cr_expect_eq(bytes, 8 + header + 4 * (LAYERS * (180 + 6) + 42));
  float element; /* row 2, column 13 of h.0.attn.weight, row-major */
  memcpy(&element, text + 8 + header + 4 * (2 * 30 + 13), 4);
  cr_expect_eq(element, (float)value_of("h.0.attn.weight", 0, 2 * 30 + 13));
  free(text);
  free(l);
}

Test(rt_checkpoint, sgd_has_one_moment) {
  layout *l = make_layout(2, 1, 2, 1, ZPK_F64);
  int64_t step = 3;
  size_t bytes;
  l->program.optimizer = 2;
  l->program.momentum = 0.9; /* without it there is none */
  make_stage(l, 0, 0, LAYERS);
  save_all(l, step);
  char *text = file_bytes("step_000003/optimizer.safetensors", &bytes);
  cr_expect(strstr(text + 8, "\"wte.momentum_buffer\"") && !strstr(text + 8, "exp_avg"));
  each_rank(l, load_rank, &step);
  free(text);
  free(l);
}

/* ---- folders ---- */

Test(rt_checkpoint, keeps_the_newest_and_names_the_latest) {
  size_t bytes;
  for (int64_t step = 10; step <= 50; step += 10) zpr_checkpoint_save(&base, folder, step, 2);
  cr_expect(!exists("step_000010") && !exists("step_000030") && exists("step_000040") && exists("step_000050"));
  char *latest = file_bytes("latest", &bytes);
  cr_expect_str_eq(latest, "step_000050\n");
  free(latest);
  cr_expect_eq(leftovers(folder), 0);
  zpr_checkpoint_save(&base, folder, 50, 2); /* again: replaced */
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 50);
  zpr_checkpoint_save(&base, folder, 20, 1); /* resumed from an older one: later steps stay, latest counts */
  cr_expect(exists("step_000050"));
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 20);
}

Test(rt_checkpoint, incomplete_folders_do_not_count) {
  char path[ZPR_PATH];
  cr_expect_eq(zpr_checkpoint_load(&base, folder), -1);
  cr_expect_eq(zpr_checkpoint_load(&base, zpr_path(path, "%s/nowhere", folder)), -1);
  zpr_checkpoint_save(&base, folder, 5, 0);
  mkdir(zpr_path(path, "%s/step_000009", folder), 0777);
  mkdir(zpr_path(path, "%s/.step_000011.tmp-1", folder), 0777);
  unlink(zpr_path(path, "%s/latest", folder));
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 5);
  zpr_checkpoint_save(&base, folder, 6, 0);
  cr_expect_eq(leftovers(folder), 0);
}

/* ---- what somebody else has put there ---- */

static void put_text(const char *name, const char *text) {
  char path[ZPR_PATH];
  FILE *out = fopen(zpr_path(path, "%s/%s", folder, name), "w");
  cr_assert(out && fputs(text, out) >= 0 && fclose(out) == 0, "%s", path);
}

static void expect_file(const char *name, const char *text) {
  char path[ZPR_PATH], got[64] = "";
  FILE *in = fopen(zpr_path(path, "%s/%s", folder, name), "r");
  cr_expect(in && fgets(got, sizeof got, in) && strcmp(got, text) == 0, "%s: \"%s\"", path, got);
  if (in) fclose(in);
}

static void put_link(const char *target, const char *name) {
  char path[ZPR_PATH];
  cr_assert_eq(symlink(target, zpr_path(path, "%s/%s", folder, name)), 0, "%s", path);
}

static bool is_there(const char *name) {
  char path[ZPR_PATH];
  struct stat status;
  return lstat(zpr_path(path, "%s/%s", folder, name), &status) == 0;
}

/* A folder of checkpoints that came from elsewhere may hold links: they are removed, and nothing that they lead to. */
Test(rt_checkpoint, links_are_not_followed_when_something_is_removed_or_written) {
  char path[ZPR_PATH];
  mkdir(zpr_path(path, "%s/home", folder), 0777);
  mkdir(zpr_path(path, "%s/ck", folder), 0777);
  for (int i = 0; i < 4; i++) {
    static const char *const files[] = {"home/manifest.json", "home/model.safetensors", "home/diary", "home/.profile"};
    put_text(files[i], "mine");
  }
  put_link("../home", "ck/step_000001");        /* pruned */
  put_link("../home", "ck/.step_000009.tmp-7"); /* a leftover */
  put_link("../home/diary", "ck/latest.tmp");
  put_link("../home/.profile", "ck/latest");
  zpr_path(path, "%s/ck", folder);
  for (int64_t step = 10; step <= 30; step += 10) zpr_checkpoint_save(&base, path, step, 2);
  cr_expect(!is_there("ck/step_000001") && !is_there("ck/step_000010") && !is_there("ck/.step_000009.tmp-7"));
  expect_file("ck/latest", "step_000030\n");
  expect_file("home/manifest.json", "mine");
  expect_file("home/model.safetensors", "mine");
  expect_file("home/diary", "mine");
  expect_file("home/.profile", "mine");
  put_link("../home/diary", "ck/.lock");
  zpr_error error = {0};
  cr_expect(!zpr_lock_folder(path, &error) && strcmp(error.code, "Z0811") == 0, "%s", error.text);
  expect_file("home/diary", "mine");
}

Test(rt_checkpoint, a_pruned_folder_keeps_what_no_checkpoint_has) {
  zpr_checkpoint_save(&base, folder, 1, 1);
  put_text("step_000001/notes.txt", "mine");
  zpr_checkpoint_save(&base, folder, 2, 1);
  expect_file("step_000001/notes.txt", "mine");
  cr_expect(!is_there("step_000001/manifest.json") && !is_there("step_000001/model.safetensors"));
  zpr_error error = {0};
  cr_expect(zpr_remove_checkpoints(folder, &error), "%s", error.text);
  expect_file("step_000001/notes.txt", "mine");
  cr_expect(!is_there("step_000002"));
}

/* A manifest that cannot be removed, here because it is a folder, still answers for the tensors alongside it. */
Test(rt_checkpoint, what_a_manifest_answers_for_stays_as_long_as_it) {
  char path[ZPR_PATH], manifest[ZPR_PATH];
  zpr_checkpoint_save(&base, folder, 1, 1);
  zpr_path(path, "%s/step_000001", folder);
  unlink(zpr_path(manifest, "%s/manifest.json", path));
  cr_assert_eq(mkdir(manifest, 0777), 0);
  zpr_remove_folder(path);
  cr_expect(is_there("step_000001/model.safetensors") && is_there("step_000001/optimizer.safetensors"));
  cr_assert_eq(rmdir(manifest), 0);
  zpr_remove_folder(path);
  cr_expect(!is_there("step_000001"));
}

/* Nobody writes to them: to open one for reading as a file would wait for ever. */
Test(rt_checkpoint, pipes_are_not_waited_for, .timeout = 30) {
  char path[ZPR_PATH];
  mkfifo(zpr_path(path, "%s/latest", folder), 0666);
  cr_expect_eq(zpr_newest_step(folder), -1);
  zpr_checkpoint_save(&base, folder, 3, 1);
  unlink(zpr_path(path, "%s/step_000003/manifest.json", folder));
  mkfifo(path, 0666);
  zpr_manifest manifest;
  zpr_error error = {0};
  zpr_path(path, "%s/step_000003", folder);
  cr_expect(!zpr_manifest_check(&base, path, &manifest, &error) && strcmp(error.code, "Z0812") == 0);
}

Test(rt_checkpoint, missing_folders_are_made) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, zpr_path(path, "%s/a/b/c", folder), 1, 1);
  cr_expect_eq(zpr_checkpoint_load(&base, path), 1);
}
