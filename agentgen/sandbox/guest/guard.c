/* An allocator for a guest that is looked at closely, loaded by LD_PRELOAD and off until `agentgen_guard` turns it on.

   Each guarded block has a mapping of its own between two walls of 64 KiB that cannot be touched:

       [wall][filling, block, filling][wall]

   The block lies against one of the two, as near as its alignment lets it. An access to a wall is SIGSEGV. What is
   written into the filling is SIGABRT when the block is freed or `agentgen_guard_check` is called; what is read from it
   is NaN in every float type. A freed block loses all access and keeps its address for a while. Fresh memory is filled
   with poison.

   Guarded are blocks aligned to 64 bytes or more (torch's tensors are such) and any others of 4096 bytes or more. Not
   covered: accesses beyond a wall, where another block may lie; small blocks of plain malloc; stacks, static arrays, and
   what others map or cut into pieces; a block that was freed 4096 blocks or 1 GiB ago. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { OFF = 0, AFTER = 1, BEFORE = 2 };
enum { VECTOR_BYTES = 64, SMALLEST = 4096, WALL = 1 << 16 }; /* the wall is a multiple of any page */
/* A live block takes two of the 65530 mappings that Linux gives a process. */
enum { SLOTS = 1 << 16, MOST_LIVE = 1 << 14, MOST_FREED = 1 << 12 };
static const size_t MOST_FREED_BYTES = (size_t)1 << 30;
static const size_t LARGEST = (size_t)1 << 46;

/* glibc's own, under the names by which they can be had without dlsym, which allocates. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

typedef struct {
    char *block; /* NULL: an empty slot */
    size_t bytes;
    char *first; /* of the pages between the two walls */
    size_t pages_bytes;
} Block;

