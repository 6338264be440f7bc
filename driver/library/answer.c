/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: texts that outlive the call, or one message that needs no memory. */
#include "answer.h"

#include <stdio.h>
#include <stdlib.h>

#define NO_MEMORY "[{\"level\":\"error\",\"message\":\"out of memory\"}]"

const zplan_answer zp_answer_without_memory = {
    .status = ZPLAN_ERROR,
    .fixed_json = "{\"status\":1,\"messages\":" NO_MEMORY ",\"result\":null}",
    .fixed_messages = NO_MEMORY,
};

static void drop(zplan_answer *answer) {
  free(answer->json);
  free(answer->messages);
  free(answer->notes);
  answer->json = answer->messages = answer->notes = NULL;
}

bool zp_answer_fill(zplan_answer *answer, int status, const char *json, const char *messages, const char *notes) {
  answer->status = status;
  answer->json = strdup(json);
  answer->messages = strdup(messages);
  answer->notes = strdup(notes);
  if (answer->json && answer->messages && answer->notes) return true;
  drop(answer);
  return false;
}

/* A string of JSON, cut where room ends. Messages are ASCII but for names, whose other bytes become '?'. */
static void escape(char *out, size_t room, const char *text) {
  size_t n = 0;
  for (const char *c = text; *c && n + 3 < room; c++) {
    if (*c == '"' || *c == '\\') out[n++] = '\\';
    out[n++] = *c >= ' ' && *c < 0x7f ? *c : '?';
  }
  out[n] = '\0';
}

void zp_answer_give_up(zplan_answer *answer, int status, const char *why) {
  char text[1024];
  drop(answer);
  answer->status = status;
  escape(text, sizeof text, why);
  snprintf(answer->fixed_messages, FIXED_BYTES, "[{\"level\":\"error\",\"message\":\"%s\"}]", text);
  snprintf(answer->fixed_json, FIXED_BYTES,
           "{\"status\":%d,\"messages\":[{\"level\":\"error\",\"message\":\"%s\"}],\"result\":null}", status, text);
}

int zplan_status(const zplan_answer *answer) { return answer->status; }

const char *zplan_json(const zplan_answer *answer) { return answer->json ? answer->json : answer->fixed_json; }

const char *zplan_messages(const zplan_answer *answer) {
  return answer->messages ? answer->messages : answer->fixed_messages;
}

const char *zplan_notes(const zplan_answer *answer) { return answer->notes ? answer->notes : ""; }

void zplan_free(zplan_answer *answer) {
  if (!answer || answer == &zp_answer_without_memory) return;
  drop(answer);
  free(answer);
}
