/* SPDX-License-Identifier: MIT
 *
 * Goal: a rank whose process ends is named on all others long before the deadline, and leaves nothing behind; one that
 * is stopped is named at the deadline. Ranks that are all stopped together and go on miss nobody.
 * Method: the last rank is killed, stopped or ends, before, inside and after a collective that the others wait for. The
 * deadline is a minute, or, of the stopped one, short. All are stopped for longer than that while they wait for the last,
 * and rank 0 goes on before the others.
 */
#include "tests/conformance/collectives/collectives.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/ranks.h"
#include "streams/local/local.h"

enum { COUNT = 100, SECONDS_MAX = 20, TIMEOUT_MS = 1000 };

enum way { KILLED_BEFORE, KILLED_INSIDE, KILLED_IN_LOCKED_GROUP, STOPPED, WAYS };

struct loss {
    enum way way;
    pid_t lost; /* the process of the last rank */
};

static void lose(struct test_rank *self, struct loss *loss)
{
    static float send[COUNT * TEST_RANKS_MAX], recv[COUNT];
    loss->lost = getpid();
    if (loss->way == KILLED_INSIDE) { /* it has entered, and rank 0 comes later */
        (void)self->ops->reduce_scatter(self->gather, recv, send, COUNT, EO_DTYPE_FP32, "block.5", NULL);
        test_pause_ms(50);
    }
    if (loss->way == KILLED_IN_LOCKED_GROUP) /* a lock that dies with its owner */
        eo_local_lock(self->group);
    kill(getpid(), loss->way == STOPPED ? SIGSTOP : SIGKILL);
}

static void lost_body(struct test_rank *self)
{
    struct loss *loss = self->shared;
    const uint32_t last = self->rank_count - 1;
    float *send = test_take(self, COUNT * 4 * self->rank_count), *recv = test_take(self, COUNT * 4);
    memset(send, 0, COUNT * 4 * self->rank_count);
    TEST_HOLDS(self, self->ops->all_gather(self->gather, send, recv, COUNT * 4, "together", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    test_barrier(self);
    if (self->rank == last) {
        lose(self, loss);
        return;
    }
    if (self->rank == 0 && loss->way == KILLED_INSIDE)
        test_pause_ms(200);
    const uint64_t begin_ns = eo_now_ns();
    (void)self->ops->reduce_scatter(self->gather, recv, send, COUNT, EO_DTYPE_FP32, "block.5", NULL);
    const eo_status status = test_await(self, EO_QUEUE_COMM), wanted = loss->way == STOPPED ? EO_ERR_TIMEOUT : EO_ERR_COMM;
    TEST_EXPECT(self, status == wanted, "ended with: %s", eo_status_text(status));
    TEST_EXPECT(self, eo_now_ns() - begin_ns < SECONDS_MAX * UINT64_C(1000000000), "told too late");
    char text[1024], name[32];
    self->ops->group_failure(self->group, text, sizeof(text));
    snprintf(name, sizeof(name), "rank %u %s", last, loss->way == STOPPED ? "has not" : "is gone");
    TEST_EXPECT(self, strstr(text, name) && strstr(text, "reduce-scatter 'block.5'"), "'%s'", text);
    TEST_HOLDS(self, self->ops->quiesce(self->reduce) == wanted);
    if (loss->way == STOPPED && self->rank == 0) { /* else nobody ends it */
        test_pause_ms(50);
        kill(loss->lost, SIGKILL);
    }
    test_give(self, send);
    test_give(self, recv);
}

/* By a process beside them. */
static void stop_all(const pid_t *ranks, uint32_t rank_count)
{
    for (uint32_t r = 0; r < rank_count; r++)
        kill(ranks[r], SIGSTOP);
    test_pause_ms(TIMEOUT_MS + 300);
    for (uint32_t r = 0; r < rank_count; r++) {
        kill(ranks[r], SIGCONT);
        test_pause_ms(r == 0 ? 200 : 0);
    }
}

static void suspended_body(struct test_rank *self)
{
    pid_t *ranks = self->shared;
    float *send = test_take(self, COUNT * 4 * self->rank_count), *recv = test_take(self, COUNT * 4);
    memset(send, 0, COUNT * 4 * self->rank_count);
    ranks[self->rank] = getpid();
    test_barrier(self);
    if (self->rank == self->rank_count - 1) {
        test_pause_ms(20);
        const pid_t beside = fork();
        if (beside == 0) {
            stop_all(ranks, self->rank_count);
            _exit(0);
        }
        TEST_HOLDS(self, beside > 0 && waitpid(beside, NULL, 0) == beside);
    }
    (void)self->ops->reduce_scatter(self->gather, recv, send, COUNT, EO_DTYPE_FP32, "block.5", NULL);
    const eo_status status = test_await(self, EO_QUEUE_COMM);
    TEST_EXPECT(self, status == EO_OK, "ended with: %s", eo_status_text(status));
    test_give(self, send);
    test_give(self, recv);
}

/* Folders there are those of other tests. */
static int named_files(void)
{
    int found = 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        found += entry->d_type != DT_DIR && strstr(entry->d_name, "evenodd") != NULL;
    if (folder)
        closedir(folder);
    return found;
}

void lost_cases(uint32_t rank_count)
{
    static const char *const names[WAYS] = {
        "a rank that is killed is named on all others", "a rank that is killed inside a collective is named",
        "a rank that is killed with the group's lock is named", "a rank that is stopped is named at the deadline"};
    struct loss *loss = test_shared(sizeof(*loss));
    struct test_settings settings = {.rank_count = rank_count, .shared = loss, .may_die = true, .memory_bytes = 1 << 20};
    for (int way = 0; way < WAYS && rank_count > 1; way++) {
        loss->way = (enum way)way;
        settings.timeout_ms = way == STOPPED ? TIMEOUT_MS : 0;
        test_run_ranks(&settings, lost_body);
        TEST_EXPECT(NULL, named_files() == 0, "%d files in /dev/shm", named_files());
        test_report(names[way], rank_count);
    }
    if (rank_count != 3)
        return;
    settings = (struct test_settings){.rank_count = rank_count, .memory_bytes = 1 << 20, .timeout_ms = TIMEOUT_MS,
                                      .shared = test_shared(TEST_RANKS_MAX * sizeof(pid_t))};
    test_run_ranks(&settings, suspended_body);
    test_report("ranks that are stopped together and go on, one before the others, take nobody for lost", rank_count);
}
