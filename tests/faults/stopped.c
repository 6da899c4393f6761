/* SPDX-License-Identifier: MIT
 *
 * Goal: a job that is stopped whole (SIGSTOP, a suspended batch job) for longer than any deadline, and goes on, has waited for
 * nobody meanwhile, wherever its ranks wait for each other outside of collectives (which are in
 * tests/conformance/collectives/lost.c).
 * Method: rank 0 waits for rank 1. Both are stopped for longer than the deadline; rank 0 goes on, a little later rank 1, which
 * comes then. Ranks are processes, or threads of one; all cases run at one time.
 */
#include <evenodd/cluster.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "streams/collective.h"
#include "streams/shared/files.h"
#include "tests/cluster/free_port.h"
#include "tests/tap/tap.h"

enum { TIMEOUT_MS = 2000, STOPPED_MS = 3500, LONG_STOPPED_MS = TIMEOUT_MS + 5000 + 1500, LATER_MS = 200 };

static int ready[2], go[2]; /* pipes of a case: rank 0 is about to wait; rank 1 may come */
static uint32_t own_rank;
static bool is_late_with_files;
static char port[16];

static void pause_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

/* Rank 0 goes on to wait for rank 1, which comes when it may. */
static void be_waited_for(uint32_t rank)
{
    char byte = 0;
    if (rank == 0 ? write(ready[1], &byte, 1) != 1 : read(go[0], &byte, 1) != 1)
        _exit(2);
}

static void say(void *user, eo_log_level level, const char *text)
{
    printf("# rank %u: %s\n", own_rank, text);
    fflush(stdout);
}

static const eo_log log_all = {.write = say, .level = EO_LOG_WARN};

/* ---- cases: each ends with true, or the rank's wait has failed ---- */

static eo_rendezvous *join(void)
{
    static const unsigned char token[EO_TOKEN_BYTES] = {0xa5};
    static const char *const hosts[] = {"north", "south"};
    eo_rendezvous *rv = NULL;
    const eo_rendezvous_params params = {
        .rank = own_rank, .rank_count = 2, .local_count = 1, .address = "127.0.0.1", .port = port, .token = token, .job = "test",
        .host = hosts[own_rank], .timeout_ms = TIMEOUT_MS, .silence_ms = 20000, .log = &log_all};
    return eo_rendezvous_create(&rv, &params) < 0 ? NULL : rv;
}

static bool joining(void)
{
    be_waited_for(own_rank);
    eo_rendezvous *rv = join();
    const bool good = rv != NULL;
    eo_rendezvous_destroy(&rv);
    return good;
}

static bool exchange(void)
{
    unsigned char mine = 1, all[2];
    eo_rendezvous *rv = join();
    if (!rv)
        return false;
    be_waited_for(own_rank);
    const bool good = eo_rendezvous_all_gather(rv, &mine, 1, all) >= 0;
    eo_rendezvous_destroy(&rv);
    return good;
}

static eo_status exchange_by(void *user, const void *send, uint32_t bytes, void *recv)
{
    return eo_rendezvous_all_gather(user, send, bytes, recv);
}

/* In place of the real one (meson.build): rank 1 comes there late. */
eo_status __real_eo_shared_files_hand_over(struct eo_shared_files *files, char (*names)[EO_DOOR_NAME_BYTES], int mine,
                                           uint64_t bytes, int taken[EO_LOCAL_RANKS_MAX]);
eo_status __wrap_eo_shared_files_hand_over(struct eo_shared_files *files, char (*names)[EO_DOOR_NAME_BYTES], int mine,
                                           uint64_t bytes, int taken[EO_LOCAL_RANKS_MAX]);
eo_status __wrap_eo_shared_files_hand_over(struct eo_shared_files *files, char (*names)[EO_DOOR_NAME_BYTES], int mine,
                                           uint64_t bytes, int taken[EO_LOCAL_RANKS_MAX])
{
    if (is_late_with_files)
        be_waited_for(own_rank);
    return __real_eo_shared_files_hand_over(files, names, mine, bytes, taken);
}

