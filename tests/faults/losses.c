/* SPDX-License-Identifier: MIT
 *
 * Goal: whenever ranks are lost or stand still (while the others still come, before an exchange, before they leave; the root
 * of the tree, a leader of a host, one below, two at the same time), every rank that is left is told the right name and
 * ends, and so does one that stands still.
 * Method: ranks are processes with a rendezvous each, as on several hosts over real sockets. At its moment a victim kills
 * itself, or waits for ever. The others write what they are told into one pipe, which ends when all have.
 */
#include <evenodd/cluster.h>

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cluster/free_port.h"
#include "tests/tap/tap.h"

enum { RANKS_MAX = 12, STATUS_TOLD = 3, STATUS_STRANGE = 4, PATIENCE_S = 120, TICKS = 2, TRIES = 5, LATE_US = 100000 };
enum moment { JOINING, EXCHANGE, LEAVING };
enum way { KILLED, HANGS, KILLED_SLOW /* the others see late what has come: news, and the end of who told them */ };

struct loss {
    enum moment moment;
    enum way way;
    uint32_t rank_count, of_host, victims; /* by bit */
    const char *what;
};

static const struct loss losses[] = {
    {JOINING, KILLED, 5, 2, 1 << 1, "a rank of the root's host"},
    {JOINING, KILLED, 5, 2, 1 << 2, "the leader of another host"},
    {JOINING, KILLED, 5, 2, 1 << 0, "rank 0"},
    {EXCHANGE, KILLED, 5, 2, 1 << 0, "rank 0"},
    {EXCHANGE, KILLED, 5, 2, 1 << 2, "the leader of another host"},
    {EXCHANGE, KILLED, 5, 2, 1 << 3, "a rank of another host"},
    {EXCHANGE, KILLED, 12, 1, 1 << 1, "a host with others below it in the tree"},
    {EXCHANGE, KILLED, 12, 1, 1 << 11, "the last host of the tree"},
    {EXCHANGE, KILLED, 5, 2, 1 << 1 | 1 << 4, "one of two ranks at one time"},
    {EXCHANGE, KILLED, 4, 4, 1 << 0 | 1 << 2, "rank 0, and another at one time,"},
    {EXCHANGE, HANGS, 4, 4, 1 << 2, "a rank"},
    {EXCHANGE, HANGS, 5, 2, 1 << 0, "rank 0"},
    {EXCHANGE, HANGS, 5, 2, 1 << 3, "a rank of another host"},
    {LEAVING, KILLED, 5, 2, 1 << 0, "rank 0"},
    {LEAVING, KILLED, 5, 2, 1 << 3, "a rank of another host"},
    {LEAVING, HANGS, 3, 3, 1 << 1, "a rank"},
    {EXCHANGE, KILLED_SLOW, 5, 2, 1 << 3, "a rank of another host"},
    {EXCHANGE, KILLED_SLOW, 4, 4, 1 << 2, "a rank"},
    {LEAVING, KILLED_SLOW, 5, 2, 1 << 3, "a rank of another host"},
};

enum { LOSSES = sizeof(losses) / sizeof(losses[0]), AT_ONCE = 6 };

static const char *const moments[] = {"while others still come", "before an exchange", "before it leaves"};
static const char *const ways[] = {"is killed", "stands still", "is killed and others see it late,"};
static int told_fd;
static char port[16];

/* A rank's process. */
static struct {
    const struct loss *loss;
    uint32_t rank, ticks;
    char log_text[4000];
} own;

static bool is_victim(const struct loss *loss, uint32_t rank)
{
    return loss->victims >> rank & 1;
}

static void say(const char *text)
{
    dprintf(told_fd, "rank %u is told: %s\n", own.rank, text);
}

static void keep_log(void *user, eo_log_level level, const char *text)
{
    snprintf(own.log_text, sizeof(own.log_text), "%s", text);
}

static void on_failed(void *user, const eo_rank_failure *failure)
{
    say(failure->text);
    _exit(STATUS_TOLD);
}

/* By the rendezvous' own thread, at each beat: also while others still come. */
static void on_activity(void *user, char *text, size_t bytes)
{
    snprintf(text, bytes, "beat %u", ++own.ticks);
    if (own.loss->moment == JOINING && is_victim(own.loss, own.rank) && own.ticks == TICKS)
        raise(SIGKILL);
}

/* In place of poll (meson.build): between what it says and what is written then, more comes. */
int __real_poll(struct pollfd *polls, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout_ms)
{
    const int ready = __real_poll(polls, count, timeout_ms);
    if (own.loss && own.loss->way == KILLED_SLOW)
        usleep(LATE_US);
    return ready;
}

static void be_lost(enum way way)
{
    if (way != HANGS)
        raise(SIGKILL);
    for (;;)
        pause();
}

