/* SPDX-License-Identifier: Apache-2.0 */
/* Arena blocks form a chain, newest first. Allocation only ever bumps the newest block, so a mark is the pair
 * (newest block, bytes used in it) and a rewind gives up whole blocks until it meets the marked one. These stay with
 * the arena for the next time: fresh pages of the system cost more than what is mostly done in them.
 * Under AddressSanitizer everything that is not handed out is poisoned: a use after a rewind is reported. */
#include <zplan/arena.h>
#include <zplan/hosted.h>

#include <assert.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
/* Functions of their own: gcc would take the const parameter for a read of fresh memory. */
static __attribute__((noinline)) void poison(void *address, size_t bytes) {
  __asan_poison_memory_region(address, bytes);
}
static void unpoison(void *address, size_t bytes) { __asan_unpoison_memory_region(address, bytes); }
#else
static void poison(void *address, size_t bytes) { (void)address, (void)bytes; }
static void unpoison(void *address, size_t bytes) { (void)address, (void)bytes; }
#endif

enum { ALIGN = 16, FIRST_BLOCK_BYTES = 64 << 10, MAX_BLOCK_BYTES = 4 << 20 };

typedef struct block {
  struct block *older;
  size_t used, cap;
  size_t older_bytes; /* in use in all older blocks */
  _Alignas(ALIGN) unsigned char data[];
} block;

struct zp_arena {
  const char *name;
  block *newest;           /* NULL before the first allocation and after a rewind to the empty arena */
  block *spare;            /* given up by rewinds, the last one first; linked by `older` */
  size_t peak_bytes;       /* when something was last given back */
  zp_arena_budget *budget; /* NULL: nobody counts */
  zp_arena *next, **link;  /* among those that are kept; link NULL: it is not */
};

/* A call from another process may end in the middle: the arenas that it has made, the newest first. */
static _Thread_local bool keeps;
static _Thread_local zp_arena *kept;

static void keep(zp_arena *arena) {
  arena->next = kept;
  arena->link = &kept;
  if (kept) kept->link = &arena->next;
  kept = arena;
}

static void leave(zp_arena *arena) {
  *arena->link = arena->next;
  if (arena->next) arena->next->link = arena->link;
}

void zp_arenas_keep(bool on) {
  while (kept) {
    kept->budget = NULL; /* which may be gone */
    zp_arena_free(kept);
  }
  keeps = on;
}

static _Noreturn void out_of_memory(const char *arena, size_t bytes) {
  zp_give_up(1, "out of memory: could not get %zu more bytes for %s", bytes, arena);
}

zp_arena *zp_arena_new(const char *name) {
  assert(name);
  zp_arena *arena = calloc(1, sizeof *arena);
  if (!arena) out_of_memory(name, sizeof *arena);
  arena->name = name;
  if (keeps) keep(arena);
  return arena;
}

zp_arena *zp_arena_new_within(const char *name, zp_arena_budget *budget) {
  assert(budget);
  zp_arena *arena = zp_arena_new(name);
  arena->budget = budget;
  return arena;
}

zp_arena *zp_arena_new_alongside(const char *name, const zp_arena *other) {
  assert(other);
  return other->budget ? zp_arena_new_within(name, other->budget) : zp_arena_new(name);
}

bool zp_arena_has_room(const zp_arena *arena, size_t bytes) {
  const zp_arena_budget *b = arena->budget;
  return !b || (b->held_bytes <= b->limit_bytes && bytes <= b->limit_bytes - b->held_bytes);
}

static void count_held(zp_arena_budget *budget, size_t bytes) {
  if (!budget) return;
  budget->held_bytes += bytes;
  if (budget->held_bytes > budget->peak_bytes) budget->peak_bytes = budget->held_bytes;
}

static void free_chain(zp_arena *arena, block *dead) {
  while (dead) {
    block *older = dead->older;
    if (arena->budget) arena->budget->held_bytes -= dead->cap;
    unpoison(dead->data, dead->cap);
    free(dead);
    dead = older;
  }
}

void zp_arena_free(zp_arena *arena) {
  if (!arena) return;
  if (arena->link) leave(arena);
  free_chain(arena, arena->newest);
  free_chain(arena, arena->spare);
  free(arena);
}

static void give_up_newest(zp_arena *arena) {
  block *spare = arena->newest;
  arena->newest = spare->older;
  poison(spare->data, spare->cap);
  spare->older = arena->spare;
  arena->spare = spare;
}

