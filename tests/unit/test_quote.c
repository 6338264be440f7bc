/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as words of other languages: every byte and every trigraph is read back by the language itself. */
#include "folder_testing.h"

#include <zplan/buf.h>
#include <zplan/json.h>
#include <zplan/quote.h>
#include <zplan/vec.h>

static zp_arena *arena;
static void set_up(void) {
  arena = zp_arena_new("test");
  make_folder();
}
static void tear_down(void) { zp_arena_free(arena); }
TestSuite(quote, .init = set_up, .fini = tear_down);

/* Each byte alone, between letters and before a digit; all together; what ends, begins or joins something somewhere. */
static zp_strings texts(void) {
  static const char *const tricks[] = {
      "?\?/\",}; __attribute__((constructor)) static void f(void) { puts(\"ran\"); } int x[] = {1, \"",
      "?\?=?\?(?\?/?\?)?\?'?\?<?\?!?\?>?\?-",
      "??\?/",
      "x?\?/\nint y;",
      "\\",
      "\\\\",
      "\\\n",
      "a\\",
      "*/ int z; /*",
      "/*",
      "//",
      "$(touch x)",
      "`touch x`",
      "${HOME}",
      "$$",
      "$",
      "#",
      "a#b",
      "\\#",
      "\\\\#",
      " #",
      "'",
      "''",
      "'\\''",
      "\"",
      " leading",
      "trailing ",
      "\ttab\t",
      "-rf",
      "--option",
      "a,b",
      "a)b",
      "(",
      "!",
      "!!",
      "~",
      "*",
      "",
      "%s%n%d",
      "</script><script>x()</script>",
      "<!--",
      "-->",
      "&amp;",
      "&#39;",
      "]]>",
      "\xc3\xa9",
      "\xe2\x80\xae"
      "abc",
      "\xc2\x9b"
      "31m",
      "\xff\xfe",
      "\xed\xa0\x80",
      "\xf0\x9f\x98\x80",
      "\x1b[31mred\x1b[0m",
      "\x1b]0;title\x07",
      "\r\n"};
  zp_strings all = {0};
  char every[256];
  for (int i = 1; i < 256; i++) {
    every[i - 1] = (char)i;
    zp_push(arena, &all, zp_format(arena, "%c", i));
    zp_push(arena, &all, zp_format(arena, "a%cb", i));
    zp_push(arena, &all, zp_format(arena, "??%c7", i));
  }
  every[255] = 0;
  zp_push(arena, &all, zp_strdup(arena, every));
  for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) zp_push(arena, &all, tricks[i]);
  return all;
}

static const char *in_folder(const char *name) { return zp_format(arena, "%s/%s", folder, name); }

static void write_file(const char *name, const char *text) {
  const char *error = NULL;
  cr_assert(zp_write_file(arena, in_folder(name), text, strlen(text), &error), "%s", error);
}

/* For a reader that compares: the texts, each with a zero byte after it. */
static void write_wanted(const zp_strings *all) {
  FILE *want = fopen(in_folder("want"), "wb");
  for (int i = 0; i < all->len; i++) fwrite(all->data[i], 1, strlen(all->data[i]) + 1, want);
  cr_assert_eq(fclose(want), 0);
}

/* Runs a command in the folder; what it prints are the texts, each with a zero byte after it. */
static void expect_texts(const char *command, const zp_strings *all) {
  const char *error = NULL;
  cr_assert_eq(system(zp_format(arena, "cd %s && { %s; } >out 2>err", folder, command)), 0, "%s: %s", command,
               zp_read_file(arena, in_folder("err"), NULL, &error));
  size_t len = 0;
  const char *out = zp_read_file(arena, in_folder("out"), &len, &error), *at = out;
  cr_assert(out, "%s", error);
  for (int i = 0; i < all->len; i++) {
    cr_assert_lt((size_t)(at - out), len, "%s: text %d is missing", command, i);
    cr_expect_str_eq(at, all->data[i], "%s: text %d", command, i);
    at += strlen(at) + 1;
  }
  cr_expect_eq((size_t)(at - out), len, "%s: %zu bytes too many", command, len - (size_t)(at - out));
}

