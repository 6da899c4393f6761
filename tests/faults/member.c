/* SPDX-License-Identifier: MIT
 *
 * A rank that has nothing to do but to be there: joins, exchanges again and again, and says what it is told of others.
 * usage: member RANK RANK_COUNT ADDRESS PORT SILENCE_MS
 * ends with 0 after SIGTERM, when all others are told to end too; with 3 when a rank is lost; with 1 when it cannot join.
 */
#include <evenodd/cluster.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_stop(int number)
{
    stop = 1;
}

static void tell(void *user, eo_log_level level, const char *text)
{
    printf("log: %s\n", text);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const unsigned char token[EO_TOKEN_BYTES] = {1, 2, 3};
    const eo_log log = {.write = tell, .level = EO_LOG_WARN};
    char host[32];
    if (argc != 6)
        return 2;
    signal(SIGTERM, on_stop);
    snprintf(host, sizeof(host), "host-%s", argv[1]);
    const eo_rendezvous_params params = {
        .rank = (uint32_t)atoi(argv[1]), .rank_count = (uint32_t)atoi(argv[2]), .address = argv[3], .port = argv[4],
        .token = token, .host = host, .silence_ms = (uint32_t)atoi(argv[5]), .timeout_ms = 20000, .log = &log,
    };
    eo_rendezvous *rendezvous;
    if (eo_rendezvous_create(&rendezvous, &params) < 0)
        return 1;
    unsigned char all[256];
    eo_rank_failure failure = {0};
    bool all_stop = false;
    printf("joined\n");
    fflush(stdout);
    for (unsigned count = 0; !all_stop; count++) { /* all stop in the same round */
        unsigned char mine = stop != 0;
        if (eo_rendezvous_all_gather(rendezvous, &mine, 1, all) < 0)
            break;
        for (uint32_t r = 0; r < params.rank_count; r++)
            all_stop = all_stop || all[r];
        if (count == 5) {
            printf("exchanged\n");
            fflush(stdout);
        }
        usleep(20000);
    }
    const bool failed = eo_rendezvous_failure(rendezvous, &failure);
    printf("%s%s\n", failed ? "told: " : "ended in order", failed ? failure.text : "");
    fflush(stdout);
    eo_rendezvous_destroy(&rendezvous);
    return failed ? 3 : 0;
}
