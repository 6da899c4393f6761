/* SPDX-License-Identifier: MIT
 *
 * Goal: ranks find each other, and nobody else gets in; who repeats a rank, comes from another world, speaks another
 * version or does not hold the token is refused with the reason; who says nothing keeps nobody waiting. Who does not come
 * to an exchange is named on all ranks, itself as well.
 * Method: ranks are threads with a rendezvous each, as on two hosts, over real sockets; strangers are plain sockets.
 */
#include <evenodd/cluster.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/cluster/free_port.h"
#include "tests/tap/tap.h"

enum { RANKS_MAX = 16 };

struct member {
    eo_rendezvous_params params;
    unsigned char token[EO_TOKEN_BYTES];
    _Atomic eo_status status, again;
    uint32_t good_exchanges;
    eo_rank_info first, last;
    char log_text[4000];
    pthread_mutex_t mutex;
    bool keeps; /* the rendezvous, for the test to go on with */
    eo_rendezvous *rendezvous;
    _Atomic int failed;
};

static char port[16];
static struct member members[RANKS_MAX];

static void keep_log(void *user, eo_log_level level, const char *text)
{
    struct member *m = user;
    pthread_mutex_lock(&m->mutex);
    const size_t used = strlen(m->log_text);
    snprintf(m->log_text + used, sizeof(m->log_text) - used, "%s\n", text);
    pthread_mutex_unlock(&m->mutex);
}

static void on_failed(void *user, const eo_rank_failure *failure)
{
    ((struct member *)user)->failed += failure->status < 0;
}

static void prepare(uint32_t rank_count, uint32_t of_host)
{
    static const char *const hosts[] = {"north", "south", "east", "west", "up", "down"};
    memset(members, 0, sizeof(members));
    choose_free_port(port);
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        struct member *m = &members[r];
        pthread_mutex_init(&m->mutex, NULL);
        memset(m->token, 0xa5, sizeof(m->token));
        const uint32_t first = r / of_host * of_host;
        m->params = (eo_rendezvous_params){
            .rank = r, .rank_count = rank_count, .local_rank = r - first,
            .local_count = rank_count - first < of_host ? rank_count - first : of_host, .address = "127.0.0.1",
            .port = port, .token = m->token, .job = "test", .host = hosts[r / of_host % 6], .timeout_ms = 20000,
            .silence_ms = 20000, .failed = on_failed, .user = m,
        };
    }
}

static void *life(void *arg)
{
    struct member *m = arg;
    const eo_log log = {.write = keep_log, .user = m, .level = EO_LOG_WARN};
    m->params.log = &log;
    m->status = eo_rendezvous_create(&m->rendezvous, &m->params);
    if (m->status < 0)
        return NULL;
    const uint32_t count = m->params.rank_count;
    m->first = eo_rendezvous_rank_info(m->rendezvous, 0);
    m->last = eo_rendezvous_rank_info(m->rendezvous, count - 1);
    for (uint32_t round = 0; round < 5; round++) {
        unsigned char mine[1000], all[RANKS_MAX * sizeof(mine)];
        const uint32_t bytes = 1 + 199 * round;
        memset(mine, (int)(16 * round + m->params.rank), sizeof(mine));
        if (eo_rendezvous_all_gather(m->rendezvous, mine, bytes, all) < 0)
            break;
        bool good = true;
        for (uint32_t i = 0; i < count * bytes; i++)
            good = good && all[i] == 16 * round + i / bytes;
        m->good_exchanges += good;
    }
    if (!m->keeps)
        eo_rendezvous_destroy(&m->rendezvous);
    return NULL;
}

static pthread_t threads[RANKS_MAX];

static void begin(uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i++)
        pthread_create(&threads[i], NULL, life, &members[i]);
}

static void await(uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i++)
        pthread_join(threads[i], NULL);
}

static bool all_good(uint32_t from, uint32_t end)
{
    bool good = true;
    for (uint32_t i = from; i < end; i++)
        good = good && members[i].status == EO_OK && members[i].good_exchanges == 5 && !members[i].failed;
    return good;
}

static int stranger(const void *says, size_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)atoi(port))};
    for (int i = 0; i < 500; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
            if (bytes && send(fd, says, bytes, MSG_NOSIGNAL) < 0)
                perror("send");
            return fd;
        }
        close(fd);
        usleep(10000);
    }
    return -1;
}

/* ---- cases ---- */

