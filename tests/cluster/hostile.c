/* SPDX-License-Identifier: MIT
 *
 * Goal: who has no token costs little and not for long, whatever it does: says nothing, a byte at a time, nonsense, or comes
 * three hundred times. It makes rank 0 say little, and a log that takes nothing keeps nobody waiting. Who has the token and says
 * nothing more is lost.
 * Method: plain sockets against a rendezvous that waits for a rank; a rank whose process is stopped.
 */
#include <evenodd/cluster.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cluster/sockets.h"
#include "tests/cluster/free_port.h"
#include "tests/tap/tap.h"

/* What cluster/rendezvous_thread.c allows: so many that say nothing, for so long. */
enum { STRANGERS_MAX = 256, HANDSHAKE_MS = 3000 };
enum { STRANGERS = 300, PATIENCE_MS = 20000, TRIES = 5 };

static char port[16];

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void keep_text(void *user, eo_log_level level, const char *text)
{
    snprintf(user, 1000, "%s", text);
}

/* ---- strangers ---- */

static const unsigned char token[EO_TOKEN_BYTES] = {7, 8, 9};

static void *rank_main(void *arg)
{
    const uint32_t rank = *(const uint32_t *)arg;
    eo_rendezvous *rendezvous;
    const eo_rendezvous_params params = {
        .rank = rank, .rank_count = 2, .local_count = 1, .address = "127.0.0.1", .port = port, .token = token,
        .host = rank ? "south" : "north", .timeout_ms = 120000,
    };
    const bool good = eo_rendezvous_create(&rendezvous, &params) >= 0;
    if (good)
        eo_rendezvous_destroy(&rendezvous);
    return good ? arg : NULL;
}

static bool is_closed(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) == 1 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* One after the other, a byte each: as slow as it can be and still say something. */
static bool slow_one_is_dropped(void)
{
    const int fd = dial_port(port);
    const double end_ms = now_ms() + PATIENCE_MS;
    while (!is_closed(fd) && now_ms() < end_ms) {
        if (send(fd, "e", 1, MSG_NOSIGNAL) < 0)
            break;
        usleep(500000); /* its whole handshake would take longer than patience */
    }
    close(fd);
    return now_ms() < end_ms;
}

static uint32_t count_open(const int *fds, uint32_t from, uint32_t end)
{
    uint32_t open = 0;
    for (uint32_t i = from; i < end; i++)
        open += !is_closed(fds[i]);
    return open;
}

/* The oldest go as new ones come, long before their time. Where this took so long that all may go, it is done again. */
static bool so_many_are_let_in(void)
{
    bool good = false, in_time = false;
    for (int try = 0; try < TRIES && !good && !in_time; try++) {
        int fds[STRANGERS];
        const double end_ms = now_ms() + HANDSHAKE_MS - 1000;
        for (int i = 0; i < STRANGERS; i++)
            fds[i] = dial_port(port);
        while (count_open(fds, 0, STRANGERS) > STRANGERS_MAX && now_ms() < end_ms)
            usleep(1000);
        good = count_open(fds, 0, STRANGERS - STRANGERS_MAX) == 0 &&
               count_open(fds, STRANGERS - STRANGERS_MAX, STRANGERS) == STRANGERS_MAX;
        in_time = now_ms() < end_ms + 500;
        for (int i = 0; i < STRANGERS; i++)
            close(fds[i]);
    }
    return good;
}

static void strangers(void)
{
    static uint32_t ranks[2] = {0, 1};
    pthread_t threads[2];
    void *first = NULL, *second = NULL;
    choose_free_port(port);
    pthread_create(&threads[0], NULL, rank_main, &ranks[0]);
    tap(so_many_are_let_in(), "of %d that say nothing, %d are let in, and the oldest go", STRANGERS, STRANGERS_MAX);
    tap(slow_one_is_dropped(), "one that sends a byte at a time is dropped before it is done");
    pthread_create(&threads[1], NULL, rank_main, &ranks[1]);
    pthread_join(threads[0], &first);
    pthread_join(threads[1], &second);
    tap(first && second, "the ranks come together after all of them");
}

