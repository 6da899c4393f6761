/* SPDX-License-Identifier: MIT
 *
 * Runs a block's threads as fibers: a thread goes on until it has to wait for others, at a barrier or a shuffle. A fiber
 * whose thread has ended goes on with the next thread that has not begun, so that a kernel without barriers never switches.
 */
#include "run.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/simulator/kernels/host/cuda_runtime_api.h"

enum state { FRESH, READY, AT_BARRIER, AT_SHUFFLE, ENDED };

struct thread {
    uint32_t fiber; /* where it runs, once it has begun */
    int line;
    const char *file;
    uint32_t mask;
    int kind; /* of shuffle; WARP_BARRIER */
};
enum { WARP_BARRIER = -1 };

struct fiber {
    void *stack_pointer;
    uint32_t thread; /* to begin with */
};

static _Thread_local __attribute__((tls_model("initial-exec"))) struct host {
    struct runner runner;
    struct thread threads[THREADS_MAX];
    /* Of each thread, apart from the rest: what is gone through for all of a warp or a block. */
    uint8_t state[THREADS_MAX]; /* enum state */
    bool condition[THREADS_MAX];
    uint32_t operand[THREADS_MAX];
    uint64_t bits[THREADS_MAX];
    struct fiber fibers[THREADS_MAX];
    uint32_t free_fibers[THREADS_MAX], free_count;
    uint32_t order[THREADS_MAX], cursor, next_fresh; /* in `order` */
    uint32_t active_fiber, ended, at_barrier, holds;
    uint32_t at_shuffle[WARPS_MAX]; /* lanes that wait */
    uint32_t warp_place[WARPS_MAX]; /* in `order`: its first lane */
    uint32_t first_at_barrier;
    bool failed;
    void *before; /* the stack that began the block */
} *host;

_Thread_local struct runner *kernel_runner;
void (*kernel_on_traffic)(const struct kernel_traffic *traffic);

/* Saves what a function has to keep on the old stack, and takes it from the new one. Of these words one is where it returns to;
 * none of it by `ret`, whose target would be guessed from the calls of the old stack. */
void kernel_switch(void **save_stack_pointer, void *stack_pointer);
#if defined(__x86_64__)
enum { SAVED_WORDS = 6, RETURN_WORD = 6 /* just behind them */ };
__asm__(".text\n"
        ".globl kernel_switch\n"
        ".type kernel_switch, @function\n"
        "kernel_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    popq %rcx\n    jmp *%rcx\n"
        ".size kernel_switch, .-kernel_switch\n");
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20, RETURN_WORD = 11 };
__asm__(".text\n"
        ".globl kernel_switch\n"
        ".type kernel_switch, %function\n"
        "kernel_switch:\n"
        "    stp x19, x20, [sp, -160]!\n    stp x21, x22, [sp, 16]\n    stp x23, x24, [sp, 32]\n"
        "    stp x25, x26, [sp, 48]\n    stp x27, x28, [sp, 64]\n    stp x29, x30, [sp, 80]\n"
        "    stp d8, d9, [sp, 96]\n    stp d10, d11, [sp, 112]\n    stp d12, d13, [sp, 128]\n    stp d14, d15, [sp, 144]\n"
        "    mov x9, sp\n    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x21, x22, [sp, 16]\n    ldp x23, x24, [sp, 32]\n    ldp x25, x26, [sp, 48]\n"
        "    ldp x27, x28, [sp, 64]\n    ldp x29, x16, [sp, 80]\n    ldp d8, d9, [sp, 96]\n    ldp d10, d11, [sp, 112]\n"
        "    ldp d12, d13, [sp, 128]\n    ldp d14, d15, [sp, 144]\n    ldp x19, x20, [sp], 160\n"
        "    br x16\n"
        ".size kernel_switch, .-kernel_switch\n");
#else
#error "the switch between fibers is written for x86-64 and ARM"
#endif

