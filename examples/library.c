/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a file through libzplan and prints the step time and what was reported:
 *
 *   cc library.c $(pkg-config --cflags --libs zplan) -ljansson -o plan_it
 *   ./plan_it gpt1t.dz --gpus 800
 */
#include <jansson.h>
#include <stdio.h>
#include <zplan.h>

/* Messages with the places that they are about. */
static void show_messages(const zplan_answer *answer) {
  json_t *messages = json_loads(zplan_messages(answer), 0, NULL), *message;
  size_t i;
  json_array_foreach(messages, i, message) {
    json_t *span = json_array_get(json_object_get(message, "spans"), 0);
    if (span)
      printf("%s:%lld:%lld: ", json_string_value(json_object_get(span, "file_name")),
             (long long)json_integer_value(json_object_get(span, "line_start")),
             (long long)json_integer_value(json_object_get(span, "column_start")));
    printf("%s: %s\n", json_string_value(json_object_get(message, "level")),
           json_string_value(json_object_get(message, "message")));
  }
  json_decref(messages);
}

static void show_plan(const char *text) {
  json_t *plan = json_loads(text, 0, NULL), *estimate = json_object_get(plan, "estimate");
  json_t *degrees = json_object_get(plan, "degrees");
  printf("%s: tensor %lld x pipeline %lld x data %lld, %.6g s a step, %.4g GB on the fullest device\n",
         json_string_value(json_object_get(json_object_get(plan, "model"), "name")),
         (long long)json_integer_value(json_object_get(degrees, "tensor")),
         (long long)json_integer_value(json_object_get(degrees, "pipeline")),
         (long long)json_integer_value(json_object_get(degrees, "data")),
         json_number_value(json_object_get(estimate, "step_s")),
         json_number_value(json_object_get(estimate, "peak_bytes")) / 1e9);
  json_decref(plan);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s FILE.dz [OPTION...]\n", argv[0]);
    return ZPLAN_USAGE;
  }
  if (zplan_abi() != ZPLAN_ABI) {
    fprintf(stderr, "this libzplan (%s) has another interface than the header\n", zplan_version());
    return ZPLAN_ERROR;
  }
  zplan_answer *answer = zplan_plan(argv[1], NULL, (const char *const *)(argv + 2)); /* argv ends with NULL */
  int status = zplan_status(answer);
  show_messages(answer);
  if (status == ZPLAN_OK) show_plan(zplan_json(answer));
  zplan_free(answer);
  return status;
}
