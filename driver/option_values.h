/* SPDX-License-Identifier: Apache-2.0 */
/* What is written behind an option, read. False: a usage error on stderr names the option and what it wants. */
#ifndef ZPLAN_DRIVER_OPTION_VALUES_H
#define ZPLAN_DRIVER_OPTION_VALUES_H

#include "driver.h"

enum { ZP_MOST_SECONDS = 1000000 };

/* Whole numbers, low .. high; without `high` up to 2^31 - 1. */
bool zp_parse_within(const char *option, const char *text, int64_t low, int64_t high, int64_t *out);
bool zp_parse_count(const char *option, const char *text, int64_t low, int64_t *out);
/* Seconds up to ZP_MOST_SECONDS, as text: the trainer reads them again. */
bool zp_parse_seconds(const char *option, const char *text, const char **out);
/* N, auto or LOW..HIGH devices, and A..B steps to profile; into the run's options. */
bool zp_parse_devices(zp_run_state *run, const char *option, const char *text);
bool zp_parse_steps(zp_run_state *run, const char *option, const char *text);
/* Bytes with a unit: 4GiB. */
bool zp_parse_size(const char *option, const char *text, int64_t *out);
/* 1: always, 0: never, -1: auto. */
bool zp_parse_color(const char *text, int *out);
/* From 0 to below 1: 1% or 0.01. */
bool zp_parse_share(const char *option, const char *text, double *out);
/* Above 0, up to 1000. */
bool zp_parse_temperature(const char *option, const char *text, double *out);
/* Is the word a type of weights, a pass of --dump-after, a program of --for? */
bool zp_is_dtype(const char *name);
bool zp_is_pass(const char *name);
bool zp_is_program(zp_run_state *run, const char *word);

#endif