static Block live[SLOTS]; /* open addressing, linear probing */
static Block freed[MOST_FREED]; /* a ring: the oldest is unmapped for the newest */
static size_t live_count, freed_first, freed_count, freed_bytes;
static unsigned long guarded, passed_by;
static volatile int side = OFF, ever_on = 0;
static unsigned char poison = 0xFF;
static size_t page;
static size_t (*real_usable_size)(void *);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take(void) { pthread_mutex_lock(&lock); }
static void give(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void start(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    real_usable_size = (size_t(*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    pthread_atfork(take, give, give);
}

static size_t up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

static uint64_t mixed(uint64_t x) /* the finaliser of MurmurHash3 */
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

/* 0xFFF1 to 0xFFFF in each 16 bits: NaN as fp16, bf16, fp32 and fp64. It hangs on the address, so that what was read
   from one block's filling and written into another's does not fit there. */
static unsigned char canary(const char *at)
{
    uintptr_t address = (uintptr_t)at;
    return address & 1 ? 0xFF : (unsigned char)(0xF1 + mixed(address) % 15);
}

/* Failing. All of it is called with the lock held or from a signal handler: no allocation, no stdio stream. */

static void say(const char *text, int length, int most)
{
    ssize_t ignored = write(2, text, (size_t)(length < most ? length : most - 1));
    (void)ignored;
}

static void require_whole(const Block *b)
{
    const char *end = b->first + b->pages_bytes, *bad = NULL;
    size_t count = 0;
    for (const char *at = b->first; at < end; ++at) {
        if (at == b->block) at += b->bytes;
        if (at == end) break;
        if ((unsigned char)*at == canary(at)) continue;
        /* The one told is the nearest to the block. */
        if (!count || at < b->block) bad = at;
        ++count;
    }
    if (!count) return;
    int before = bad < b->block;
    size_t distance = before ? (size_t)(b->block - bad) : (size_t)(bad - b->block) - b->bytes + 1;
    char text[256];
    int length = snprintf(text, sizeof text,
        "agentgen guard: %zu bytes were written outside a block of %zu bytes, the nearest %zu bytes %s\n",
        count, b->bytes, distance, before ? "before its start" : "past its end");
    say(text, length, sizeof text);
    abort();
}

static int tell_of(const Block *b, const char *at, const char *what)
{
    if (!b->block || at < b->first - WALL || at >= b->first + b->pages_bytes + WALL) return 0;
    char text[256];
    int before = at < b->block, inside = !before && at < b->block + b->bytes;
    size_t distance = before ? (size_t)(b->block - at) : (size_t)(at - b->block) - (inside ? 0 : b->bytes - 1);
    int length = snprintf(text, sizeof text, "agentgen guard: an access %zu bytes %s of %zu bytes%s\n", distance,
        before ? "before the start of a block" : inside ? "into a block" : "past the end of a block", b->bytes, what);
    say(text, length, sizeof text);
    return 1;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *at = info->si_addr;
    int told = 0;
    for (size_t i = 0; i < SLOTS && !told; ++i) told = tell_of(&live[i], at, "");
    for (size_t i = 0; i < freed_count && !told; ++i)
        told = tell_of(&freed[(freed_first + i) % MOST_FREED], at, ", which had been freed");
    signal(number, SIG_DFL); /* the access is made once more, and ends the process as it would have */
}

/* The table. Called with the lock held. */

static size_t home(const char *block) { return mixed((uintptr_t)block) % SLOTS; }

static Block *found(const void *block)
{
    for (size_t i = home(block); live[i].block; i = (i + 1) % SLOTS)
        if (live[i].block == block) return &live[i];
    return NULL;
}

static void enter(Block b)
{
    size_t i = home(b.block);
    while (live[i].block) i = (i + 1) % SLOTS;
    live[i] = b;
    ++live_count;
}

static void leave(Block *b)
{
    size_t hole = (size_t)(b - live);
    for (size_t i = (hole + 1) % SLOTS; live[i].block; i = (i + 1) % SLOTS) {
        size_t from_home = (i + SLOTS - home(live[i].block)) % SLOTS, from_hole = (i + SLOTS - hole) % SLOTS;
        if (from_home < from_hole) continue;
        live[hole] = live[i]; /* a search that starts at its home comes past the hole */
        hole = i;
    }
    live[hole].block = NULL;
    --live_count;
}

/* Blocks. */

static void *guarded_block(size_t alignment, size_t bytes, int fill)
{
    size_t body = up(bytes, alignment), pages_bytes = up(body, page), total = pages_bytes + 2 * WALL;
    char *base = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    Block b = {NULL, bytes, base + WALL, pages_bytes};
    if (mprotect(b.first, pages_bytes, PROT_READ | PROT_WRITE)) {
        munmap(base, total);
        return NULL;
    }
    b.block = side == BEFORE ? b.first : b.first + pages_bytes - body;
    for (char *at = b.first; at < b.block; ++at) *at = (char)canary(at);
    for (char *at = b.block + bytes; at < b.first + pages_bytes; ++at) *at = (char)canary(at);
    if (fill) memset(b.block, poison, bytes);
    take();
    int room = live_count < MOST_LIVE;
    if (room) {
        enter(b);
        ++guarded;
    }
    give();
    if (room) return b.block;
    munmap(base, total);
    return NULL;
}

/* NULL where it is not for us: the caller then asks glibc. */
static void *try_guarded(size_t alignment, size_t bytes, int fill)
{
    if (side == OFF || !bytes || bytes > LARGEST) return NULL;
    if (alignment < VECTOR_BYTES && bytes < SMALLEST) return NULL;
    void *block = alignment > page || (alignment & (alignment - 1)) ? NULL : guarded_block(alignment, bytes, fill);
    if (!block) __atomic_add_fetch(&passed_by, 1, __ATOMIC_RELAXED);
    return block;
}

static void unmap_oldest(void)
{
    Block *b = &freed[freed_first];
    munmap(b->first - WALL, b->pages_bytes + 2 * WALL);
    freed_bytes -= b->pages_bytes;
    freed_first = (freed_first + 1) % MOST_FREED;
    --freed_count;
}

/* Whether it was ours. */
static int release(void *block)
{
    if (!ever_on || !block) return 0;
    take();
    Block *entry = found(block);
    if (entry) {
        Block b = *entry;
        require_whole(&b);
        leave(entry);
        /* A new mapping in its place gives the memory back, and joins the walls on both sides. */
        mmap(b.first, b.pages_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (freed_count == MOST_FREED) unmap_oldest();
        freed[(freed_first + freed_count++) % MOST_FREED] = b;
        freed_bytes += b.pages_bytes;
        while (freed_bytes > MOST_FREED_BYTES && freed_count > 1) unmap_oldest();
    }
    give();
    return entry != NULL;
}

/* Whether it is ours, and how long. */
static int measured(void *block, size_t *bytes)
{
    if (!ever_on || !block) return 0;
    take();
    Block *entry = found(block);
    if (entry) *bytes = entry->bytes;
    give();
    return entry != NULL;
}

/* What everybody calls. */

EXPORT void *malloc(size_t bytes)
{
    void *block = try_guarded(16, bytes, 1);
    return block ? block : __libc_malloc(bytes);
}

EXPORT void *calloc(size_t count, size_t each)
{
    size_t bytes;
    if (side == OFF || __builtin_mul_overflow(count, each, &bytes)) return __libc_calloc(count, each);
    void *block = try_guarded(16, bytes, 0);
    if (block) memset(block, 0, bytes);
    return block ? block : __libc_calloc(count, each);
}

EXPORT void free(void *block)
{
    int error = errno;
    if (!release(block)) __libc_free(block);
    errno = error;
}

EXPORT void *realloc(void *block, size_t bytes)
{
    size_t old = 0;
    int ours = measured(block, &old);
    if (!ours) {
        if (side == OFF || !block || bytes < SMALLEST) return block ? __libc_realloc(block, bytes) : malloc(bytes);
        old = real_usable_size(block);
    }
    if (!bytes) {
        free(block);
        return NULL;
    }
    void *moved = malloc(bytes);
    if (!moved) return NULL;
    memcpy(moved, block, old < bytes ? old : bytes);
    free(block);
    return moved;
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
    void *block = try_guarded(alignment < 16 ? 16 : alignment, bytes, 1);
    return block ? block : __libc_memalign(alignment, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

EXPORT int posix_memalign(void **place, size_t alignment, size_t bytes)
{
    if (alignment % sizeof(void *) || !alignment || (alignment & (alignment - 1))) return EINVAL;
    int error = errno;
    void *block = memalign(alignment, bytes);
    errno = error;
    if (!block) return ENOMEM;
    *place = block;
    return 0;
}

EXPORT size_t malloc_usable_size(void *block)
{
    size_t bytes;
    return measured(block, &bytes) ? bytes : real_usable_size(block);
}

/* What the guest calls through ctypes. */

/* Guards what is allocated from now on: on = 0 not, 1 with the block's end at the wall behind, 2 with its start at the
   wall in front. `fill` is the byte of fresh memory. */
EXPORT void agentgen_guard(int on, int fill)
{
    poison = (unsigned char)fill;
    if (on != OFF && !ever_on) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, NULL);
        sigaction(SIGBUS, &action, NULL);
        ever_on = 1;
    }
    side = on;
}

/* Looks at the filling of all living blocks; aborts as `free` would. */
EXPORT void agentgen_guard_check(void)
{
    take();
    for (size_t i = 0; i < SLOTS; ++i)
        if (live[i].block) require_whole(&live[i]);
    give();
}

/* Blocks guarded so far, and blocks that should have been but for a limit. */
EXPORT void agentgen_guard_counts(unsigned long *counts)
{
    take();
    counts[0] = guarded;
    counts[1] = passed_by;
    give();
}
