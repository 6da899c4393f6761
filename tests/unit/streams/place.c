/* SPDX-License-Identifier: MIT
 *
 * Threads and memory are placed where the process may run, or not at all, and where the kernel refuses they are had without.
 * Method: many ranks at once; hwloc's made-up machines; a copy of it without functions that were new in 2.4; a filter of system
 * calls, as containers have.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "streams/cpu/affinity.h"
#include "streams/device.h"

static char last_said[512];
static uint32_t warning_count;

static void keep_said(void *user, eo_log_level level, const char *text)
{
    (void)user;
    warning_count += level <= EO_LOG_WARN;
    snprintf(last_said, sizeof(last_said), "%s", text);
}

static const eo_log keeping = {.write = keep_said, .level = EO_LOG_INFO};

static struct eo_affinity *place_all(void)
{
    struct eo_affinity *affinity = NULL;
    cr_assert_eq(eo_affinity_best()->init(&affinity, &(const struct eo_affinity_share){.count = 1}, &keeping), EO_OK);
    return affinity;
}

static bool has_hwloc(void)
{
    return strcmp(eo_affinity_best()->name, "none") != 0;
}

/* ---- threads ---- */

static bool processors_refused;

int __real_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set);

int __wrap_sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    if (!processors_refused)
        return __real_sched_getaffinity(process, bytes, set);
    errno = EPERM;
    return -1;
}

/* All threads, for criterion has some. */
static void bind_process(const cpu_set_t *to)
{
    DIR *tasks = opendir("/proc/self/task");
    cr_assert_not_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));)
        if (entry->d_name[0] != '.')
            cr_assert_eq(sched_setaffinity(atoi(entry->d_name), sizeof(*to), to), 0);
    closedir(tasks);
}

struct placed_rank {
    pthread_t thread;
    char expected[64];
    uint32_t elsewhere_count;
};

static void look_where(void *user, eo_log_level level, const char *text)
{
    struct placed_rank *rank = user;
    const char *found = strstr(text, rank->expected);
    (void)level;
    rank->elsewhere_count += !found || found[strlen(rank->expected)] != '\0';
}

static void *place_again_and_again(void *argument)
{
    enum { TIMES = 8 };
    const eo_log looking = {.write = look_where, .user = argument, .level = EO_LOG_INFO};
    for (int i = 0; i < TIMES; i++) {
        struct eo_affinity *affinity = NULL;
        if (eo_affinity_best()->init(&affinity, &(const struct eo_affinity_share){.count = 1}, &looking) >= 0)
            eo_affinity_best()->fini(affinity);
    }
    return NULL;
}

/* Goal: ranks stay on the processor that their process was bound to, though hwloc moves threads while it looks around. */
Test(place, ranks_that_start_at_once_do_not_leave_their_processor)
{
    enum { RANKS = 8 };
    cpu_set_t all, one;
    struct placed_rank ranks[RANKS] = {{0}};
    int last = 0;
    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    if (!has_hwloc() || CPU_COUNT(&all) < 2)
        cr_skip_test("built without hwloc, or one processor");
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &all) ? i : last;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    bind_process(&one);
    for (int i = 0; i < RANKS; i++) {
        snprintf(ranks[i].expected, sizeof(ranks[i].expected), "placed on processors %d", last);
        cr_assert_eq(pthread_create(&ranks[i].thread, NULL, place_again_and_again, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(ranks[i].thread, NULL);
        cr_expect_eq(ranks[i].elsewhere_count, 0, "rank %d: %u times not on %d", i, ranks[i].elsewhere_count, last);
    }
}

/* Goal: hwloc is not asked where the kernel does not tell processors: it would ask again without end. */
Test(place, unknown_processors_place_nothing)
{
    if (!has_hwloc())
        cr_skip_test("built without hwloc");
    processors_refused = true;
    cr_expect_null(place_all());
    processors_refused = false;
    cr_expect_not_null(strstr(last_said, "not placed: the system does not tell their processors"), "%s", last_said);
}

/* A copy of the library in the names of whose functions something else stands: the loader takes it for the library from then
 * on, for it has that name inside. False: there is no library. */
static bool load_hwloc_without_kinds(void)
{
    static const char kinds[] = "hwloc_cpukinds_get";
    char copy[] = "/tmp/eo_hwloc_XXXXXX";
    struct link_map *map;
    void *library = dlopen("libhwloc.so.15", RTLD_NOW);
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return false;
    FILE *from = fopen(map->l_name, "rb");
    cr_assert(from && fseek(from, 0, SEEK_END) == 0);
    const size_t size = (size_t)ftell(from);
    char *bytes = malloc(size);
    rewind(from);
    cr_assert(bytes && fread(bytes, 1, size, from) == size);
    fclose(from);
    cr_assert_eq(dlclose(library), 0);
    for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), kinds, strlen(kinds)));)
        *at = 'H';
    const int file = mkstemp(copy);
    cr_assert(file >= 0 && write(file, bytes, size) == (ssize_t)size && close(file) == 0);
    free(bytes);
    library = dlopen(copy, RTLD_NOW);
    cr_assert(library, "%s", dlerror());
    cr_assert(unlink(copy) == 0 && library == dlopen("libhwloc.so.15", RTLD_NOW) && !dlsym(library, "hwloc_cpukinds_get_nr"));
    return true;
}