/* The next thread in `order` that can go on. */
static inline uint32_t next_runnable(struct host *h)
{
    const uint32_t count = h->runner.thread_count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t thread = h->order[h->cursor];
        h->cursor = h->cursor + 1 < count ? h->cursor + 1 : 0;
        if (h->state[thread] <= READY)
            return thread;
    }
    return NONE;
}

/* Leaves this stack for that of another thread, or, where none can go on, for the one that began the block. */
static void go_on(struct host *h, void **save_stack_pointer)
{
    const uint32_t thread = h->failed ? NONE : next_runnable(h);
    h->runner.current = thread;
    if (thread == NONE) {
        if (save_stack_pointer != &h->before)
            kernel_switch(save_stack_pointer, h->before);
        return;
    }
    struct thread *next = &h->threads[thread];
    if (h->state[thread] == FRESH) {
        next->fiber = h->free_fibers[--h->free_count];
        h->fibers[next->fiber].thread = thread;
    }
    h->active_fiber = next->fiber;
    const struct fiber *soon = &h->fibers[h->threads[h->order[h->cursor]].fiber]; /* mostly the one after */
    __builtin_prefetch(soon->stack_pointer);
    __builtin_prefetch((const char *)soon->stack_pointer + 64);
    kernel_switch(save_stack_pointer, h->fibers[next->fiber].stack_pointer);
}

_Noreturn void kernel_object(const char *format, ...)
{
    struct runner *r = &host->runner;
    const uint32_t *b = r->block_index, *t = r->thread_index[r->current];
    int used = snprintf(r->objection, sizeof(r->objection), "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): ",
                        r->launch->name, b[0], b[1], b[2], t[0], t[1], t[2]);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(r->objection + used, sizeof(r->objection) - (size_t)used, format, arguments);
    va_end(arguments);
    host->failed = true;
    go_on(host, &host->fibers[host->active_fiber].stack_pointer);
    abort(); /* nobody goes on with a failed launch */
}

/* --- the life of a fiber --- */

static uint32_t take_fresh(void)
{
    while (host->next_fresh < host->runner.thread_count) {
        const uint32_t thread = host->order[host->next_fresh++];
        if (host->state[thread] == FRESH)
            return thread;
    }
    return NONE;
}

static void fiber_main(void)
{
    const uint32_t self = host->active_fiber;
    for (;;) {
        for (uint32_t thread = host->fibers[self].thread; thread != NONE; thread = take_fresh()) {
            host->state[thread] = READY;
            host->threads[thread].fiber = self;
            host->runner.current = thread;
            host->runner.launch->thread(host->runner.launch->kernel, host->runner.arguments);
            host->state[thread] = ENDED;
            host->ended++;
        }
        host->free_fibers[host->free_count++] = self;
        go_on(host, &host->fibers[self].stack_pointer);
    }
}

static void reset_fibers(void)
{
    for (uint32_t f = 0; f < THREADS_MAX; f++) {
        /* As kernel_switch leaves it. On x86-64 a function begins 8 bytes off 16. */
        /* Stacks a power of two apart would share a few lines of the cache: their tops are spread. */
        void **top = (void **)(host->runner.stacks + (uintptr_t)(f + 1) * STACK_BYTES - 64 - f * 7 % 64 * 256);
        host->fibers[f].stack_pointer = top - SAVED_WORDS;
        (top - SAVED_WORDS)[RETURN_WORD] = (void *)(uintptr_t)fiber_main;
        host->free_fibers[f] = THREADS_MAX - 1 - f;
    }
    host->free_count = THREADS_MAX;
}

/* --- barriers --- */

static void wait_as(enum state state, const char *file, int line)
{
    struct host *h = host;
    struct thread *t = &h->threads[h->runner.current];
    h->state[h->runner.current] = (uint8_t)state;
    t->file = file;
    t->line = line;
    go_on(h, &h->fibers[t->fiber].stack_pointer);
}

static void tick(uint32_t warp)
{
    if (++host->runner.warp_clock[warp] == UINT16_MAX)
        kernel_object("more than %d barriers in one block: the checker's clocks are too short", UINT16_MAX - 1);
}

