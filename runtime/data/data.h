/* SPDX-License-Identifier: Apache-2.0 */
/* The seams between data.c, which knows samples, the order that they come in (data_order.c), the sources of tokens
 * (data_part.c; data_tokens.c, data_megatron.c, data_text.c, data_documents.c, data_synthetic.c) and what is made of
 * samples (data_masked.c, data_spans.c). */
#ifndef ZPLAN_RT_DATA_H
#define ZPLAN_RT_DATA_H

#include "internal.h"

/* One mapped file; its tokens are [first, first + tokens) of the whole stream. */
typedef struct zpr_shard {
  char *path;
  void *map;
  size_t map_bytes;
  const unsigned char *body; /* first token, inside map */
  int width;                 /* bytes of a token: 1, 2, 4 or 8, little-endian */
  bool is_signed;
  int64_t first, tokens;
} zpr_shard;

typedef struct zpr_stream {
  int n, room;
  zpr_shard *shards; /* in order of the stream */
  int64_t tokens;
} zpr_stream;

/* Add files to the stream. False and an error when one cannot be used. */
bool zpr_stream_add_token_files(zpr_stream *stream, const char *pattern, zpr_error *error);
bool zpr_stream_add_megatron(zpr_stream *stream, const char *path, zpr_error *error); /* path: PREFIX.idx */
bool zpr_stream_add_text(zpr_stream *stream, const char *path, zpr_error *error);
/* Maps a file and appends it as an empty shard; the caller fills in body, width and tokens. */
zpr_shard *zpr_stream_map(zpr_stream *stream, const char *path, zpr_error *error);
/* Tokens [begin, begin + count) of the stream. False and an error (Z0803) when one is not below `vocabulary`. */
bool zpr_stream_read(const zpr_stream *stream, int64_t begin, int64_t count, int64_t vocabulary, int32_t *out,
                     zpr_error *error);
void zpr_stream_close(zpr_stream *stream);
/* The first place from `begin` on where the stream has that id; its end where it has none. */
int64_t zpr_stream_find(const zpr_stream *stream, int64_t begin, int64_t id);
/* Hash of the first `tokens` ids, which the stream must have (data_identity.c). */
uint64_t zpr_stream_hash(const zpr_stream *stream, int64_t tokens);
/* FNV-1a. */
#define ZPR_HASH_START UINT64_C(14695981039346656037)
uint64_t zpr_hash_bytes(const void *bytes, int64_t n, uint64_t hash);
/* What is long is hashed by blocks: where block k of them begins, evenly spread from the first place to the last. */
enum { ZPR_HASHED_BLOCKS = 64 };
int64_t zpr_hashed_block(int64_t size, int64_t block, int64_t k);

/* What a sample is: S tokens and the labels that belong to them; after its length there are none (label -1). */
typedef struct zpr_sample {
  int32_t *tokens, *labels; /* [S] */
  int32_t length;           /* 1 to S */
} zpr_sample;

/* Places of documents in a stream (data_documents.c). */
typedef struct zpr_documents {
  int64_t n, room, *begin; /* the first token of every sample */
  int32_t *length;         /* tokens of it */
  int32_t end;             /* the token after a document */
} zpr_documents;
/* splits: a document that is longer than the sequence is several samples; otherwise it is cut. */
bool zpr_documents_open(const zpr_stream *stream, int32_t end, bool splits, int64_t sequence, zpr_documents *documents,
                        zpr_error *error);
void zpr_documents_close(zpr_documents *documents);
/* False and an error (Z0803) when a token is not below `vocabulary`. */
bool zpr_documents_read(const zpr_documents *documents, const zpr_stream *stream, int64_t document, int64_t sequence,
                        int64_t vocabulary, zpr_sample *sample, zpr_error *error);