/* ---- what strangers make rank 0 say ---- */

struct heard {
    sem_t may_return;
    _Atomic uint32_t lines;
    bool blocks;
};

static void hear(void *user, eo_log_level level, const char *text)
{
    struct heard *heard = user;
    heard->lines++;
    if (heard->blocks)
        sem_wait(&heard->may_return);
}

static void *destroy_main(void *rendezvous)
{
    eo_rendezvous_destroy(rendezvous);
    return NULL;
}

struct quiet_rank {
    struct heard *heard; /* rank 0's; NULL: rank 1 */
    eo_rendezvous *rendezvous;
    eo_status status;
};

static void *quiet_main(void *arg)
{
    struct quiet_rank *r = arg;
    const eo_log log = {.write = hear, .user = r->heard, .level = EO_LOG_WARN};
    const eo_rendezvous_params params = {
        .rank = r->heard == NULL, .rank_count = 2, .address = "127.0.0.1", .port = port, .token = token,
        .host = r->heard ? "north" : "south", .timeout_ms = 20000, .silence_ms = 500, .log = r->heard ? &log : NULL,
    };
    r->status = eo_rendezvous_create(&r->rendezvous, &params);
    return NULL;
}

static void shout(int times)
{
    for (int i = 0; i < times; i++) {
        char byte;
        const int fd = dial_port(port);
        (void)!send(fd, "GET / HTTP/1.0", 14, MSG_NOSIGNAL);
        while (recv(fd, &byte, 1, 0) > 0) { /* until it is sent away */
        }
        close(fd);
    }
}

/* Whoever reads rank 0's log stops to do so: signs of life go on, and the job with them. */
static void shouting(bool blocks)
{
    static struct heard heard;
    struct quiet_rank ranks[2] = {{.heard = &heard}, {.heard = NULL}};
    pthread_t threads[2];
    eo_rank_failure failure = {0};
    heard = (struct heard){.blocks = blocks};
    sem_init(&heard.may_return, 0, 0);
    choose_free_port(port);
    pthread_create(&threads[0], NULL, quiet_main, &ranks[0]);
    shout(STRANGERS);
    pthread_create(&threads[1], NULL, quiet_main, &ranks[1]);
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    usleep(blocks ? 1500000 : 0); /* three times what a silent rank has */
    const bool lives = ranks[0].status >= 0 && ranks[1].status >= 0 &&
                       !eo_rendezvous_failure(ranks[0].rendezvous, &failure) &&
                       !eo_rendezvous_failure(ranks[1].rendezvous, &failure);
    if (blocks) {
        tap(lives && heard.lines == 1, "a log that does not come back keeps no sign of life: %s", failure.text);
    } else {
        const struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                            .sin_port = htons((uint16_t)atoi(port))};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        const bool is_refused = connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 && errno == ECONNREFUSED;
        tap(lives && is_refused, "when all have come rank 0 does not listen any more");
        tap(heard.lines >= 1 && heard.lines <= 15, "%d strangers that say nonsense make %u lines of log", STRANGERS, heard.lines);
        close(fd);
    }
    for (int i = 0; i < 100; i++)
        sem_post(&heard.may_return);
    pthread_create(&threads[1], NULL, destroy_main, &ranks[1].rendezvous);
    eo_rendezvous_destroy(&ranks[0].rendezvous);
    pthread_join(threads[1], NULL);
    sem_destroy(&heard.may_return);
}

/* ---- a rank that stops ---- */