static void open_barrier(void)
{
    struct runner *r = &host->runner;
    r->epoch++;
    for (uint32_t w = 0; w * WARP < r->thread_count; w++) {
        r->warp_clock_at_barrier[w] = r->warp_clock[w];
        tick(w);
    }
    host->holds = 0;
    for (uint32_t t = 0; t < r->thread_count; t++)
        host->holds += host->condition[t];
    memset(host->state, READY, r->thread_count);
    host->at_barrier = 0;
}

uint32_t kernel_barrier(uint32_t condition, const char *file, int line)
{
    struct runner *r = &host->runner;
    host->condition[r->current] = condition != 0;
    const struct thread *first = &host->threads[host->first_at_barrier];
    if (host->at_barrier == 0)
        host->first_at_barrier = r->current;
    else if (first->line != line || first->file != file)
        kernel_object("at the barrier of %s:%d, while thread %u is at that of %s:%d", file, line, host->first_at_barrier,
                      first->file, first->line);
    if (++host->at_barrier < r->thread_count)
        wait_as(AT_BARRIER, file, line);
    else
        open_barrier();
    return host->holds;
}

/* --- shuffles --- */

static void check_mask(const struct runner *r, uint32_t mask, const char *file, int line)
{
    const uint32_t lane = r->current % WARP, left = r->thread_count - (r->current - lane);
    const uint32_t there = left >= WARP ? 0xffffffffu : (1u << left) - 1;
    if (!(mask >> lane & 1))
        kernel_object("%s:%d: mask %#x has not the lane that calls, %u", file, line, mask, lane);
    if (mask & ~there)
        kernel_object("%s:%d: mask %#x names lanes that are not there: the warp has %u", file, line, mask, left);
}

static inline uint32_t source_lane(int kind, uint32_t operand, uint32_t lane)
{
    const uint32_t from = kind == WARP_BARRIER          ? lane
                          : kind == KERNEL_SHUFFLE_XOR  ? lane ^ operand
                          : kind == KERNEL_SHUFFLE_DOWN ? lane + operand
                                                        : operand % WARP;
    return from < WARP ? from : lane;
}

/* All lanes of the mask are here when the last one comes; results are theirs before any goes on. */
static uint64_t meet(int kind, uint32_t mask, uint64_t bits, uint32_t operand, const char *file, int line)
{
    struct host *h = host;
    const uint32_t self = h->runner.current;
    const uint32_t first = self / WARP * WARP;
    struct thread *warp = h->threads + first, *me = h->threads + self;
    uint64_t results[WARP];
    check_mask(&h->runner, mask, file, line);
    me->kind = kind, me->mask = mask;
    h->bits[self] = bits, h->operand[self] = operand;
    uint32_t *here = &h->at_shuffle[self / WARP];
    if (*here & mask) {
        const struct thread *other = warp + __builtin_ctz(*here & mask);
        if (other->mask != mask || other->kind != kind || other->line != line)
            kernel_object("%s:%d: shuffles with thread %u, which is at another shuffle, %s:%d", file, line,
                          (uint32_t)(other - h->threads), other->file, other->line);
    }
    *here |= 1u << self % WARP;
    if ((*here & mask) != mask) {
        wait_as(AT_SHUFFLE, file, line);
        return h->bits[self];
    }
    for (uint32_t left = mask; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left), from = source_lane(kind, h->operand[first + lane], lane);
        if (!(mask >> from & 1))
            kernel_object("%s:%d: lane %u reads from lane %u, which mask %#x does not name", file, line, lane, from, mask);
        results[lane] = h->bits[first + from];
    }
    for (uint32_t left = mask; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left);
        h->bits[first + lane] = results[lane];
        h->state[first + lane] = READY;
    }
    *here &= ~mask;
    h->cursor = h->warp_place[self / WARP]; /* the warp's other lanes are next: their stacks are in the cache */
    return h->bits[self];
}

uint64_t kernel_shuffle_bits(uint32_t mask, uint64_t bits, enum kernel_shuffle_kind kind, uint32_t operand,
                             const char *file, int line)
{
    return meet((int)kind, mask, bits, operand, file, line);
}