/* The last spare block when it has room for that much; spare blocks that have not are of no use. */
static block *take_spare(zp_arena *arena, size_t bytes) {
  block *spare = arena->spare;
  if (!spare) return NULL;
  if (spare->cap < bytes) {
    free_chain(arena, spare);
    arena->spare = NULL;
    return NULL;
  }
  arena->spare = spare->older;
  return spare;
}

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static void add_block(zp_arena *arena, size_t bytes) {
  block *older = arena->newest;
  size_t cap = older ? older->cap * 2 : FIRST_BLOCK_BYTES;
  if (cap > MAX_BLOCK_BYTES) cap = MAX_BLOCK_BYTES;
  if (cap < bytes) cap = bytes;
  block *fresh = take_spare(arena, bytes);
  if (fresh) cap = fresh->cap;
  if (!fresh) {
    fresh = malloc(sizeof *fresh + cap);
    if (!fresh) out_of_memory(arena->name, cap);
    count_held(arena->budget, cap);
  }
  *fresh = (block){.older = older, .cap = cap, .older_bytes = older ? older->older_bytes + older->used : 0};
  poison(fresh->data, cap);
  arena->newest = fresh;
}

/* Room for `bytes`, not zeroed. */
static void *take(zp_arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 4) out_of_memory(arena->name, bytes);
  size_t room = round_up(bytes);
  if (!arena->newest || arena->newest->cap - arena->newest->used < room) add_block(arena, room);
  block *b = arena->newest;
  void *place = b->data + b->used;
  unpoison(place, bytes);
  b->used += room;
  return place;
}

/* Under AddressSanitizer, where tests run, what was never written is no zero that works by chance. */
static void *spoil(void *place, size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  memset(place, 0xa5, bytes);
#else
  (void)bytes;
#endif
  return place;
}

void *zp_room(zp_arena *arena, size_t bytes) { return spoil(take(arena, bytes), bytes); }

void *zp_alloc(zp_arena *arena, size_t bytes) {
  void *place = take(arena, bytes);
  return memset(place, 0, bytes);
}

/* Ever more is in use until something is given back. */
size_t zp_arena_peak_bytes(const zp_arena *arena) {
  size_t in_use = arena->newest ? arena->newest->older_bytes + arena->newest->used : 0;
  return in_use > arena->peak_bytes ? in_use : arena->peak_bytes;
}

/* True when `data` is the last thing that was allocated, so that it can grow where it is. */
static bool extend_in_place(zp_arena *arena, const void *data, size_t old_bytes, size_t new_bytes) {
  block *b = arena->newest;
  size_t old_room = round_up(old_bytes);
  if (!b || !data || b->used < old_room || old_room == 0) return false;
  if ((const unsigned char *)data != b->data + b->used - old_room) return false;
  if (new_bytes > SIZE_MAX / 4 || b->cap - b->used + old_room < round_up(new_bytes)) return false;
  if (new_bytes < old_bytes) arena->peak_bytes = zp_arena_peak_bytes(arena);
  b->used -= old_room;
  take(arena, new_bytes);
  return true;
}

void *zp_grow_room(zp_arena *arena, const void *data, size_t old_bytes, size_t new_bytes) {
  assert(data || old_bytes == 0);
  if (new_bytes < old_bytes) old_bytes = new_bytes;
  unsigned char *place;
  if (extend_in_place(arena, data, old_bytes, new_bytes)) {
    place = (unsigned char *)(uintptr_t)data;
  } else {
    place = take(arena, new_bytes);
    if (old_bytes) memcpy(place, data, old_bytes);
  }
  spoil(place + old_bytes, new_bytes - old_bytes);
  return place;
}

void *zp_grow(zp_arena *arena, const void *data, size_t old_bytes, size_t new_bytes) {
  unsigned char *place = zp_grow_room(arena, data, old_bytes, new_bytes);
  if (new_bytes > old_bytes) memset(place + old_bytes, 0, new_bytes - old_bytes);
  return place;
}

zp_arena_mark zp_arena_get_mark(const zp_arena *arena) {
  return (zp_arena_mark){arena->newest, arena->newest ? arena->newest->used : 0};
}

void zp_arena_rewind(zp_arena *arena, zp_arena_mark mark) {
  arena->peak_bytes = zp_arena_peak_bytes(arena);
  while (arena->newest != mark.block) {
    assert(arena->newest && "a mark of this arena, which nothing older was rewound to since");
    give_up_newest(arena);
  }
  block *b = arena->newest;
  if (!b) return;
  assert(mark.used <= b->used);
  poison(b->data + mark.used, b->cap - mark.used);
  b->used = mark.used;
}

char *zp_strndup(zp_arena *arena, const char *text, size_t length) {
  assert(text || length == 0);
  char *copy = take(arena, length + 1);
  if (length) memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}

char *zp_strdup(zp_arena *arena, const char *text) { return zp_strndup(arena, text, strlen(text)); }

char *zp_vformat(zp_arena *arena, const char *format, va_list args) {
  assert(format);
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0) return zp_strdup(arena, "");
  char *text = take(arena, (size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, format, args);
  return text;
}

char *zp_format(zp_arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = zp_vformat(arena, format, args);
  va_end(args);
  return text;
}