/* ---- span corruption (data_spans.c) ---- */
/* What is made of samples of at most `length` tokens. */
typedef struct zpr_spans {
  zpr_span_rule rule;
  int64_t length;                      /* the longest sample whose inputs and targets have room */
  int source, target, labels, lengths; /* named inputs; lengths -1: the model does not read them */
  int64_t source_room, target_room;    /* positions */
  unsigned char *cuts;                 /* [2 * length], scratch */
} zpr_spans;
/* How many tokens of a sample of n are cut out, and in how many spans. Requires: n >= 1. */
int64_t zpr_span_noise(const zpr_span_rule *rule, int64_t n);
int64_t zpr_span_count(const zpr_span_rule *rule, int64_t n);
/* Labels of a sample of n tokens: what is cut out, a token for each span, and the end. */
int64_t zpr_span_labels(const zpr_span_rule *rule, int64_t n);
/* False and an error where the model has not the inputs, or not enough tokens. */
bool zpr_spans_open(zpr *c, const zpr_span_rule *rule, zpr_spans *spans, zpr_error *error);
void zpr_spans_close(zpr_spans *spans);
/* Where the inputs of one sample go. */
typedef struct zpr_span_places {
  int32_t *source, *target, *labels, *length; /* length NULL: nowhere */
} zpr_span_places;
/* Sample n of the run, `tokens`. False and an error (Z0803) when one of them is used as a sentinel. */
bool zpr_spans_make(const zpr_spans *spans, int64_t n, const int32_t *tokens, int64_t length,
                    const zpr_span_places *places, zpr_error *error);

/* ---- which tokens continue a word (data_words.c) ---- */
typedef struct zpr_words {
  int64_t tokens; /* those after them are words */
  unsigned char *continues;
  uint64_t hash;
} zpr_words;
/* False and an error where the file is not a vocabulary of at most so many tokens, some of which continue words. */
bool zpr_words_open(zpr *c, const char *path, int64_t vocabulary, zpr_words *words, zpr_error *error);
void zpr_words_close(zpr_words *words);
bool zpr_continues(const zpr_words *words, int32_t token);

/* ---- masks (data_masked.c) ---- */
typedef struct zpr_masks {
  double rate; /* 0: nothing is masked */
  int64_t token;
  uint64_t seed;
  int64_t length, vocabulary; /* positions of a sample */
  int tokens, labels;         /* named inputs; -1 where inputs have no names */
  int32_t *places;            /* [length + 1], scratch: where tokens may be masked */
  bool whole_words;           /* all pieces of a word, or none */
  zpr_words words;
  int32_t *begins; /* [length + 1], scratch: which of the places begin words */
} zpr_masks;
/* False and an error where arrays do not feed tokens and their labels. Requires: source->mask_rate > 0. */
bool zpr_masks_open(zpr *c, const zpr_source *source, zpr_masks *masks, zpr_error *error);
void zpr_masks_close(zpr_masks *masks);
/* How many of n tokens that may be masked are: max(1, rate * n to the nearest). */
int64_t zpr_masked_tokens(const zpr_masks *masks, int64_t n);
/* Masks tokens of sample n of the run and makes them its only labels. How many they are. */
int64_t zpr_mask(const zpr_masks *masks, int64_t n, const zpr_sample *sample);
/* Likewise those that are their own labels, as arrays say it. False and an error (Z0803) where a label is another token
 * than stands there; window: which sample of the arrays it is. */
bool zpr_mask_named(const zpr_masks *masks, int64_t n, int64_t window, int32_t *tokens, int32_t *labels,
                    zpr_error *error);

/* ---- inputs by name (data_arrays.c, npy.c) ---- */
/* An array of NumPy: what its header says, and where its elements begin. */
typedef struct zpr_npy {
  char kind; /* 'f', 'i', 'u' */
  int width; /* bytes of an element */
  int rank;  /* at most ZPR_NPY_RANK */
  int64_t dim[4];
  const unsigned char *body;
} zpr_npy;
enum { ZPR_NPY_RANK = 4 };
/* False and an error (Z0802) where it is not what NumPy writes, in C order, little-endian, whole. */
bool zpr_npy_read(const zpr_shard *file, zpr_npy *npy, zpr_error *error);

/* ---- whole images where the input is rows of their patches (data_patches.c) ---- */
typedef struct zpr_patches {
  int64_t side; /* of a square; 0: the file has the input as it is */
  int64_t channels, height, width;
  bool channels_first;
} zpr_patches;
/* Are the samples of the file images whose patches are the input's rows? */
bool zpr_patches_fit(const zpr_named *input, const zpr_npy *npy, zpr_patches *patches);
/* Which element of the image is element `element` of the rows. */
int64_t zpr_patch_element(const zpr_patches *patches, int64_t element);