void kernel_warp_barrier(uint32_t mask, const char *file, int line)
{
    const uint32_t warp = host->runner.current / WARP, before = host->runner.warp_clock[warp];
    (void)meet(WARP_BARRIER, mask, 0, 0, file, line);
    if (host->runner.warp_clock[warp] == before && mask == 0xffffffffu) /* the first that goes on; parts of a warp order nothing */
        tick(warp);
}

/* --- a block --- */

/* Nobody can go on. */
static void object_to_standstill(void)
{
    struct runner *r = &host->runner;
    const struct thread *waits = NULL;
    uint32_t who = 0;
    for (uint32_t t = 0; t < r->thread_count && !waits; t++)
        if (host->state[t] != ENDED)
            waits = &host->threads[t], who = t;
    snprintf(r->objection, sizeof(r->objection), "kernel %s, block (%u, %u, %u): thread %u waits at the %s of %s:%d, which not all "
             "reach: of %u threads %u have ended, %u are at a barrier", r->launch->name, r->block_index[0], r->block_index[1],
             r->block_index[2], who, host->state[who] == AT_BARRIER ? "barrier" : "shuffle", waits->file, waits->line,
             r->thread_count, host->ended, host->at_barrier);
    host->failed = true;
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    a ^= b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2);
    a = (a ^ a >> 30) * 0xbf58476d1ce4e5b9u;
    a = (a ^ a >> 27) * 0x94d049bb133111ebu;
    return a ^ a >> 31;
}

/* Every index below count once: begin, begin + stride, ... Seed 0: in their order. */
struct walk {
    uint64_t at, stride, count;
};

static struct walk walk_of(uint64_t seed, uint64_t salt, uint64_t count)
{
    static const uint32_t primes[] = {1, 7, 31, 97, 251, 509, 751, 1000003};
    if (seed == 0 || count < 2)
        return (struct walk){0, 1, count};
    const uint64_t dice = mixed(seed, salt);
    const uint64_t prime = primes[dice % 8];
    const uint64_t stride = count % prime ? prime % count : 1;
    return (struct walk){dice / 8 % count, dice >> 40 & 1 ? stride : count - stride, count};
}

static uint64_t step(struct walk *walk)
{
    const uint64_t at = walk->at;
    walk->at += walk->stride; /* which is not above the count: no division */
    walk->at -= walk->at >= walk->count ? walk->count : 0;
    return at;
}

static void run_block(uint64_t block)
{
    struct runner *r = &host->runner;
    const uint32_t *grid = r->launch->grid;
    r->block_index[0] = (uint32_t)(block % grid[0]);
    r->block_index[1] = (uint32_t)(block / grid[0] % grid[1]);
    r->block_index[2] = (uint32_t)(block / grid[0] / grid[1]);
    struct walk warps = walk_of(r->options.seed, block + 1, (r->thread_count + WARP - 1) / WARP);
    for (uint32_t i = 0; i < r->thread_count;) {
        const uint32_t warp = (uint32_t)step(&warps), left = r->thread_count - warp * WARP;
        struct walk lanes = walk_of(r->options.seed, block + warp, left < WARP ? left : WARP);
        host->warp_place[warp] = i;
        for (uint64_t lane = 0; lane < lanes.count; lane++, i++) {
            host->order[i] = warp * WARP + (uint32_t)step(&lanes);
            host->state[host->order[i]] = FRESH;
        }
    }
    host->cursor = host->next_fresh = host->ended = host->at_barrier = 0;
    memset(host->at_shuffle, 0, sizeof(host->at_shuffle));
    r->epoch = 0;
    memset(r->warp_clock, 0, sizeof(r->warp_clock));
    memset(r->warp_clock_at_barrier, 0, sizeof(r->warp_clock_at_barrier));
    for (uint32_t w = 0; w < WARPS_MAX; w++)
        r->warp_clock[w] = 1;
    if (r->shared_bytes > 0)
        memset(r->shared, 0xff, r->shared_bytes); /* NaN */
    kernel_checks_begin_block(r);
    go_on(host, &host->before);
    if (host->ended < r->thread_count && !host->failed)
        object_to_standstill();
}