/* Its host goes on to take what is sent to it. */
static void stopped_rank(void)
{
    struct heard heard = {0};
    struct quiet_rank ranks[2] = {{.heard = &heard}, {.heard = NULL}};
    eo_rank_failure failure = {0};
    choose_free_port(port);
    const pid_t child = fork();
    if (child == 0) {
        quiet_main(&ranks[1]);
        for (;;)
            pause();
    }
    quiet_main(&ranks[0]);
    kill(child, SIGSTOP);
    const double end_ms = now_ms() + PATIENCE_MS;
    while (ranks[0].status >= 0 && !eo_rendezvous_failure(ranks[0].rendezvous, &failure) && now_ms() < end_ms)
        usleep(10000);
    tap(ranks[0].status >= 0 && failure.status == EO_ERR_TIMEOUT && failure.rank == 1 &&
            strstr(failure.text, "has not answered for 0.5 s"),
        "a rank whose process is stopped is told by its silence: %s", failure.text);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    eo_rendezvous_destroy(&ranks[0].rendezvous);
}

/* ---- another user ---- */

/* Without a token the name of the socket follows from what anybody can see. */
static void squatter(void)
{
    enum { OTHER_USER = 65534 };
    static const char name[] = "a process of another user that listens under the job's name is not talked to";
    struct eo_rendezvous *rv = NULL;
    char text[1000] = "";
    int ready[2];
    if (geteuid() != 0) {
        tap_skip(name, "only root has another user at hand");
        tap_skip("and the first rank says who has the name", "only root has another user at hand");
        return;
    }
    struct eo_secret none;
    if (!eo_secret_init(&none, NULL, "4711"))
        exit(1);
    struct eo_address address = eo_address_within_host(&none, "here", "127.0.0.1", "29500");
    if (pipe(ready) != 0)
        exit(1);
    const pid_t other = fork();
    if (other == 0) {
        char byte;
        close(ready[0]);
        if (setuid(OTHER_USER) != 0)
            _exit(1);
        const int listener = eo_socket_listen(&address);
        (void)!write(ready[1], &listener, 1);
        if (listener < 0)
            _exit(1);
        for (;;) { /* hears whoever comes, until it is killed */
            const int fd = accept(listener, NULL, NULL);
            (void)!recv(fd, &byte, 1, 0);
            usleep(1000);
        }
    }
    char byte;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) { /* a user namespace of root alone */
        tap_skip(name, "root is the only user here");
        tap_skip("and the first rank says who has the name", "root is the only user here");
        waitpid(other, NULL, 0);
        close(ready[0]);
        return;
    }
    const eo_log log = {.write = keep_text, .user = text, .level = EO_LOG_WARN};
    eo_rendezvous_params params = {.rank = 1, .rank_count = 2, .local_rank = 1, .local_count = 2, .address = "127.0.0.1",
                                         .port = "29500", .job = "4711", .host = "here", .timeout_ms = 2000, .log = &log};
    eo_status status = eo_rendezvous_create(&rv, &params);
    tap(status == EO_ERR_INVALID && strstr(text, "a process of another user (65534) listens"), "%s: %s", name, text);
    params.rank = params.local_rank = 0;
    status = eo_rendezvous_create(&rv, &params);
    tap(status == EO_ERR_INVALID && strstr(text, "a process of another user (65534) uses"), "and the first rank says who "
        "has the name: %s", text);
    eo_rendezvous_destroy(&rv);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(ready[0]);
}

static void long_names(void)
{
    char job[257] = "";
    memset(job, 'x', sizeof(job) - 1);
    eo_rendezvous *rv;
    const eo_rendezvous_params params = {.rank = 1,
                                         .rank_count = 2,
                                         .local_rank = 1,
                                         .local_count = 2,
                                         .address = "127.0.0.1",
                                         .port = "29500",
                                         .job = job,
                                         .host = "here",
                                         .timeout_ms = 50};
    tap(eo_rendezvous_create(&rv, &params) == EO_ERR_INVALID, "a job's name that would be cut short is refused");
}

int main(void)
{
    strangers();
    shouting(false);
    shouting(true);
    stopped_rank();
    squatter();
    long_names();
    return tap_end();
}
