/* SPDX-License-Identifier: MIT
 *
 * Ranks that are processes, over the collectives `shared`.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "runtime/world/internal.h"
#include "tests/random/case_calls.h"

enum { TIMEOUT_MS = 30000 };

/* Where ranks meet before they are a group. */
struct meeting_page {
    pthread_barrier_t barrier;
    unsigned char blobs[CASE_RANKS_MAX][EO_EXCHANGE_BYTES_MAX];
};

struct meeting_rank {
    struct meeting_page *page;
    uint32_t rank, rank_count;
};

static struct meeting_page *page; /* of the run that is under way */

static eo_status gather_by_page(void *user, const void *send, uint32_t bytes, void *recv)
{
    const struct meeting_rank *self = user;
    memcpy(self->page->blobs[self->rank], send, bytes);
    pthread_barrier_wait(&self->page->barrier);
    for (uint32_t r = 0; r < self->rank_count; r++)
        memcpy((char *)recv + r * bytes, self->page->blobs[r], bytes);
    pthread_barrier_wait(&self->page->barrier);
    return EO_OK;
}

static eo_status join_as_process(const struct random_case *c, uint32_t rank, eo_world **out)
{
    static struct meeting_rank self; /* as long as the process */
    self = (struct meeting_rank){page, rank, c->settings.rank_count};
    const struct eo_exchange exchange = {gather_by_page, &self};
    const struct eo_group_join join = {.rank = rank, .exchange = &exchange};
    const struct eo_group_params params = {.rank_count = self.rank_count, .timeout_ms = TIMEOUT_MS, .join = &join};
    struct eo_world *world = calloc(1, sizeof(*world));
    if (!world)
        return EO_ERR_NO_MEMORY;
    *world = (struct eo_world){
        .owner = getpid(), .rank = rank, .rank_count = self.rank_count, .device = "cpu", .ops = eo_comm_find("shared")};
    eo_status status = eo_world_find_share(world, &exchange);
    if (status >= 0)
        status = world->ops->group_create(&world->group, &params);
    if (status < 0)
        free(world);
    else
        *out = world;
    return status;
}

static void leave_process(const struct random_case *c, uint32_t rank, eo_world **world)
{
    (void)c;
    (void)rank;
    eo_world_destroy(world);
}

static void make_meeting_page(uint32_t count)
{
    pthread_barrierattr_t attributes;
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        eo_fatal("out of memory");
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&page->barrier, &attributes, count);
    pthread_barrierattr_destroy(&attributes);
}

/* A rank that ends otherwise than by itself ends the attempt, and so does the attempt its ranks. */
static void run_as_processes(uint32_t count, void *(*main)(void *argument), void *const *arguments)
{
    pid_t ranks[CASE_RANKS_MAX];
    fflush(stdout);
    make_meeting_page(count);
    for (uint32_t r = 0; r < count; r++) {
        ranks[r] = fork();
        if (ranks[r] < 0)
            eo_fatal("no process for rank %u", r);
        if (ranks[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            main(arguments[r]);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < count; r++) {
        int ended = 0;
        if (waitpid(ranks[r], &ended, 0) != ranks[r] || ended != 0)
            eo_fatal("rank %u ended with status 0x%x", r, (unsigned)ended);
    }
    munmap(page, sizeof(*page));
    page = NULL;
}

const struct case_ranks case_processes = {.join = join_as_process, .leave = leave_process, .run = run_as_processes,
                                          .launch = case_launch_at_once, .resumes = true};