static void rank_main(void)
{
    static const unsigned char token[EO_TOKEN_BYTES] = {4, 5, 6};
    static const char *const hosts[] = {"north", "south", "east"};
    const eo_log log = {.write = keep_log, .level = EO_LOG_WARN};
    const struct loss *loss = own.loss;
    const uint32_t first = own.rank / loss->of_host * loss->of_host, left = loss->rank_count - first;
    char host[40];
    snprintf(host, sizeof(host), "%s-%u", hosts[first % 3], first);
    const eo_rendezvous_params params = {
        .rank = own.rank, .rank_count = loss->rank_count, .local_rank = own.rank - first,
        .local_count = left < loss->of_host ? left : loss->of_host, .address = "127.0.0.1", .port = port, .token = token,
        .job = "losses", .host = host, .timeout_ms = loss->way == HANGS ? 5000 : 30000,
        .silence_ms = 30000, .failed = on_failed, .activity = on_activity, .log = &log,
    };
    eo_rendezvous *rendezvous;
    if (eo_rendezvous_create(&rendezvous, &params) < 0) {
        say(own.log_text);
        _exit(STATUS_TOLD);
    }
    unsigned char mine[100] = {0}, all[RANKS_MAX * sizeof(mine)];
    for (int round = 0; round < 3; round++) {
        if (round == 2 && loss->moment == EXCHANGE && is_victim(loss, own.rank))
            be_lost(loss->way);
        if (eo_rendezvous_all_gather(rendezvous, mine, sizeof(mine), all) < 0)
            pause(); /* on_failed ends it */
    }
    if (loss->moment == LEAVING && is_victim(loss, own.rank))
        be_lost(loss->way);
    eo_rendezvous_destroy(&rendezvous);
    _exit(STATUS_STRANGE);
}

/* ---- the test's process ---- */

/* Who is to come last does not come at all where a rank is lost before all have. */
static uint32_t started(const struct loss *loss)
{
    return loss->moment == JOINING ? loss->rank_count - 1 : loss->rank_count;
}

/* "rank 2 (host east-2, process 4711)", of any victim. */
static bool names_a_victim(const struct loss *loss, const char *line, const pid_t *pids)
{
    for (uint32_t v = 0; v < loss->rank_count; v++) {
        char name[40], process[40];
        snprintf(name, sizeof(name), "is told: rank %u (host ", v);
        snprintf(process, sizeof(process), ", process %d)", (int)pids[v]);
        const char *found = is_victim(loss, v) ? strstr(line, name) : NULL;
        const char *end = found ? strstr(found, process) : NULL;
        if (end && end < strchr(found, ')'))
            return true;
    }
    return false;
}

static char text[1 << 16];

static void run_ranks(const struct loss *loss, pid_t *pids)
{
    int ends[2];
    size_t bytes = 0;
    choose_free_port(port);
    if (pipe(ends) != 0)
        exit(1);
    told_fd = ends[1];
    fflush(NULL);
    for (uint32_t r = 0; r < started(loss); r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ends[0]);
            own.loss = loss;
            own.rank = r;
            rank_main();
        }
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + bytes, sizeof(text) - 1 - bytes)) > 0;)
        bytes += (size_t)got;
    text[bytes] = '\0';
    close(ends[0]);
}

static bool look_at(const struct loss *loss, const pid_t *pids)
{
    bool good = true;
    for (uint32_t r = 0; r < started(loss); r++) {
        int status;
        char begin[40];
        if (waitpid(pids[r], &status, 0) != pids[r])
            return false;
        if (is_victim(loss, r) && loss->way != HANGS && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            continue; /* else it was told of another victim first */
        snprintf(begin, sizeof(begin), "rank %u is told: ", r);
        char *line = strstr(text, begin), *end = line ? strchr(line, '\n') : NULL;
        if (end)
            *end = '\0';
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == STATUS_TOLD && line && names_a_victim(loss, line, pids);
        if (end)
            *end = '\n';
    }
    return good;
}

/* In a process of its own; what was told goes into `out` where it is not right. */
static bool run_loss(const struct loss *loss, FILE *out)
{
    bool good = false;
    /* While others still come, a victim may be gone before it was linked to anyone: then it is only missing. */
    for (int try = 0; try < (loss->moment == JOINING ? TRIES : 1) && !good; try++) {
        pid_t pids[RANKS_MAX] = {0};
        alarm(PATIENCE_S); /* ends this process, and with it all */
        run_ranks(loss, pids);
        good = look_at(loss, pids);
    }
    for (const char *line = text; *line && !good;) {
        const int length = (int)strcspn(line, "\n");
        fprintf(out, "# %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    fflush(out);
    return good;
}

struct running {
    pid_t pid;
    FILE *out;
};

static void begin(const struct loss *loss, struct running *running)
{
    running->out = tmpfile();
    fflush(NULL);
    running->pid = running->out ? fork() : -1;
    if (running->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(!run_loss(loss, running->out));
    }
}

static void end(const struct loss *loss, const struct running *running)
{
    char line[1200];
    int status = 1;
    if (running->pid > 0)
        waitpid(running->pid, &status, 0);
    tap(status == 0, "%u ranks, %u a host: %s %s %s: the name is told to all others, and all end", loss->rank_count,
        loss->of_host, loss->what, ways[loss->way], moments[loss->moment]);
    if (!running->out)
        return;
    rewind(running->out);
    while (fgets(line, sizeof(line), running->out))
        printf("%s", line);
    fclose(running->out);
}

int main(void)
{
    static struct running running[LOSSES];
    for (size_t i = 0; i < LOSSES + AT_ONCE; i++) {
        if (i >= AT_ONCE)
            end(&losses[i - AT_ONCE], &running[i - AT_ONCE]);
        if (i < LOSSES)
            begin(&losses[i], &running[i]);
    }
    return tap_end();
}