Test(quote, c_and_cuda_read_the_same_bytes_and_comments_stay_comments) {
  zp_strings all = texts();
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "#include <stdio.h>\n#include <string.h>\nstatic const char *const all[] = {\n");
  for (int i = 0; i < all.len; i++)
    zp_buf_printf(&out, "    %s, /* %s */\n", zp_quote_c(arena, all.data[i]), zp_quote_c_comment(arena, all.data[i]));
  zp_buf_printf(&out,
                "};\ntypedef char as_many[sizeof all / sizeof *all == %d ? 1 : -1];\nint main(void) {\n"
                "  for (int i = 0; i < %d; i++) fwrite(all[i], 1, strlen(all[i]) + 1, stdout);\n  return 0;\n}\n",
                all.len, all.len);
  write_file("a.c", out.data);
  write_file("a.cpp", out.data);
  expect_texts("cc -std=c11 -Wall -Wextra -Werror a.c -o c && ./c", &all);
  expect_texts("c++ -std=c++17 -Wall -Wextra -Werror a.cpp -o cpp && ./cpp", &all);
  cr_expect_str_eq(zp_quote_c(arena, NULL), "NULL");
}

Test(quote, a_plain_comment_is_left_as_it_is) {
  cr_expect_str_eq(zp_quote_c_comment(arena, "gpt2.dz:14 is it? a*b / c"), "gpt2.dz:14 is it? a*b / c");
}

/* sh where there are no controls: dash has no $'...'. */
Test(quote, shells_read_one_word) {
  zp_strings all = texts(), plain = {0};
  zp_buf bash = zp_buf_new(arena), sh = zp_buf_new(arena);
  for (int i = 0; i < all.len; i++) {
    const char *word = zp_quote_shell(arena, all.data[i]);
    cr_expect(!strpbrk(word, "\n\r\x1b"), "one line without controls");
    zp_buf_printf(&bash, "set -- %s\n[ $# = 1 ] && printf '%%s\\0' \"$1\"\n", word);
    if (*word == '$') continue;
    zp_buf_printf(&sh, "set -- %s\n[ $# = 1 ] && printf '%%s\\0' \"$1\"\n", word);
    zp_push(arena, &plain, all.data[i]);
  }
  write_file("a.bash", bash.data);
  write_file("a.sh", sh.data);
  expect_texts("LC_ALL=C bash a.bash", &all);
  expect_texts("sh a.sh", &plain);
}

Test(quote, make_reads_the_value_of_a_variable) {
  zp_strings all = texts(), values = {0};
  zp_buf out = zp_buf_new(arena), words = zp_buf_new(arena);
  zp_buf_puts(&out, "shell_word = '$(subst ','\\'',$(1))'\n");
  for (int i = 0; i < all.len; i++) {
    const char *value = zp_quote_make(arena, all.data[i]);
    cr_expect_eq(value == NULL, strchr(all.data[i], '\n') != NULL, "only what has a line end has no value");
    if (!value) continue;
    zp_buf_printf(&out, "v%d = %s\n", i, value);
    zp_buf_printf(&words, " $(call shell_word,$(v%d))", i);
    zp_push(arena, &values, all.data[i]);
  }
  zp_buf_printf(&out, "all:\n\t@printf '%%s\\0'%s\n", words.data);
  write_file("Makefile", out.data);
  expect_texts("make -s", &values);
}