/* The files of a folder, one for every input of the program, or made-up inputs: no file. */
typedef struct zpr_npy_files {
  zpr_stream files;
  zpr_npy *npy;         /* [n_named]; NULL: made up */
  zpr_patches *patches; /* [n_named] */
  int64_t samples;      /* 0: made up */
} zpr_npy_files;
/* False and an error when a file is missing or does not fit the program. */
bool zpr_npy_files_open(zpr *c, const char *folder, zpr_npy_files *arrays, zpr_error *error);
void zpr_npy_files_close(zpr_npy_files *arrays);
/* Hash of the first `samples` samples of all arrays, their names and kinds. */
uint64_t zpr_npy_files_hash(const zpr *c, const zpr_npy_files *arrays, int64_t samples);
/* Where the input stands, bytes after the first one; of one micro-batch. */
int64_t zpr_named_at(const zpr *c, int input, int64_t mb);
/* Has this rank's stage a place for it? */
bool zpr_has_named(const zpr *c, int input);
/* The elements of sample `window` of an array to element `at` of `to`, int32 or of the program's
 * dtype. False and an error (Z0803) when an id is out of its range. */
bool zpr_named_read(const zpr *c, const zpr_npy_files *arrays, int input, int64_t window, void *to, int64_t at,
                    zpr_error *error);
/* Sample n of made-up inputs: numbers that its label shows in, among noise. */
void zpr_named_make_up(const zpr *c, uint64_t seed, uint64_t n, int input, void *to, int64_t at);

/* Sample n of the made-up language: count ids below vocabulary. */
void zpr_synthetic(uint64_t seed, uint64_t sample, int64_t vocabulary, int64_t count, int32_t *out);

/* ---- order (data_order.c) ---- */
/* Where window `index` of `windows` goes in the order of epoch `epoch`: a permutation for every (seed, epoch). */
int64_t zpr_permute(uint64_t seed, uint64_t epoch, int64_t windows, int64_t index);
/* Sources that take turns. */
typedef struct zpr_mix {
  int n;
  uint64_t share[ZPR_MOST_PARTS]; /* of a source among those from it on, times 2^32 */
} zpr_mix;
/* Requires: 1 to ZPR_MOST_PARTS weights, all above 0. */
zpr_mix zpr_mix_of(int n, const double *weights);
/* Which source sample n of the run is of, and which sample of this source. */
int zpr_mix_source(const zpr_mix *mix, int64_t n, int64_t *sample);
/* How many of the first n samples of the run are of each source. */
void zpr_mix_count(const zpr_mix *mix, int64_t n, int64_t count[ZPR_MOST_PARTS]);

/* ---- one source, neither mixed nor masked (data_part.c) ---- */
typedef struct zpr_data_part {
  zpr_source source;
  zpr_stream stream;
  zpr_documents documents;
  zpr_npy_files arrays;
  int64_t length;  /* tokens of a sample; of documents at most */
  int64_t windows; /* 0: made up */
} zpr_data_part;
/* False and an error when it cannot be used. */
bool zpr_data_part_open(zpr *c, const zpr_source *source, int64_t length, zpr_data_part *part, zpr_error *error);
void zpr_data_part_close(zpr_data_part *part);
/* Which window sample n of the source is. Requires: it is not made up. */
int64_t zpr_data_part_window(const zpr_data_part *part, int64_t n);
/* How many tokens sample n has. */
int64_t zpr_data_part_tokens(const zpr_data_part *part, int64_t n);
/* Sample n and the tokens that follow its own; stretch [length + 1] is scratch. False and an error (Z0803) when one is
 * not below `vocabulary`. */
bool zpr_data_part_read(const zpr_data_part *part, int64_t n, int64_t vocabulary, int32_t *stretch, zpr_sample *sample,
                        zpr_error *error);

/* ---- all of it (data.c, data_identity.c) ---- */
struct zpr_data {
  zpr *c;
  zpr_source source;
  int n_parts; /* 0: there is no data */
  zpr_data_part *parts;
  zpr_mix mix;
  zpr_spans spans; /* where source.spans has a rate */
  zpr_masks masks; /* where source.mask_rate is one */
  int64_t length;  /* tokens of a sample */
  int32_t *window; /* [length + 1] */
  int32_t *tokens; /* [length], where spans are cut out of them, or they are masked where they have names */
  int32_t *labels; /* of a sample, where they have no place in the arena */
  int64_t end;     /* samples from here on have no labels */
  int64_t counted[ZPR_MOST_LOSSES]; /* labels of the batch that was loaded last, of every loss */
};

#endif
