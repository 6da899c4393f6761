/* SPDX-License-Identifier: MIT
 *
 * Goal: a disk that fails on one rank ends the others at once, and eo_runtime_error says what failed, where and why. (That a
 * damaged checkpoint does not: tests/checkpoint/damage.c.)
 * A limit on the size of files is an error of the call that meets it, and no signal that ends the process.
 * Method: two ranks that are threads, with all layers on disk; behind the third step one of the files loses its bytes. A
 * process with such a limit makes whatever a trainer's thread makes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <evenodd/evenodd.h>

#include "streams/cpu/memory_file.h"
#include "tests/tap/tap.h"

enum { RANKS = 2, LAYERS = 5, ELEMENTS = 4096, STEPS = 8, SPOILT_STEP = 3, TMPFS = 0x01021994 };

struct rank {
    uint32_t rank;
    eo_world *world;
    eo_status status;
    char error[512];
};

static eo_plan *plan;

static bool make_plan(uint32_t rank_count)
{
    eo_model *model = NULL;
    bool made = eo_model_create(&model, eo_model_params(.name = "layers")) >= 0;
    for (uint32_t l = 0; l < LAYERS && made; l++) {
        char name[16];
        snprintf(name, sizeof(name), "layer%u", l);
        made = eo_model_add_layer(model, eo_layer_params(.name = name), NULL) >= 0 &&
               eo_model_add_parameter(model, eo_parameter_params(.layer = l, .name = name, .dim_count = 1, .dims = {ELEMENTS}),
                                      NULL) >= 0 &&
               eo_model_add_position(model, eo_position_params(.layer = l, .name = name), NULL) >= 0;
    }
    made = made && eo_plan_create(&plan, model, eo_plan_params(.rank_count = rank_count, .offload_layers = LAYERS)) >= 0;
    eo_model_destroy(&model);
    return made;
}

/* The first file without a name, of whichever rank. */
static bool spoil_file(void)
{
    bool found = false;
    struct dirent *entry;
    DIR *files = opendir("/proc/self/fd");
    while (files && !found && (entry = readdir(files))) {
        char to[512] = "";
        const int fd = atoi(entry->d_name);
        struct stat info;
        const ssize_t bytes = readlinkat(dirfd(files), entry->d_name, to, sizeof(to) - 1);
        found = bytes > 0 && strstr(to, " (deleted)") && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 0 &&
                info.st_size >= LAYERS * ELEMENTS && !strstr(to, "/memfd:") && ftruncate(fd, 0) == 0;
    }
    if (files)
        closedir(files);
    return found;
}

static eo_status take_step(eo_runtime *rt)
{
    const eo_view *view;
    EO_TRY(eo_step_begin(rt));
    for (uint32_t p = 0; p < LAYERS; p++) {
        EO_TRY(eo_forward_begin(rt, p, &view));
        EO_TRY(eo_forward_end(rt, p));
    }
    for (uint32_t p = LAYERS; p-- > 0;) {
        EO_TRY(eo_backward_begin(rt, p, &view));
        EO_TRY(eo_gradients_begin(rt, p, &view));
        for (uint32_t i = 0; i < ELEMENTS; i++)
            ((float *)view->gradients[0])[i] = 1;
        EO_TRY(eo_backward_end(rt, p));
    }
    return eo_step_end(rt, eo_step_params(.learning_rate = 0.01f), NULL);
}

static eo_status train(struct rank *self, eo_runtime *rt)
{
    for (uint32_t step = 1; step <= STEPS; step++) {
        EO_TRY(take_step(rt));
        if (step == SPOILT_STEP && self->rank == 0)
            CHECK_THAT(spoil_file());
    }
    return EO_OK;
}

static int rank_main(void *argument)
{
    struct rank *self = argument;
    eo_runtime *rt = NULL;
    self->status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = self->world));
    if (self->status >= 0)
        self->status = train(self, rt);
    snprintf(self->error, sizeof(self->error), "%s", eo_runtime_error(rt));
    eo_runtime_destroy(&rt);
    return 0;
}