/* Both writers of JSON: of a text, and of a value over Jansson. Bytes that are no UTF-8 have become '?'. */
Test(quote, json_is_read_back_and_has_no_controls) {
  zp_strings all = texts();
  zp_json *root = zp_json_array();
  zp_buf out = zp_buf_new(arena);
  for (int i = 0; i < all.len; i++) {
    zp_json_append_string(root, all.data[i]);
    zp_buf_printf(&out, "%s%s", i ? "," : "[", zp_quote_json(arena, all.data[i]));
  }
  zp_buf_puts(&out, "]");
  write_file("ours.json", out.data);
  write_file("jansson.json", zp_json_text(arena, root, false));
  zp_json_free(root);
  write_wanted(&all);
  write_file("read.py",
             "import json\n"
             "want = [w.decode('utf-8', 'surrogateescape') for w in open('want', 'rb').read().split(b'\\0')[:-1]]\n"
             "want = [''.join('?' if '\\ud800' <= c <= '\\udfff' else c for c in w) for w in want]\n"
             "for name in ('ours.json', 'jansson.json'):\n"
             "    text = open(name, encoding='utf-8', newline='').read()\n"
             "    assert not [c for c in text if c < ' ' or '\\x7f' <= c < '\\xa0' or c == '\\u202e'], name\n"
             "    assert json.loads(text) == want, name\n");
  cr_expect_eq(system(zp_format(arena, "cd %s && python3 read.py", folder)), 0);
}

/* Text and attributes hold what a terminal would be shown. */
Test(quote, html_holds_the_text_and_no_more) {
  zp_strings all = texts();
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n");
  zp_strings wanted = {0};
  for (int i = 0; i < all.len; i++) {
    const char *html = zp_quote_html(arena, all.data[i]), *shown = zp_quote_lines(arena, all.data[i]);
    zp_buf_printf(&out, "<pre title=\"%s\" class='%s'>%s</pre>", html, html, html);
    zp_push(arena, &wanted, shown);
  }
  write_wanted(&wanted);
  write_file("a.html", out.data);
  write_file("read.py",
             "from html.parser import HTMLParser\n"
             "seen = []\n"
             "class Reader(HTMLParser):\n"
             "    def handle_starttag(self, tag, attrs):\n"
             "        assert tag in ('meta', 'pre'), tag\n"
             "        self.text, self.attrs = '', dict(attrs)\n"
             "    def handle_data(self, data): self.text = getattr(self, 'text', '') + data\n"
             "    def handle_endtag(self, tag): seen.append((self.text, self.attrs['title'], self.attrs['class']))\n"
             "    def handle_comment(self, data): raise SystemExit('a comment')\n"
             "r = Reader()\n"
             "r.feed(open('a.html', encoding='utf-8', newline='').read())\n"
             "r.close()\n"
             "want = open('want', encoding='utf-8', newline='').read().split('\\0')[:-1]\n"
             "assert seen == [(w, w, w) for w in want]\n");
  cr_expect_eq(system(zp_format(arena, "cd %s && python3 read.py", folder)), 0);
}

/* What is shown is printable UTF-8; what was printable is left as it was. */
Test(quote, terminals_are_given_no_controls) {
  zp_strings all = texts();
  for (int i = 0; i < all.len; i++) {
    const char *line = zp_quote_terminal(arena, all.data[i]);
    for (const unsigned char *c = (const unsigned char *)line; *c; c++) {
      cr_expect(*c >= 0x20 && *c != 0x7f, "text %d", i);
      cr_expect(!(c[0] == 0xc2 && c[1] < 0xa0), "text %d has a control of C1", i);
    }
  }
  cr_expect_str_eq(zp_quote_terminal(arena, "a\x1b[31m\n\t\x7f"
                                            "b"),
                   "a\\x1b[31m\\x0a\\x09\\x7fb");
  cr_expect_str_eq(zp_quote_lines(arena, "a\n\tb\r"), "a\n\tb\\x0d");
  cr_expect_str_eq(zp_quote_terminal(arena, "\xc2\x9b|\xe2\x80\xae|\xff|\xc3\xa9|\xf0\x9f\x98\x80|\xed\xa0\x80"),
                   "\\u009b|\\u202e|\\xff|\xc3\xa9|\xf0\x9f\x98\x80|\\xed\\xa0\\x80");
}
