/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys a query sees: causal or all, in the runs of blocks of a layout or dense, before the length of the sample.
 * Shared by both kinds of attention. */
#ifndef ZPD_LAYOUTS_CUH
#define ZPD_LAYOUTS_CUH

#include "zpd_device.h"

#ifndef ZPD_HEAD
#define ZPD_HEAD 256
#endif

ZPD_DEVICE zpd_int zpd_min(zpd_int x, zpd_int y) { return x < y ? x : y; }

/* Keys of a sample. Those of another sequence than the queries cost nothing in a model that has none: its text has no
 * ZPD_CROSS. */
#ifdef ZPD_CROSS
ZPD_DEVICE zpd_int zpd_keys_of_sample(const zpd_attention &a) { return a.keys ? a.keys : a.S; }
/* Queries that are there alongside `length` keys: as many in their own sequence, all of them before another one. */
ZPD_DEVICE int zpd_query_length(const zpd_attention &a, int length) { return a.keys && length > 0 ? (int)a.S : length; }
#else
ZPD_DEVICE zpd_int zpd_keys_of_sample(const zpd_attention &a) { return a.S; }
ZPD_DEVICE int zpd_query_length(const zpd_attention &, int length) { return length; }
#endif

/* Tiles from `first` on, before `end`; or positions. */
struct zpd_tiles {
  int first, end;
};

/* Documents cost nothing in a model that has none: its text has no ZPD_DOCUMENTS. */
#ifdef ZPD_DOCUMENTS
/* Numbers of the sample of this block. Without a sign they ascend, and the last ones are -1, of what is not there. */
ZPD_DEVICE const unsigned *zpd_documents(const zpd_attention &a) {
  return (const unsigned *)a.documents + (zpd_int)blockIdx.z * a.S;
}

/* The first position of `from` to `end` - 1 with this number or a larger one; else `end`. */
ZPD_DEVICE int zpd_first_of_number(const unsigned *number, unsigned least, int from, int end) {
  while (from < end) {
    const int middle = from + (end - from) / 2;
    if (number[middle] < least)
      from = middle + 1;
    else
      end = middle;
  }
  return from;
}

/* The positions of the document that a position is in. */
ZPD_DEVICE zpd_tiles zpd_document_of(const zpd_attention &a, int position) {
  const unsigned *all = zpd_documents(a), number = all[position];
  return {zpd_first_of_number(all, number, 0, position),
          number + 1 == 0 ? (int)a.S : zpd_first_of_number(all, number + 1, position, (int)a.S)};
}

/* Are both of one? Requires: both are positions of the sample. */
ZPD_DEVICE bool zpd_shares_document(const zpd_attention &a, int query, int key) {
  return !a.documents || zpd_documents(a)[query] == zpd_documents(a)[key];
}
ZPD_DEVICE bool zpd_has_documents(const zpd_attention &a) { return a.documents != nullptr; }
#else
ZPD_DEVICE zpd_tiles zpd_document_of(const zpd_attention &a, int) { return {0, (int)a.S}; }
ZPD_DEVICE constexpr bool zpd_shares_document(const zpd_attention &, int, int) { return true; }
ZPD_DEVICE constexpr bool zpd_has_documents(const zpd_attention &) { return false; }
#endif

/* Keys of the sample of this block that are there. */
ZPD_DEVICE int zpd_length(const zpd_attention &a) {
#ifdef ZPD_DOCUMENTS
  if (a.documents) return zpd_first_of_number(zpd_documents(a), 0x80000000u, 0, (int)a.S);
#endif
  const zpd_int keys = zpd_keys_of_sample(a);
  return (int)(a.lengths ? zpd_min(keys, a.lengths[blockIdx.z]) : keys);
}

/* Windows of tokens cost nothing in a model that has none: its text has no ZPD_WINDOWS. */
#ifdef ZPD_WINDOWS
ZPD_DEVICE int zpd_window(const zpd_attention &a) { return (int)a.window; }
#else
ZPD_DEVICE constexpr int zpd_window(const zpd_attention &) { return 0; }
#endif

ZPD_DEVICE bool zpd_sees(const zpd_attention &a, int length, int query, int key) {
  const bool sees = key < length && (!a.causal || key <= query) &&
                    (!zpd_has_documents(a) || (query < length && zpd_shares_document(a, query, key)));
#ifdef ZPD_WINDOWS
  const int window = zpd_window(a), away = query < key ? key - query : query - key;
  return sees && (window == 0 || away < window);
#else
  return sees;
#endif
}

/* May a row meet positions before the first that it sees? */
ZPD_DEVICE bool zpd_meets_past(const zpd_attention &a) { return zpd_window(a) > 0 || zpd_has_documents(a); }

