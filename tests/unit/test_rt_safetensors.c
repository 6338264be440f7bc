/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files, for trainers and compiler: what is read, and what is wrong with the rest. */
#define _XOPEN_SOURCE 700
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <zplan/safetensors.h>

/* A file with this header and so many bytes of data. length: what the first 8 bytes say; 0: the header's. */
static zpr_header_end read_file(zpr_tensors *list, const char *header, uint64_t length, int data_bytes,
                                char why[ZPR_HEADER_WHY]) {
  FILE *file = tmpfile();
  cr_assert(file);
  if (!length) length = strlen(header);
  for (int i = 0; i < 8; i++) fputc((int)(length >> (8 * i) & 255), file);
  fputs(header, file);
  for (int i = 0; i < data_bytes; i++) fputc(0, file);
  fflush(file);
  zpr_header_end end = zpr_header_read(list, fileno(file), why);
  fclose(file);
  return end;
}

#define TENSOR(name, dtype, shape, begin, end)                                                                         \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

Test(rt_safetensors, headers) {
  static const struct {
    const char *header;
    int data_bytes;
    const char *why; /* NULL: it is read */
  } cases[] = {
      {"{}", 0, NULL},
      {"{" TENSOR("a", "F32", "[2,3]", 0, 24) "}  ", 24, NULL},
      {"{" TENSOR("b", "I64", "[]", 4, 12) "," TENSOR("a", "BOOL", "[4]", 0, 4) "," TENSOR("none", "F16", "[0,7]", 4,
                                                                                           4) "}",
       12, NULL},
      {"{\"__metadata__\":{\"format\":\"pt\",\"\\ud83d\\ude00\":\"\\ud83d\\ude00\"}," TENSOR("a", "BF16", "[1]", 0,
                                                                                             2) "}",
       2, NULL},
      {"{" TENSOR("\xc3\xa9", "U8", "[1]", 0, 1) "}", 1, NULL},
      {"[]", 0, "not a list of tensors"},
      {" {}", 0, "not a list of tensors"},
      {"{} x", 0, "not a list of tensors"},
      {"{\"a\":{}}", 0, "not a list of tensors"},
      {"{" TENSOR("\xff", "U8", "[1]", 0, 1) "}", 1, "not a list of tensors"},
      {"{" TENSOR("a", "U8", "[1.0]", 0, 1) "}", 1, "not a list of tensors"},
      {"{" TENSOR("a", "U8", "[-1]", 0, 1) "}", 1, "not a list of tensors"},
      {"{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "not a list of tensors"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, "not a list of tensors"},
      {"{" TENSOR("a", "F6", "[4]", 0, 4) "}", 4, "tensor \"a\" has the dtype \"F6\", which is not known"},
      {"{" TENSOR("a", "U8", "[4]", 0, 4) "," TENSOR("b", "U8", "[4]", 3, 7) "}", 7,
       "tensor \"b\" overlaps another one"},
      {"{" TENSOR("a", "U8", "[4]", 0, 4) "," TENSOR("b", "U8", "[4]", 5, 9) "}", 9,
       "tensor \"b\" overlaps another one, or leaves a hole"},
      {"{" TENSOR("a", "F32", "[4]", 0, 4) "}", 4, "the length of tensor \"a\" does not fit its shape"},
      {"{" TENSOR("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "does not fit its shape"},
      {"{" TENSOR("a", "F32", "[1]", 4, 0) "}", 4, "\"a\" overlaps another one, or leaves a hole"},
      {"{" TENSOR("a", "U8", "[4]", 0, 4) "}", 3, "its length is not what its header says"},
      {"{" TENSOR("a", "U8", "[4]", 0, 4) "}", 5, "its length is not what its header says"},
      {"{" TENSOR("a", "U8", "[1]", 0, 1) "," TENSOR("a", "U8", "[1]", 1, 2) "}", 2, "two tensors are named \"a\""}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    zpr_tensors list = {0};
    char why[ZPR_HEADER_WHY] = "";
    zpr_header_end end = read_file(&list, cases[i].header, 0, cases[i].data_bytes, why);
    cr_expect_eq(end, cases[i].why ? ZPR_HEADER_CORRUPT : ZPR_HEADER_READ, "%s: %s", cases[i].header, why);
    cr_expect(!cases[i].why || strstr(why, cases[i].why), "%s: %s", cases[i].header, why);
    zpr_tensors_free(&list);
  }
}

Test(rt_safetensors, tensors_come_by_name) {
  zpr_tensors list = {0};
  char why[ZPR_HEADER_WHY];
  const char *header = "{" TENSOR("b", "F32", "[2]", 0, 8) "," TENSOR("a", "F64", "[1,2]", 8, 24) "}";
  cr_assert_eq(read_file(&list, header, 0, 24, why), ZPR_HEADER_READ);
  cr_assert_eq(list.n, 2);
  cr_expect_str_eq(list.tensor[0].name, "a");
  cr_expect_str_eq(list.tensor[0].dtype, "F64");
  cr_expect(list.tensor[0].rank == 2 && list.tensor[0].shape[1] == 2);
  cr_expect(list.tensor[0].begin == 8 && list.tensor[0].end == 24);
  cr_expect_eq(list.data_start, 8 + (int64_t)strlen(header));
  cr_expect_eq(list.file_bytes, list.data_start + 24);
  zpr_tensors_free(&list);
}

Test(rt_safetensors, lengths_of_headers) {
  static const uint64_t lengths[] = {3, 100000001, UINT64_MAX, INT64_MAX};
  zpr_tensors list = {0};
  char why[ZPR_HEADER_WHY];
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    cr_expect_eq(read_file(&list, "{}", lengths[i], 0, why), ZPR_HEADER_CORRUPT);
    cr_expect(strstr(why, "its header's length is out of range"), "%s", why);
  }
}