/* What they took. */
static double run_ranks(struct rank ranks[RANKS])
{
    thrd_t threads[RANKS];
    eo_world *worlds[RANKS] = {NULL};
    struct timespec begin, end;
    timespec_get(&begin, TIME_UTC);
    CHECK_THAT(eo_world_create_local(worlds, eo_world_params(.rank_count = RANKS)) >= 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.rank = r, .world = worlds[r]};
        CHECK_THAT(thrd_create(&threads[r], rank_main, &ranks[r]) == thrd_success);
    }
    for (uint32_t r = 0; r < RANKS; r++)
        thrd_join(threads[r], NULL);
    for (uint32_t r = 0; r < RANKS; r++)
        eo_world_destroy(&worlds[r]);
    timespec_get(&end, TIME_UTC);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static void disk_in_a_step(void)
{
    struct rank ranks[RANKS];
    const double seconds = run_ranks(ranks); /* their timeout is a minute */
    const struct rank *hit = ranks[0].status == EO_ERR_IO ? &ranks[0] : &ranks[1], *other = &ranks[1 - hit->rank];
    char name[16];
    snprintf(name, sizeof(name), "rank %u", hit->rank);
    CHECK(hit->status == EO_ERR_IO && other->status == EO_ERR_COMM, "statuses %d and %d: %s; %s", (int)hit->status,
          (int)other->status, hit->error, other->error);
    CHECK(strstr(hit->error, " the offload file in the offload folder .: "), "no reason: %s", hit->error);
    CHECK(strstr(other->error, name) && strstr(other->error, " the offload file in the offload folder .: "), "no cause: %s",
          other->error);
    CHECK(seconds < 20, "%.1f s", seconds);
    tap_case("a disk that fails in a step ends all ranks at once, and all say what, where and why");
}

static eo_status make_zeros(void *user, uint32_t parameter, uint64_t offset, uint64_t count, float *values)
{
    memset(values, 0, count * sizeof(*values));
    return EO_OK;
}

/* The calls that make files, or memory as files, on the thread of a trainer. */
static int meet_limit(bool has_disk)
{
    const struct rlimit limit = {4096, RLIM_INFINITY};
    eo_flight_recorder *recorder;
    eo_world *world;
    eo_runtime *rt;
    eo_checkpoint *checkpoint;
    sigset_t pending, blocked;
    CHECK_THAT(make_plan(1) && eo_world_create_local(&world, eo_world_params(.rank_count = 1)) >= 0);
    CHECK_THAT(eo_checkpoint_make(plan, "limited", make_zeros, NULL, NULL, 0, NULL) == EO_OK);
    CHECK_THAT(eo_checkpoint_open(&checkpoint, "limited/step-000000000000", NULL) == EO_OK);
    CHECK_THAT(setrlimit(RLIMIT_FSIZE, &limit) == 0);

    CHECK_THAT(eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.path = "limited/flight", .rank_count = 1)) ==
               EO_ERR_IO);
    if (has_disk)
        CHECK_THAT(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = world)) == EO_ERR_IO);
    CHECK_THAT(eo_checkpoint_make(plan, "limited/made", make_zeros, NULL, NULL, 0, NULL) == EO_ERR_IO);
    CHECK_THAT(eo_checkpoint_reshard(checkpoint, "limited/sharded", 2, NULL) == EO_ERR_IO);
    errno = 0;
    CHECK_THAT(eo_memory_file_make("limited", 1 << 20) < 0 && errno == EFBIG);
    CHECK_THAT(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
    CHECK_THAT(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGXFSZ));
    eo_checkpoint_close(&checkpoint);
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
    return atomic_load(tap_notes()) > 0;
}

static void limited_files(bool has_disk)
{
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        status = meet_limit(has_disk);
        fflush(stdout);
        _exit(status);
    }
    CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(!WIFSIGNALED(status), "ended by signal %d", WTERMSIG(status));
    CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0 && system("rm -r limited") == 0);
    tap_case("a limit on the size of files is told by the call that meets it, and ends no process");
}

int main(void)
{
    struct statfs kind;
    const bool has_disk = statfs(".", &kind) != 0 || kind.f_type != TMPFS;
    limited_files(has_disk);
    if (!has_disk) {
        tap_skip("a disk that fails in a step", "the folder of the build lies in memory: no disk to offload to");
        return tap_end();
    }
    CHECK_THAT(make_plan(RANKS));
    disk_in_a_step();
    eo_plan_destroy(&plan);
    return tap_end();
}