static void come_together(void)
{
    static const uint32_t shapes[][2] = {{1, 1}, {2, 1}, {2, 2}, {5, 2}, {6, 1}, {12, 2}, {16, 1}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const uint32_t count = shapes[i][0];
        prepare(count, shapes[i][1]);
        begin(0, count);
        await(0, count);
        tap(all_good(0, count) && members[0].last.process == (uint32_t)getpid() &&
                strcmp(members[count - 1].first.host, "north") == 0,
            "%u ranks, %u a host, come together, exchange, know each other's names and leave", count, shapes[i][1]);
    }
}

static void one_comes_late(void)
{
    prepare(4, 2);
    begin(1, 4);
    usleep(100000);
    begin(0, 1);
    await(0, 4);
    tap(all_good(0, 4), "rank 0 may be the last to come");
}

static void strangers(void)
{
    static unsigned char noise[4096];
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (unsigned char)(i * 2654435761u >> 13);
    unsigned char of_version_9[72] = {'e', 'v', 'o', 'n', 9};
    int fds[320], count = 0;
    prepare(3, 1);
    begin(0, 1);
    for (int i = 0; i < 300; i++) /* more than are let in at one time: these say nothing, and stay */
        fds[count++] = stranger(NULL, 0);
    fds[count++] = stranger(noise, sizeof(noise));
    fds[count++] = stranger("GET / HTTP/1.0\r\n\r\n                                                              ", 72);
    const int other_version = stranger(of_version_9, sizeof(of_version_9));
    unsigned char answer[200];
    ssize_t got = 0, piece;
    while (got < 116 && (piece = recv(other_version, answer + got, sizeof(answer) - (size_t)got, 0)) > 0)
        got += piece;
    begin(1, 3);
    await(0, 3);
    tap(all_good(0, 3), "strangers that say nothing or nonsense keep nobody out");
    tap(strstr(members[0].log_text, "refused a connection from 127.0.0.1 port ") &&
            strstr(members[0].log_text, "it is not evenodd (it calls)"),
        "a stranger is refused, and the log says who and why");
    tap(strstr(members[0].log_text, "it speaks version 9, this process version 3") != NULL,
        "another version is refused, and the log says which");
    tap(got >= 116 && answer[76 + 6] == 3, "and it is told that the version is the reason");
    while (count)
        close(fds[--count]);
    close(other_version);
}

static void wrong_token(void)
{
    prepare(2, 1);
    members[2].params.rank = 1;
    members[2].params.host = "elsewhere";
    members[2].params.local_rank = 0;
    members[2].params.local_count = 1;
    members[2].token[31] ^= 1; /* one bit of 256 */
    begin(0, 1);
    begin(2, 3);
    await(2, 3);
    tap(members[2].status == EO_ERR_INVALID && strstr(members[2].log_text, "the tokens differ"),
        "who has another token cannot join, and is told so");
    begin(1, 2);
    await(0, 2);
    tap(all_good(0, 2) && strstr(members[0].log_text, "it does not hold the token of this job"),
        "the others come together all the same, and rank 0 has logged it");
}

static void other_job(void)
{
    prepare(2, 1);
    members[2].params = members[1].params;
    members[2].params.job = "another";
    begin(0, 1);
    begin(2, 3);
    await(2, 3);
    begin(1, 2);
    await(0, 2);
    tap(members[2].status == EO_ERR_INVALID && all_good(0, 2), "a rank of another job is refused");
}

static bool log_has(struct member *m, const char *text)
{
    pthread_mutex_lock(&m->mutex);
    const bool has = strstr(m->log_text, text) != NULL;
    pthread_mutex_unlock(&m->mutex);
    return has;
}

/* Which of the two comes first is not known; the third rank comes when one has been refused. */
static void repeated_rank(void)
{
    static const char reason[] = "has already joined; give each process a rank";
    prepare(3, 1);
    members[4].params = members[1].params;
    members[4].params.user = &members[4];
    members[4].params.host = "copy";
    begin(0, 2);
    begin(4, 5);
    while (!log_has(&members[1], reason) && !log_has(&members[4], reason))
        usleep(1000);
    begin(2, 3);
    await(0, 3);
    await(4, 5);
    struct member *refused = members[1].status < 0 ? &members[1] : &members[4];
    tap(refused->status == EO_ERR_INVALID && log_has(refused, reason) && log_has(refused, "rank 1 (host "),
        "a rank that is there already is refused, with the name of the first one");
    *refused = members[0];
    tap(all_good(0, 3) && all_good(4, 5) && log_has(&members[0], reason),
        "the others come together all the same, and rank 0 has logged it");
}