/* Goal: hwloc 2.0 to 2.3, which have the library's name too, place threads; only kinds of cores they do not tell. */
Test(place, an_hwloc_that_knows_no_kinds_of_cores_places_threads)
{
    if (!has_hwloc() || !load_hwloc_without_kinds())
        cr_skip_test("without hwloc");
    struct eo_affinity *affinity = place_all();
    cr_assert_not_null(affinity, "%s", last_said);
    eo_affinity_best()->fini(affinity);
}

/* ---- what the kernel refuses ---- */

static void refuse_call(long call, int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        cr_skip_test("no filters here");
}

static void bind_thrice(const char *machine)
{
    const size_t bytes = 1 << 16;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(memory != MAP_FAILED);
    setenv("HWLOC_SYNTHETIC", machine, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    struct eo_affinity *affinity = place_all();
    cr_assert_not_null(affinity, "%s", last_said);
    for (int i = 0; i < 3; i++)
        eo_affinity_best()->bind_memory(affinity, memory, bytes);
    eo_affinity_best()->fini(affinity);
    munmap(memory, bytes);
}

/* Goal: docker's filter refuses mbind; that is told once, and on one node it is nothing to tell. */
Test(place, refused_binding_of_memory_is_told_once)
{
    if (!has_hwloc())
        cr_skip_test("built without hwloc");
    refuse_call(SYS_mbind, EPERM);
    bind_thrice("numa:1 core:2 pu:1");
    cr_expect_eq(warning_count, 0, "%s", last_said);
    bind_thrice("numa:2 core:1 pu:1");
    cr_expect_eq(warning_count, 1, "%u warnings", warning_count);
}

/* Goal: without madvise (CONFIG_ADVISE_SYSCALLS, or a filter) memory is populated by hand. */
Test(place, memory_is_reserved_without_madvise)
{
    struct eo_device *device;
    void *memory;
    refuse_call(SYS_madvise, ENOSYS);
    cr_assert_eq(eo_device_create(&device, "cpu", &(const struct eo_device_params){.queue_count = 2, .ring_capacity = 8,
                                                                                  .rank_count = 1, .log = &keeping}), EO_OK);
    cr_expect_eq(device->ops->reserve(device, EO_MEMORY_KIND_GATHER, 1 << 20, &memory), EO_OK, "%s", last_said);
    device->ops->release(device, EO_MEMORY_KIND_GATHER, memory, 1 << 20);
    eo_device_destroy(&device);
}

/* Goal: a thread that is refused is no lack of memory: the log has the system's word for it, and the remedy of that. */
Test(place, refused_threads_are_told_with_their_remedy)
{
    struct eo_device *device = NULL;
    refuse_call(SYS_clone3, EPERM);
    if (eo_device_create(
            &device, "cpu",
            &(const struct eo_device_params){.queue_count = 2, .ring_capacity = 8, .rank_count = 1, .log = &keeping}) == EO_OK)
        cr_skip_test("this C library does not know clone3");
    cr_expect(strstr(last_said, "queue 1: Operation not permitted; a filter of system calls refuses clone3"), "%s", last_said);
}
