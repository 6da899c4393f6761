/* SPDX-License-Identifier: MIT
 *
 * Goal: whatever a rank does wrong, all ranks end with an error that names it; nobody hangs.
 * Method: ranks that disagree in one respect, come late, never come, give up or leave. The deadline of the tests that
 * are not about it is a minute, and they must be through long before.
 */
#include "tests/conformance/collectives/collectives.h"

#include <string.h>

#include "tests/conformance/ranks.h"

enum { BYTES = 400, SECONDS_MAX = 20, TIMEOUT_MS = 400 };

struct outcome {
    char logged[2048];
    uint32_t log_count;
    pthread_mutex_t lock;
    uint64_t waited_ms;
    int what; /* of the disagreement */
};

static void take_log(void *user, eo_log_level level, const char *text)
{
    struct outcome *outcome = user;
    pthread_mutex_lock(&outcome->lock);
    outcome->log_count++;
    if (strlen(outcome->logged) + strlen(text) < sizeof(outcome->logged))
        strcat(outcome->logged, text);
    pthread_mutex_unlock(&outcome->lock);
}

/* All ranks see the same text, and it has these parts. */
static void expect_text(struct test_rank *self, const char *const *parts, int part_count)
{
    char text[1024];
    self->ops->group_failure(self->group, text, sizeof(text));
    for (int i = 0; i < part_count; i++)
        TEST_EXPECT(self, strstr(text, parts[i]), "'%s' is not in '%s'", parts[i], text);
}

#define EXPECT_TEXT(self, ...)                                                                                        \
    do {                                                                                                              \
        const char *const parts[] = {__VA_ARGS__};                                                                    \
        expect_text(self, parts, (int)(sizeof(parts) / sizeof(parts[0])));                                            \
    } while (0)

enum { OTHER_KIND, OTHER_COUNT, OTHER_DTYPE, OTHER_LABEL, DISAGREEMENTS };

/* The last rank's third collective differs from the others'. */
static void disagreement_body(struct test_rank *self)
{
    struct outcome *outcome = self->shared;
    const bool is_odd = self->rank == self->rank_count - 1;
    float send[BYTES * TEST_RANKS_MAX] = {0}, recv[BYTES * TEST_RANKS_MAX];
    for (int i = 0; i < 2; i++)
        TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, BYTES, "good", NULL) == EO_OK);
    TEST_EXPECT(self, test_await(self, EO_QUEUE_COMM) == EO_OK, "before the disagreement");
    test_barrier(self); /* the failure may end whatever is still in progress */
    if (is_odd && outcome->what == OTHER_KIND)
        (void)self->ops->all_gather(self->gather, recv, send, BYTES, "block.2", NULL);
    else
        (void)self->ops->reduce_scatter(self->gather, recv, send, BYTES - (is_odd && outcome->what == OTHER_COUNT),
                                        is_odd && outcome->what == OTHER_DTYPE ? EO_DTYPE_BF16 : EO_DTYPE_FP32,
                                        is_odd && outcome->what == OTHER_LABEL ? "block.3" : "block.2", NULL);
    TEST_EXPECT(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_COMM, "disagreement %d", outcome->what);
    /* And it goes on: what is enqueued later fails too, on the other communicator as well, and at once. */
    (void)self->ops->all_gather(self->gather, recv, send, BYTES, "later", NULL);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_COMM);
    (void)self->ops->all_gather(self->reduce, recv, send, BYTES, "later", NULL);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_ERR_COMM);
    TEST_HOLDS(self, self->ops->quiesce(self->reduce) == EO_ERR_COMM);
    const char odd[] = {'r', 'a', 'n', 'k', ' ', (char)('0' + self->rank_count - 1), ' ', '\0'};
    static const char *const differs[DISAGREEMENTS] = {"all-gather 'block.2' of 400 bytes", "of 399 fp32 elements",
                                                       "of 400 bf16 elements", "'block.3'"};
    EXPECT_TEXT(self, odd, "rank ", "as collective 3", "reduce-scatter 'block.2' of 400 fp32 elements",
                differs[outcome->what]);
}

/* The last rank comes when the others have given up. */
static void late_body(struct test_rank *self)
{
    const bool is_late = self->rank == self->rank_count - 1;
    unsigned char send[BYTES] = {0}, recv[BYTES * TEST_RANKS_MAX];
    test_barrier(self); /* all but one come together, as far as the machine lets them */
    if (is_late)
        test_pause_ms(2 * TIMEOUT_MS);
    const uint64_t begin_ns = eo_now_ns();
    (void)self->ops->all_gather(self->gather, recv, send, BYTES, "block.7", NULL);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_TIMEOUT);
    const uint64_t ms = (eo_now_ns() - begin_ns) / 1000000;
    struct outcome *outcome = self->shared;
    pthread_mutex_lock(&outcome->lock);
    if (!is_late && ms > outcome->waited_ms) /* the clock of the rank that came first counts for all */
        outcome->waited_ms = ms;
    pthread_mutex_unlock(&outcome->lock);
    const char odd[] = {'r', 'a', 'n', 'k', ' ', (char)('0' + self->rank_count - 1), ' ', '\0'};
    EXPECT_TEXT(self, odd, "has not entered", "all-gather 'block.7' of 400 bytes", "collective 1", "400 ms");
}