static void sizes_disagree(void)
{
    prepare(3, 1);
    members[3].params.rank = 2;
    members[3].params.rank_count = 4;
    members[3].params.local_rank = 0;
    members[3].params.local_count = 1;
    begin(0, 2);
    begin(3, 4);
    await(3, 4);
    tap(members[3].status == EO_ERR_INVALID && strstr(members[3].log_text, "a world of 4 ranks, this one has 3"),
        "a rank that was started for a world of another size is refused with both sizes");
    begin(2, 3);
    await(0, 3);
    tap(all_good(0, 3), "the others come together all the same");
}

static void missing_ranks(void)
{
    prepare(6, 2);
    for (uint32_t r = 0; r < 6; r++)
        members[r].params.timeout_ms = 2000;
    begin(0, 3); /* rank 3, the second of its host, and host east do not come */
    await(0, 3);
    tap(members[0].status == EO_ERR_TIMEOUT && strstr(members[0].log_text, "missing: rank 3 ... 5"),
        "who is missing is said by number, also of a host that is there in part");
    tap(members[1].status < 0 && strstr(members[1].log_text, "missing: rank 3 ... 5") && members[2].status < 0,
        "all that have come end, and the ranks of rank 0's host know the reason");
}

/* The first rank of the other host has waited for half of its time before it reaches rank 0. */
static void missing_beside_a_late_root(void)
{
    prepare(4, 2);
    members[0].params.timeout_ms = 1500;
    members[2].params.timeout_ms = 1000;
    begin(2, 3);
    usleep(700000);
    begin(0, 2);
    await(0, 3);
    tap(members[0].status == EO_ERR_TIMEOUT && strstr(members[0].log_text, "missing: rank 3"),
        "only who is missing is named, also where rank 0 came late");
}

