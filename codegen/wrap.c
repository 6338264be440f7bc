/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks long lines of generated text: printers of tables and calls need not count columns. */
#include "wrap.h"

#include <limits.h>
#include <string.h>

enum { CONTINUED = 4, COLUMNS = ZP_GENERATED_COLUMNS };

/* What is open where a line begins. A comment goes on `comment` columns in, where its stars stand. */
typedef struct place {
  bool in_comment;
  size_t comment;
} place;

/* Characters that belong together: a string, a character constant, the begin or end of a comment; 1 for all else. */
static size_t token_length(const char *at, bool in_comment) {
  if (strncmp(at, in_comment ? "*/" : "/*", 2) == 0) return 2;
  if (in_comment || (*at != '"' && *at != '\'')) return 1;
  size_t n = 1;
  while (at[n] && at[n] != '\n' && at[n] != *at) n += at[n] == '\\' && at[n + 1] ? 2 : 1;
  return at[n] == *at ? n + 1 : n;
}

/* Where to break a line that is too long: the number of characters that stay, 0: nowhere. Code is rather broken than
 * the comment after it. *after: what is open there. */
static size_t find_break(const char *line, size_t indent, place now, place *after) {
  enum { AT_COMMA, AT_SPACE, IN_COMMENT, NOWHERE };
  int depth = 0, best_kind = NOWHERE, best_depth = INT_MAX;
  size_t best = 0;
  for (size_t i = 0; i <= COLUMNS && line[i] && line[i] != '\n';) {
    if (line[i] == ' ' && i > indent + CONTINUED) {
      bool comma = !now.in_comment && line[i - 1] == ',', star = now.in_comment && i <= now.comment + 2;
      int kind = now.in_comment ? IN_COMMENT : comma ? AT_COMMA : AT_SPACE;
      int at_depth = kind == AT_COMMA ? depth : 0;
      bool better = kind < best_kind || (kind == best_kind && at_depth <= best_depth);
      if (better && !star) best = i, best_kind = kind, best_depth = at_depth, *after = now;
    }
    size_t n = token_length(line + i, now.in_comment);
    if (n == 2 && (line[i] == '/' || line[i] == '*')) {
      now.in_comment = line[i] == '/';
      now.comment = i;
    } else if (!now.in_comment && strchr("([{", line[i])) {
      depth++;
    } else if (!now.in_comment && strchr(")]}", line[i])) {
      depth--;
    }
    i += n;
  }
  return best;
}

static void pass_over(const char *line, size_t length, place *now) {
  for (size_t i = 0; i < length;) {
    size_t n = token_length(line + i, now->in_comment);
    if (n == 2 && (line[i] == '/' || line[i] == '*')) *now = (place){line[i] == '/', i};
    i += n;
  }
}

/* One line, which may be continued; line: ends with a newline or zero. */
static void wrap_line(zp_buf *out, const char *line, place *now) {
  size_t indent = strspn(line, " ");
  for (;;) {
    size_t length = strcspn(line, "\n");
    place after = *now;
    size_t kept = length > COLUMNS && *line != '#' ? find_break(line, strspn(line, " "), *now, &after) : 0;
    if (kept == 0) {
      pass_over(line, length, now);
      zp_buf_put(out, line, length);
      return;
    }
    zp_buf_put(out, line, kept);
    size_t stars = after.in_comment ? after.comment + 1 : 0;
    zp_buf_puts(out, "\n");
    line = zp_format(out->arena, "%*s%s%.*s", (int)(after.in_comment ? stars : indent + CONTINUED), "",
                     after.in_comment ? "* " : "", (int)(length - kept - 1), line + kept + 1);
    *now = after;
  }
}

const char *zp_wrap(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  place now = {0};
  for (const char *line = text; *line;) {
    wrap_line(&out, line, &now);
    line += strcspn(line, "\n");
    if (*line == '\n') {
      zp_buf_puts(&out, "\n");
      line++;
    }
  }
  return out.data ? out.data : "";
}