/* --- launches --- */

enum { LOADED_MAX = 512 };
static struct {
    const void *kernel;
    int shared_bytes; /* opted in */
} loaded[LOADED_MAX];
static uint32_t loaded_count;
static _Atomic bool loading;

static int *loaded_kernel(const void *kernel, bool load)
{
    int *found = NULL;
    while (atomic_exchange_explicit(&loading, true, memory_order_acquire)) {
    }
    for (uint32_t i = 0; i < loaded_count && !found; i++)
        if (loaded[i].kernel == kernel)
            found = &loaded[i].shared_bytes;
    if (!found && load && loaded_count < LOADED_MAX) {
        loaded[loaded_count].kernel = kernel;
        loaded[loaded_count].shared_bytes = SHARED_DEFAULT;
        found = &loaded[loaded_count++].shared_bytes;
    }
    atomic_store_explicit(&loading, false, memory_order_release);
    return found;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel)
{
    (void)out; /* who asks only wants it loaded */
    if (!loaded_kernel(kernel, true))
        abort();
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    int *shared_bytes = loaded_kernel(kernel, true);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > SHARED_MAX || !shared_bytes)
        return cudaErrorInvalidValue;
    *shared_bytes = value > SHARED_DEFAULT ? value : SHARED_DEFAULT;
    return cudaSuccess;
}

void kernel_forget_loaded(void)
{
    loaded_count = 0;
}

const char *kernel_launch_fault(const struct kernel_launch *launch, size_t argument_bytes, char *text, size_t text_bytes)
{
    static const uint32_t grid_max[3] = {0x7fffffff, 65535, 65535}, block_max[3] = {1024, 1024, 64};
    const int *shared_bytes = loaded_kernel(launch->kernel, false);
    if (!shared_bytes) {
        snprintf(text, text_bytes, "kernel %s was not loaded before its first launch", launch->name);
        return text;
    }
    for (int i = 0; i < 3; i++) {
        const bool in_grid = launch->grid[i] >= 1 && launch->grid[i] <= grid_max[i];
        if (in_grid && launch->block[i] >= 1 && launch->block[i] <= block_max[i])
            continue;
        snprintf(text, text_bytes, "kernel %s: a %s of %u in %c", launch->name, in_grid ? "block" : "grid",
                 in_grid ? launch->block[i] : launch->grid[i], "xyz"[i]);
        return text;
    }
    const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    if (threads > THREADS_MAX)
        snprintf(text, text_bytes, "kernel %s: %llu threads a block", launch->name, (unsigned long long)threads);
    else if (threads > launch->threads_max)
        snprintf(text, text_bytes, "kernel %s: %llu threads a block, but its __launch_bounds__ are %u", launch->name,
                 (unsigned long long)threads, launch->threads_max);
    else if (launch->shared_bytes > (uint64_t)*shared_bytes)
        snprintf(text, text_bytes, "kernel %s: %llu bytes of shared memory, where %d are allowed", launch->name,
                 (unsigned long long)launch->shared_bytes, *shared_bytes);
    else if (argument_bytes > 4096)
        snprintf(text, text_bytes, "kernel %s: %zu bytes of arguments", launch->name, argument_bytes);
    else
        return NULL;
    return text;
}

static pthread_key_t hosts;

/* Of a thread of the system that ends: a rank's, a stream's. */
static void free_host(void *ended)
{
    struct host *h = ended;
    kernel_checks_free(h->runner.checks);
    (void)munmap((void *)h->runner.stacks, (size_t)THREADS_MAX * STACK_BYTES);
    free(h->runner.shared);
    free(h);
}

static void make_hosts_key(void)
{
    if (pthread_key_create(&hosts, free_host) != 0)
        abort();
}