/* Communicators until rank 0 has to wait for the slot of one that rank 1 has not closed yet. */
static bool open_all(const struct eo_comm_ops *ops, struct eo_group *group)
{
    struct eo_comm *comms[EO_SHARED_SLOTS] = {NULL};
    struct eo_device *device = NULL;
    bool good = eo_device_create(&device, "cpu", &(struct eo_device_params){.queue_count = 2, .ring_capacity = 4, .rank_count = 2,
                                                                            .rank = own_rank, .log = &log_all}) >= 0;
    for (uint32_t i = 0; i + 1 < EO_SHARED_SLOTS && good; i++)
        good = ops->open(&comms[i], group, own_rank, device, EO_QUEUE_COMM, false) >= 0;
    if (own_rank == 1)
        be_waited_for(1);
    for (uint32_t i = 0; i < EO_SHARED_SLOTS; i++)
        ops->close(comms[i]);
    if (own_rank == 0)
        be_waited_for(0);
    comms[0] = NULL;
    good = good && ops->open(&comms[0], group, own_rank, device, EO_QUEUE_COMM, false) >= 0;
    ops->close(comms[0]);
    eo_device_destroy(&device);
    return good;
}

static bool share(bool opens)
{
    const struct eo_comm_ops *ops = eo_comm_find("shared");
    eo_rendezvous *rv = join();
    const struct eo_exchange by = {exchange_by, rv};
    struct eo_group *group = NULL;
    is_late_with_files = !opens;
    bool good = rv && ops->group_create(&group, &(const struct eo_group_params){
                          .rank_count = 2, .timeout_ms = TIMEOUT_MS, .log = &log_all,
                          .join = &(const struct eo_group_join){.rank = own_rank, .exchange = &by}}) >= 0;
    if (good && opens)
        good = open_all(ops, group);
    ops->group_release(group);
    eo_rendezvous_destroy(&rv);
    return good;
}

static bool files(void)
{
    return share(false);
}

static bool slots(void)
{
    return share(true);
}

static struct eo_group *of_threads;

/* Rank 1 has an argument. */
static void *split(void *arg)
{
    const uint32_t rank = arg != NULL;
    const struct eo_comm_ops *ops = eo_comm_find("local");
    struct eo_group *inner = NULL;
    struct eo_group_place place;
    be_waited_for(rank);
    const bool good = ops->group_split(&inner, &place, of_threads, rank, 0, rank) >= 0;
    ops->group_release(inner);
    ops->group_release(of_threads);
    return good ? NULL : ready;
}

static bool threads(void)
{
    pthread_t other;
    void *failed = NULL;
    const struct eo_group_params params = {.rank_count = 2, .timeout_ms = TIMEOUT_MS, .log = &log_all};
    if (eo_comm_find("local")->group_create(&of_threads, &params) < 0 || pthread_create(&other, NULL, split, ready) != 0)
        return false;
    const bool good = split(NULL) == NULL;
    pthread_join(other, &failed);
    return good && !failed;
}

static const struct {
    bool (*run)(void);
    uint32_t processes;
    int stopped_ms;
    const char *what;
} cases[] = {
    {joining, 2, STOPPED_MS, "while others still come"},
    {exchange, 2, LONG_STOPPED_MS, "in an exchange of the rendezvous"},
    {files, 2, STOPPED_MS, "where files are handed over"},
    {slots, 2, STOPPED_MS, "where a communicator is opened before others have closed theirs"},
    {threads, 1, STOPPED_MS, "where a group of threads is split"},
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* ---- their stops ---- */

static pid_t start_rank(int number, uint32_t rank)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(60);
    own_rank = rank;
    _exit(cases[number].run() ? 0 : 1);
}

/* Of the process of a case: whether all of its ranks ended well. */
static bool run_case(int number)
{
    pid_t ranks[2] = {0};
    const uint32_t count = cases[number].processes;
    bool good = true;
    char byte = 0;
    int status;
    choose_free_port(port);
    if (pipe(ready) != 0 || pipe(go) != 0)
        return false;
    for (uint32_t r = 0; r < count; r++)
        ranks[r] = start_rank(number, r);
    close(ready[1]);
    good = read(ready[0], &byte, 1) == 1;
    pause_ms(LATER_MS);
    for (uint32_t r = 0; r < count; r++)
        kill(ranks[r], SIGSTOP);
    pause_ms(cases[number].stopped_ms);
    for (uint32_t r = 0; r < count; r++) {
        kill(ranks[r], SIGCONT);
        pause_ms(LATER_MS);
    }
    good = write(go[1], &byte, 1) == 1 && good;
    for (uint32_t r = 0; r < count; r++)
        good = waitpid(ranks[r], &status, 0) == ranks[r] && status == 0 && good;
    return good;
}

int main(void)
{
    pid_t processes[CASES];
    int status;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < CASES; i++) {
        processes[i] = fork();
        if (processes[i] == 0)
            _exit(run_case(i) ? 0 : 1);
    }
    for (int i = 0; i < CASES; i++)
        tap(waitpid(processes[i], &status, 0) == processes[i] && status == 0, "ranks that were stopped and go on: %s", cases[i].what);
    return tap_end();
}