/* The end of the positions within the window of another one, of those before `end`. */
ZPD_DEVICE int zpd_end_in_window(const zpd_attention &a, int position, int end) {
  const int window = zpd_window(a);
  return window > 0 && position + window < end ? position + window : end;
}

/* The positions of the other side that rows first .. last may meet for their window and their documents, in tiles of
 * `tile`: where these begin, and their end of those before `end`. Seeing goes both ways, so of keys and queries alike,
 * but for causality. */
ZPD_DEVICE int zpd_first_met(const zpd_attention &a, int first, int tile) {
  const int window = zpd_window(a);
  int met = window > 0 && first >= window ? first - window + 1 : 0;
  if (zpd_has_documents(a)) {
    const int begin = zpd_document_of(a, first).first;
    met = begin > met ? begin : met;
  }
  return met / tile * tile;
}

ZPD_DEVICE int zpd_end_met(const zpd_attention &a, int last, int end) {
  const int in_window = zpd_end_in_window(a, last, end);
  return zpd_has_documents(a) && last < end ? (int)zpd_min(in_window, zpd_document_of(a, last).end) : in_window;
}

/* The first position within the window of another one, causality aside: may be negative. */
ZPD_DEVICE int zpd_first_seen(const zpd_attention &a, int position) {
  return zpd_window(a) > 0 ? position - zpd_window(a) + 1 : 0;
}

/* The last key that a query sees, documents aside. */
ZPD_DEVICE int zpd_last_key(const zpd_attention &a, int length, int query) {
  return a.causal && query < length ? query : zpd_end_in_window(a, query, length) - 1;
}

/* Whether a query sees a key that is not after its last one. */
ZPD_DEVICE bool zpd_is_near(const zpd_attention &a, int length, int query, int key) {
  return (zpd_window(a) == 0 || key >= zpd_first_seen(a, query)) &&
         (!zpd_has_documents(a) || query >= length || zpd_shares_document(a, query, key));
}

/* Whether the query sees the key. */
ZPD_DEVICE bool zpd_is_between(const zpd_attention &a, int length, int query, int key) {
  return key <= zpd_last_key(a, length, query) && zpd_is_near(a, length, query, key);
}

/* What all of the rows first .. last see of the other side, if it is not too far away: between the last one's
 * document's first position and the first one's document's last; and what any of them sees. */
struct zpd_reach {
  zpd_tiles all, any;
};

ZPD_DEVICE zpd_reach zpd_reach_of(const zpd_attention &a, int first, int last) {
  const zpd_tiles of_first = zpd_document_of(a, first), of_last = zpd_document_of(a, last);
  return {{of_last.first, of_first.end}, {of_first.first, of_last.end}};
}

/* What the block that row `row` is in meets in a list of the other side's blocks. Dense: one run, of which nothing is
 * said here. Blocks are multiples of the tiles, so that a tile is there or not. */
struct zpd_met {
  const zpd_run *run;
  int runs, block;
  __device__ __forceinline__ zpd_tiles tiles(int r, int end) const {
    zpd_tiles t = {0, end};
    if (run) {
      t.first = run[r].first * block;
      t.end = run[r].end * block < end ? run[r].end * block : end;
    }
    return t;
  }
};

/* keys: of a query in this row; else of a key, which queries meet. id: of a layout, 0: dense. */
#ifdef ZPD_LAYOUTS
ZPD_DEVICE zpd_met zpd_met_of(int id, int row, bool keys) {
  zpd_met met = {nullptr, 1, 0};
  if (id) {
    const zpd_layout layout = zpd_layout_of(id);
    const zpd_block_list &list = keys ? layout.keys : layout.queries;
    const int i = row / layout.block;
    met.run = list.run + list.first[i];
    met.runs = list.first[i + 1] - list.first[i];
    met.block = layout.block;
  }
  return met;
}
#else
ZPD_DEVICE zpd_met zpd_met_of(int, int, bool) { return {nullptr, 1, 0}; }
#endif

/* Which of the attention's layouts a head has. Different ones cost nothing in a model whose text has no
 * ZPD_HEAD_LAYOUTS. */
#ifdef ZPD_HEAD_LAYOUTS
ZPD_DEVICE int zpd_layout_number(const zpd_attention &a, zpd_int head) {
  return (int)(a.first_head + head) % (int)(1 + a.other_layouts);
}
#else
ZPD_DEVICE constexpr int zpd_layout_number(const zpd_attention &, zpd_int) { return 0; }
#endif

ZPD_DEVICE zpd_met zpd_meets(const zpd_attention &a, zpd_int head, int row, bool keys) {
  return zpd_met_of(a.layout + zpd_layout_number(a, head), row, keys);
}

#endif