static void bad_parameters(void)
{
    static const char *const cases[] = {
        "a rank outside its world",     "all addresses of a host",   "a network without a token",   "a port that is no number",
        "several hosts and no address", "a token of zeros",          "an address that is too long", "a port that is too long",
        "a job that is too long",       "several hosts and no port", "one host and no local rank",  "no local count"};
    static const unsigned char zeros[EO_TOKEN_BYTES];
    const char **const texts[] = {&members[1].params.address, &members[1].params.port, &members[1].params.job};
    char long_text[400];
    memset(long_text, '7', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    for (int i = 0; i < 12; i++) {
        prepare(2, 1);
        switch (i) {
        case 0: members[1].params.rank = 2; break;
        case 1: members[1].params.address = "0.0.0.0"; break;
        case 2:
            members[1].params.address = "192.0.2.1";
            members[1].params.token = NULL;
            break;
        case 3: members[1].params.port = "http"; break;
        case 4: members[1].params.address = NULL; break;
        case 5: members[1].params.token = zeros; break;
        case 9: members[1].params.port = NULL; break;
        case 10:
            members[1].params.local_count = 2;
            break;
        case 11:
            members[1].params.local_count = 0;
            members[1].params.address = NULL;
            break;
        default: *texts[i - 6] = long_text; break;
        }
        begin(1, 2);
        await(1, 2);
        const char *reason =
            i == 4    ? "address of rank 0 is missing"
            : i == 9  ? "port of rank 0 is missing"
            : i == 10 ? "set local_rank to the rank"
            : i == 11 ? "(1 of 2 ranks on this one), but the address of rank 0 is missing; on one host set local_rank"
            : i < 5   ? ""
            : i == 5  ? "token of zeros"
                      : "longer than";
        tap(members[1].status < 0 && strstr(members[1].log_text, reason), "refused at once: %s", cases[i]);
    }
    prepare(2, 1);
    members[0].params.address = "192.0.2.1"; /* of documents: no host has it */
    begin(0, 1);
    await(0, 1);
    tap(members[0].status == EO_ERR_IO && strstr(members[0].log_text, "this host has no such address"),
        "rank 0 does not listen where it is not");
}

/* The job's own host as well: any of its users reaches the loopback. */
static void without_a_token(void)
{
    prepare(2, 1);
    for (uint32_t r = 0; r < 2; r++)
        members[r].params.token = NULL;
    begin(0, 2);
    await(0, 2);
    tap(members[0].status == EO_ERR_INVALID && members[1].status == EO_ERR_INVALID && log_has(&members[1], "without a token"),
        "ranks that meet by TCP without a token are refused, on the loopback too");
    for (uint32_t r = 0; r < 2; r++)
        members[r].params.insecure = true;
    begin(0, 2);
    await(0, 2);
    tap(all_good(0, 2) && log_has(&members[0], "is insecure: without a token"),
        "unless it may be insecure, which is logged");
}

static void give_up(void)
{
    eo_rank_failure failure = {0};
    prepare(5, 2);
    for (uint32_t r = 0; r < 5; r++)
        members[r].keeps = true;
    begin(0, 5);
    await(0, 5);
    eo_rendezvous_fail(members[3].rendezvous, EO_ERR_NOT_FINITE, "the loss of step 7 is not finite");
    uint32_t told = 0;
    for (uint32_t r = 0; r < 5; r++) {
        unsigned char byte = 0, all[5];
        /* An exchange that cannot end any more ends with the failure. */
        const eo_status status = eo_rendezvous_all_gather(members[r].rendezvous, &byte, 1, all);
        told += status == EO_ERR_NOT_FINITE && eo_rendezvous_failure(members[r].rendezvous, &failure) &&
                failure.rank == 3 && !failure.lost && strstr(failure.text, "step 7");
    }
    for (uint32_t r = 0; r < 5; r++) {
        eo_rendezvous_destroy(&members[r].rendezvous);
        told += members[r].failed == 1;
    }
    tap(told == 10, "a rank that gives up is told to all, once, with its reason");
}

static void *exchange(void *arg)
{
    struct member *m = arg;
    unsigned char byte = 0, all[RANKS_MAX];
    m->status = eo_rendezvous_all_gather(m->rendezvous, &byte, 1, all);
    return NULL;
}

/* Five ranks, two a host: `away` stays away from an exchange, whose `expected` is told. */
static void stays_away(uint32_t away, const char *expected, const char *who)
{
    prepare(5, 2);
    for (uint32_t r = 0; r < 5; r++) {
        members[r].keeps = true;
        members[r].params.timeout_ms = 1500;
    }
    begin(0, 5);
    await(0, 5);
    for (uint32_t r = 0; r < 5; r++)
        if (r != away)
            pthread_create(&threads[r], NULL, exchange, &members[r]);
    uint32_t told = 0;
    for (uint32_t r = 0; r < 5; r++) {
        eo_rank_failure failure = {0};
        if (r != away)
            pthread_join(threads[r], NULL);
        for (int i = 0; i < 1000 && !eo_rendezvous_failure(members[r].rendezvous, &failure); i++)
            usleep(10000);
        told += failure.rank == away && failure.lost && failure.status == EO_ERR_TIMEOUT &&
                strstr(failure.text, expected) != NULL && (r == away || members[r].status == EO_ERR_TIMEOUT);
        if (told == r)
            printf("# rank %u: status %d, rank %u, %s\n", r, members[r].status, failure.rank, failure.text);
    }
    for (uint32_t r = 0; r < 5; r++)
        eo_rendezvous_destroy(&members[r].rendezvous);
    tap(told == 5, "%s that does not come to an exchange is named on all ranks", who);
}

static _Atomic bool holds_thread;

static void hold_thread(void *user, char *text, size_t bytes)
{
    (void)user;
    snprintf(text, bytes, "being held up");
    for (int i = 0; i < 3000 && holds_thread; i++)
        usleep(10000);
}

static void *exchange_twice(void *arg)
{
    struct member *m = arg;
    unsigned char byte = 0, all[RANKS_MAX];
    m->status = eo_rendezvous_all_gather(m->rendezvous, &byte, 1, all);
    m->again = eo_rendezvous_all_gather(m->rendezvous, &byte, 1, all);
    return NULL;
}

/* Nobody comes to rank 0's exchange, and its own thread does not get to say so: an exchange after that is none. */
static void again_after_a_timeout(void)
{
    prepare(2, 1);
    for (uint32_t r = 0; r < 2; r++) {
        members[r].keeps = true;
        members[r].params.timeout_ms = 1000;
    }
    members[0].params.activity = hold_thread;
    begin(0, 2);
    await(0, 2);
    pthread_create(&threads[0], NULL, exchange_twice, &members[0]);
    usleep(100000);
    holds_thread = true;
    for (int i = 0; i < 1500 && members[0].status == EO_OK; i++)
        usleep(10000);
    usleep(200000);
    holds_thread = false;
    pthread_join(threads[0], NULL);
    for (uint32_t r = 0; r < 2; r++)
        eo_rendezvous_destroy(&members[r].rendezvous);
    tap(members[0].status == EO_ERR_TIMEOUT && members[0].again == EO_ERR_TIMEOUT,
        "an exchange after one that was given up ends with the same status (%d, then %d)", members[0].status,
        members[0].again);
}

int main(void)
{
    come_together();
    one_comes_late();
    strangers();
    wrong_token();
    other_job();
    repeated_rank();
    sizes_disagree();
    missing_ranks();
    missing_beside_a_late_root();
    bad_parameters();
    without_a_token();
    give_up();
    stays_away(0, "rank 0 (host north", "rank 0");
    stays_away(4, "or another rank of its host or behind it, has not reached", "a host");
    again_after_a_timeout();
    return tap_end();
}