/* A barrier that a rank never enters ends at the deadline too. */
static void late_quiesce_body(struct test_rank *self)
{
    if (self->rank == self->rank_count - 1)
        return;
    TEST_HOLDS(self, self->ops->quiesce(self->gather) < 0);
}

/* The last rank gives up while the others sleep on both communicators, and enters nothing that would wake them. */
static void abort_body(struct test_rank *self)
{
    unsigned char send[BYTES] = {0}, recv[BYTES * TEST_RANKS_MAX];
    const bool gives_up = self->rank == self->rank_count - 1;
    if (gives_up) {
        test_pause_ms(50);
        self->ops->group_abort(self->group, self->rank, "the loss is not finite");
    } else {
        (void)self->ops->all_gather(self->gather, recv, send, BYTES, "gather", NULL);
        (void)self->ops->all_gather(self->reduce, recv, send, BYTES, "reduce", NULL);
        const uint64_t begin_ns = eo_now_ns();
        TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_COMM);
        TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_ERR_COMM);
        TEST_EXPECT(self, eo_now_ns() - begin_ns < SECONDS_MAX * UINT64_C(1000000000), "woken too late");
    }
    test_barrier(self);
    (void)self->ops->all_gather(self->gather, recv, send, BYTES, "after", NULL);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_COMM);
    TEST_HOLDS(self, self->ops->quiesce(self->reduce) == EO_ERR_COMM);
    EXPECT_TEXT(self, "gave up", "the loss is not finite");
}

/* The last rank leaves while the others go on. */
static void closed_body(struct test_rank *self)
{
    unsigned char send[BYTES] = {0}, recv[BYTES * TEST_RANKS_MAX];
    TEST_HOLDS(self, self->ops->all_gather(self->gather, recv, send, BYTES, "together", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_OK);
    test_barrier(self);
    if (self->rank == self->rank_count - 1)
        return; /* which closes */
    const uint64_t begin_ns = eo_now_ns();
    (void)self->ops->all_gather(self->gather, recv, send, BYTES, "alone", NULL);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_COMM) == EO_ERR_COMM);
    TEST_EXPECT(self, eo_now_ns() - begin_ns < SECONDS_MAX * UINT64_C(1000000000), "woken too late");
    EXPECT_TEXT(self, "has closed", "all-gather 'alone'");
}

/* Bad arguments of open are refused. */
static void refused_body(struct test_rank *self)
{
    struct eo_comm *comm = (struct eo_comm *)self;
    TEST_HOLDS(self, self->ops->open(&comm, self->group, self->rank_count, self->device, 1, false) == EO_ERR_INVALID && !comm);
    TEST_HOLDS(self, self->ops->open(&comm, self->group, self->rank, self->device, 0, false) == EO_ERR_INVALID && !comm);
    TEST_HOLDS(self, self->ops->open(&comm, self->group, self->rank, self->device, 3, false) == EO_ERR_INVALID && !comm);
    self->ops->close(NULL);
}

void failure_cases(uint32_t rank_count)
{
    struct outcome *outcome = test_shared(sizeof(*outcome));
    test_mutex_init(&outcome->lock);
    const eo_log log = {take_log, outcome, EO_LOG_ERROR};
    struct test_settings settings = {.rank_count = rank_count, .log = &log, .shared = outcome};
    test_run_ranks(&settings, refused_body);
    test_report("a communicator on a rank or queue that does not exist is refused", rank_count);
    if (rank_count > 1) {
        outcome->log_count = 0;
        outcome->logged[0] = '\0';
        for (outcome->what = 0; outcome->what < DISAGREEMENTS; outcome->what++)
            test_run_ranks(&settings, disagreement_body);
        if (test_kind() != TEST_STARTED) { /* there each process has a log of its own */
            TEST_EXPECT(NULL, outcome->log_count == DISAGREEMENTS, "logged %u times", outcome->log_count);
            TEST_EXPECT(NULL, strstr(outcome->logged, "ranks disagree"), "'%s'", outcome->logged);
        }
        test_report("ranks that disagree all fail, with both operations named, logged once", rank_count);
        test_run_ranks(&settings, closed_body);
        test_report("a rank that has closed is not waited for", rank_count);
        settings.timeout_ms = TIMEOUT_MS;
        outcome->waited_ms = 0;
        test_run_ranks(&settings, late_body);
        TEST_EXPECT(NULL, outcome->waited_ms >= TIMEOUT_MS - 1 || test_kind() == TEST_STARTED, "gave up after %d ms",
                    (int)outcome->waited_ms);
        test_report("a rank that is late is named when the deadline has passed", rank_count);
        test_run_ranks(&settings, late_quiesce_body);
        test_report("quiesce ends when a rank does not come", rank_count);
        settings.timeout_ms = 0;
    }
    test_run_ranks(&settings, abort_body);
    test_report("an abort wakes all ranks on all communicators", rank_count);
}