static void make_host(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    host = calloc(1, sizeof(*host));
    struct runner *r = host ? &host->runner : NULL;
    void *stacks = mmap(NULL, (size_t)THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!r || stacks == MAP_FAILED || !(r->shared = aligned_alloc(256, SHARED_ROOM / 256 * 256 + 256)) ||
        pthread_once(&once, make_hosts_key) != 0 || pthread_setspecific(hosts, host) != 0)
        abort();
    r->stacks = (uintptr_t)stacks;
    r->stacks_end = r->stacks + (uintptr_t)THREADS_MAX * STACK_BYTES;
    r->current = NONE;
    reset_fibers();
    kernel_runner = r;
}

const char *kernel_run(const struct kernel_launch *launch, void *arguments, size_t argument_bytes,
                       const struct kernel_options *options)
{
    if (!host)
        make_host();
    struct runner *r = &host->runner;
    const uint32_t *block = launch->block;
    launch->reach(arguments);
    r->launch = launch;
    r->options = *options;
    r->arguments = arguments;
    r->arguments_at = (uintptr_t)arguments;
    r->arguments_end = r->arguments_at + argument_bytes;
    r->thread_count = block[0] * block[1] * block[2];
    for (uint32_t t = 0; t < r->thread_count && memcmp(r->indexed, block, sizeof(r->indexed)) != 0; t++) {
        r->thread_index[t][0] = t % block[0];
        r->thread_index[t][1] = t / block[0] % block[1];
        r->thread_index[t][2] = t / block[0] / block[1];
    }
    memcpy(r->indexed, block, sizeof(r->indexed));
    r->piece_count = 0;
    r->shared_bytes = 0;
    host->failed = false;
    if (launch->shared_bytes > 0)
        (void)kernel_shared_piece(0, launch->shared_bytes, 256);
    kernel_checks_begin_launch(r);
    const uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    struct walk walk = walk_of(options->seed, 0, blocks);
    for (uint64_t i = 0; i < blocks && !host->failed; i++)
        run_block(step(&walk));
    kernel_checks_end_launch(r);
    if (!host->failed)
        return NULL;
    reset_fibers();
    r->current = NONE;
    return r->objection;
}

/* --- what a kernel asks --- */

struct index3 {
    uint32_t x, y, z;
};
struct index3 kernel_thread_index(void);
struct index3 kernel_block_index(void);
struct index3 kernel_block_size(void);
struct index3 kernel_grid_size(void);

static struct index3 index_of(const uint32_t *at)
{
    return (struct index3){at[0], at[1], at[2]};
}

struct index3 kernel_thread_index(void) { return index_of(host->runner.thread_index[host->runner.current]); }
struct index3 kernel_block_index(void) { return index_of(host->runner.block_index); }
struct index3 kernel_block_size(void) { return index_of(host->runner.launch->block); }
struct index3 kernel_grid_size(void) { return index_of(host->runner.launch->grid); }

void *kernel_shared_piece(int id, uint64_t bytes, uint64_t align)
{
    struct runner *r = &host->runner;
    uint64_t all = bytes;
    for (uint32_t i = 0; i < r->piece_count; i++) {
        if (r->pieces[i].id == id)
            return r->shared + r->pieces[i].from;
        all += r->pieces[i].to - r->pieces[i].from;
    }
    const uint64_t limit = (uint64_t)*loaded_kernel(r->launch->kernel, true);
    if (all > limit || r->piece_count == PIECES_MAX)
        kernel_object("%llu bytes of shared memory in %u pieces, where %llu are allowed", (unsigned long long)all,
                      r->piece_count + 1, (unsigned long long)limit);
    const uint32_t from = (uint32_t)((r->shared_bytes + align - 1) / align * align);
    r->pieces[r->piece_count++] = (struct piece){id, from, (uint32_t)(from + bytes)};
    r->shared_bytes = (uint32_t)(from + bytes + SHARED_GAP);
    memset(r->shared + from, 0xff, bytes + SHARED_GAP);
    return r->shared + from;
}

/* Its piece has the id 0. */
void *kernel_shared_dynamic(void)
{
    return host->runner.shared;
}

void kernel_reach_words(void *words, size_t count)
{
    void **word = words;
    for (size_t i = 0; i < count; i++)
        word[i] = kernel_host_address(word[i]);
}
