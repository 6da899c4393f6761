/* SPDX-License-Identifier: MIT
 *
 * Counts heap and mapping calls by who makes them. Preloaded into a program:
 *
 *     EO_COUNT_CALLS=FILE LD_PRELOAD=libcount_calls.so PROGRAM ...
 *
 * At the end FILE holds a line for each caller and call: "libdnnl.so.2 malloc 1234". A caller is the program or library
 * that the return address lies in. Callers are kept as addresses in a fixed table while the program runs, and become
 * names only at the end, so that counting neither allocates nor locks.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum call { MALLOC, CALLOC, REALLOC, FREE, ALIGNED, MMAP, MUNMAP, MREMAP, BRK, CALL_COUNT };
static const char *const call_names[CALL_COUNT] = {"malloc", "calloc", "realloc", "free", "aligned",
                                                   "mmap",   "munmap", "mremap",  "brk"};

enum { TABLE_SIZE = 1 << 15 };
static struct entry {
    _Atomic(uintptr_t) caller;
    atomic_ulong counts[CALL_COUNT];
} table[TABLE_SIZE];
static atomic_ulong lost; /* the table was full */

static void count(enum call call, const void *caller)
{
    const uintptr_t key = (uintptr_t)caller;
    size_t at = (key * UINT64_C(0x9E3779B97F4A7C15)) >> 49;
    for (int probes = 0; probes < TABLE_SIZE; probes++, at = (at + 1) % TABLE_SIZE) {
        uintptr_t found = atomic_load(&table[at].caller);
        if (found == 0 && atomic_compare_exchange_strong(&table[at].caller, &found, key))
            found = key;
        if (found == key) {
            atomic_fetch_add(&table[at].counts[call], 1);
            return;
        }
    }
    atomic_fetch_add(&lost, 1);
}

/* glibc's own names for what is replaced here. Looking them up with dlsym would allocate. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void *malloc(size_t size)
{
    count(MALLOC, CALLER);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count(CALLOC, CALLER);
    return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    count(REALLOC, CALLER);
    return __libc_realloc(memory, size);
}

void free(void *memory)
{
    if (memory) /* free(NULL) does nothing */
        count(FREE, CALLER);
    __libc_free(memory);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    count(ALIGNED, CALLER);
    *out = __libc_memalign(align, size);
    return *out ? 0 : 12; /* ENOMEM */
}

void *aligned_alloc(size_t align, size_t size)
{
    count(ALIGNED, CALLER);
    return __libc_memalign(align, size);
}

void *memalign(size_t align, size_t size)
{
    count(ALIGNED, CALLER);
    return __libc_memalign(align, size);
}

/* The rest is rare, and may be looked up. */
static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        _exit(127);
    return found;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    count(MMAP, CALLER);
    if (!real)
        *(void **)&real = next("mmap");
    return real(address, bytes, protection, flags, file, offset);
}

int munmap(void *address, size_t bytes)
{
    static int (*real)(void *, size_t);
    count(MUNMAP, CALLER);
    if (!real)
        *(void **)&real = next("munmap");
    return real(address, bytes);
}

void *mremap(void *address, size_t old_bytes, size_t bytes, int flags, ...)
{
    static void *(*real)(void *, size_t, size_t, int, ...);
    count(MREMAP, CALLER);
    if (!real)
        *(void **)&real = next("mremap");
    return real(address, old_bytes, bytes, flags);
}

int brk(void *end)
{
    static int (*real)(void *);
    count(BRK, CALLER);
    if (!real)
        *(void **)&real = next("brk");
    return real(end);
}

void *sbrk(intptr_t bytes)
{
    static void *(*real)(intptr_t);
    count(BRK, CALLER);
    if (!real)
        *(void **)&real = next("sbrk");
    return real(bytes);
}

static const char *module_of(uintptr_t caller)
{
    Dl_info info;
    if (!dladdr((const void *)caller, &info) || !info.dli_fname)
        return "unknown";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static __attribute__((destructor)) void write_counts(void)
{
    const char *path = getenv("EO_COUNT_CALLS");
    FILE *file = path ? fopen(path, "we") : NULL;
    if (!file)
        return;
    enum { MODULES_MAX = 64 };
    static const char *names[MODULES_MAX];
    static unsigned long sums[MODULES_MAX][CALL_COUNT];
    size_t module_count = 0;
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        const uintptr_t caller = atomic_load(&table[i].caller);
        if (!caller)
            continue;
        const char *name = module_of(caller);
        size_t m = 0;
        while (m < module_count && strcmp(names[m], name) != 0)
            m++;
        if (m == MODULES_MAX)
            continue;
        if (m == module_count)
            names[module_count++] = name;
        for (int c = 0; c < CALL_COUNT; c++)
            sums[m][c] += atomic_load(&table[i].counts[c]);
    }
    for (size_t m = 0; m < module_count; m++)
        for (int c = 0; c < CALL_COUNT; c++)
            if (sums[m][c])
                fprintf(file, "%s %s %lu\n", names[m], call_names[c], sums[m][c]);
    fprintf(file, "lost lost %lu\n", atomic_load(&lost));
    fclose(file);
}
