/* SPDX-License-Identifier: MIT */
#include "tests/conformance/training/heap_calls.h"

#include <errno.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The C library's own names, under which its functions stay reachable. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void __libc_free(void *memory);
void *__libc_memalign(size_t align, size_t bytes);

/* -- who called ---------------------------------------------------------------------------------------------------- */

static struct {
    uintptr_t begin, end;
    char name[64]; /* "" is the program */
} modules[HEAP_CALLERS_MAX];
static uint32_t module_count;
static _Atomic uint64_t counts[HEAP_CALLERS_MAX + 1]; /* by module, then unknown */
static _Atomic uint64_t system_call_count;
static _Atomic uintptr_t first_ours;
static _Atomic bool counting;

static int add_module(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        const uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        const uintptr_t to = from + info->dlpi_phdr[i].p_memsz;
        begin = from < begin ? from : begin;
        end = to > end ? to : end;
    }
    if (module_count == HEAP_CALLERS_MAX || begin >= end)
        return 0;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    modules[module_count].begin = begin;
    modules[module_count].end = end;
    strncpy(modules[module_count].name, name, sizeof(modules[0].name) - 1);
    module_count++;
    return 0;
}

static void count(void *caller)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed))
        return;
    const uintptr_t at = (uintptr_t)caller;
    uint32_t m = 0;
    while (m < module_count && (at < modules[m].begin || at >= modules[m].end))
        m++;
    atomic_fetch_add(&counts[m], 1);
    uintptr_t nobody = 0;
    if (m == 0)
        atomic_compare_exchange_strong(&first_ours, &nobody, at - modules[0].begin);
}

#define COUNT() count(__builtin_return_address(0))

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    COUNT();
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t bytes)
{
    COUNT();
    return __libc_calloc(n, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *memory, size_t bytes)
{
    COUNT();
    return __libc_realloc(memory, bytes);
}

__attribute__((visibility("default"))) void free(void *memory)
{
    COUNT();
    __libc_free(memory);
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t align, size_t bytes)
{
    COUNT();
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t bytes)
{
    COUNT();
    return __libc_memalign(align, bytes);
}

__attribute__((visibility("default"))) void *memalign(size_t align, size_t bytes);
__attribute__((visibility("default"))) void *memalign(size_t align, size_t bytes)
{
    COUNT();
    return __libc_memalign(align, bytes);
}

/* -- system calls -------------------------------------------------------------------------------------------------- */

/* A thread that the filter does not apply to is asked about each memory system call: it counts, and lets it go on. */
static _Atomic int listener = -1;

/*
 * glibc reserves an arena when a thread's first heap call finds the others taken, and on a busy machine a worker's first
 * piece of work may come in any step. It is 128 MiB of addresses without access, which are then cut to 64: addresses,
 * once a thread, and no memory. Told by its exact form, so that nothing else is left out of the count.
 */
static bool is_new_arena(const struct seccomp_notif *call)
{
    enum { ARENA = 64 << 20, MAKERS_MAX = 32 };
    static struct {
        uint32_t thread;
        uint64_t to_cut;
    } makers[MAKERS_MAX];
    const uint64_t bytes = call->data.args[1];
    for (uint32_t m = 0; m < MAKERS_MAX; m++) {
        if (makers[m].to_cut == 0 && call->data.nr == SYS_mmap && bytes == 2 * (uint64_t)ARENA &&
            call->data.args[2] == PROT_NONE) {
            makers[m].thread = call->pid;
            makers[m].to_cut = ARENA;
            return true;
        }
        if (makers[m].to_cut > 0 && call->data.nr == SYS_munmap && call->pid == makers[m].thread &&
            bytes <= makers[m].to_cut) {
            makers[m].to_cut -= bytes;
            return true;
        }
    }
    return false;
}

static void *answer(void *arg)
{
    while (atomic_load(&listener) < 0)
        usleep(100);
    for (;;) {
        struct seccomp_notif call;
        memset(&call, 0, sizeof(call));
        if (ioctl(atomic_load(&listener), SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
            continue; /* interrupted */
        if (!is_new_arena(&call) && atomic_load(&counting))
            atomic_fetch_add(&system_call_count, 1);
        struct seccomp_notif_resp go_on = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        (void)ioctl(atomic_load(&listener), SECCOMP_IOCTL_NOTIF_SEND, &go_on);
    }
    return arg;
}

static bool filter_system_calls(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    const struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};
    pthread_t thread;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || pthread_create(&thread, NULL, answer, NULL) != 0)
        return false;
    /* Of this thread, and those that it starts from now on. */
    const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    if (fd < 0)
        return false;
    atomic_store(&listener, (int)fd);
    return true;
}

/* -- the count ------------------------------------------------------------------------------------------------------*/

bool heap_calls_init(void)
{
    dl_iterate_phdr(add_module, NULL); /* the program comes first */
    return filter_system_calls();
}

void heap_calls_start(void)
{
    for (uint32_t m = 0; m <= HEAP_CALLERS_MAX; m++)
        atomic_store(&counts[m], 0);
    atomic_store(&system_call_count, 0);
    atomic_store(&first_ours, 0);
    atomic_store(&counting, true);
}

void heap_calls_stop(struct heap_calls *out)
{
    atomic_store(&counting, false);
    memset(out, 0, sizeof(*out));
    out->ours = atomic_load(&counts[0]);
    out->system_calls = atomic_load(&system_call_count);
    out->first_ours = atomic_load(&first_ours);
    for (uint32_t m = 1; m <= module_count; m++) {
        const uint64_t calls = atomic_load(&counts[m]);
        out->others += calls;
        if (calls == 0)
            continue;
        strncpy(out->callers[out->caller_count].name, m < module_count ? modules[m].name : "unknown",
                sizeof(out->callers[0].name) - 1);
        out->callers[out->caller_count++].count = calls;
    }
}
