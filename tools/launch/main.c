/* SPDX-License-Identifier: MIT
 *
 * Starts a program once for each rank, on this machine, and ends all when one ends badly. The ranks find each other by
 * what stands in their environment (tools/shared/world_environment.h): the token is new with every start.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "tools/shared/arguments.h"
#include "tools/launch/ranks.h"
#include "tools/shared/patient_output.h"
#include "tools/shared/problem.h"

enum launch_key { LAUNCH_RESTARTS = 0x300, LAUNCH_RESTART_RANKS, LAUNCH_LABEL, LAUNCH_GRACE };
enum { TOKEN_BYTES = 32, RESTART_RANKS_MAX = 64 };
enum { SHORT_LIFE_S = 10, PAUSE_MS = 100, PAUSE_MS_MAX = 10000, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const struct argp_option launch_options[] = {
    {"ranks", 'n', "N", 0, "number of ranks [required]", 0},
    {"world", 0, NULL, OPTION_ALIAS, NULL, 0},
    {"restarts", LAUNCH_RESTARTS, "K", 0,
     "after a lost or failed rank, start all ranks again, at most K times; with train --checkpoint DIR --resume they continue "
     "from the last good checkpoint [0]",
     0},
    {"restart-ranks", LAUNCH_RESTART_RANKS, "N[,N...]", 0,
     "ranks of the first, second ... restart; the last number holds for all later ones [as before]", 0},
    {"label", LAUNCH_LABEL, NULL, 0, "begin each line of output with its rank", 0},
    {"grace", LAUNCH_GRACE, "S", 0, "seconds for the other ranks to end by themselves after a failure [6]", 0},
    {0},
};

struct settings {
    struct tool_launch launch;
    uint32_t rank_count, restarts;
    uint32_t restart_ranks[RESTART_RANKS_MAX], restart_rank_count;
    char **command;
};

static uint32_t number(const struct argp_state *state, const char *name, const char *text, uint32_t least, uint32_t most)
{
    char *end;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < least || value > most)
        argp_error(state, "%s is '%s'; give a whole number from %u to %u", name, text, least, most);
    return (uint32_t)value;
}

static void parse_restart_ranks(const struct argp_state *state, char *text, struct settings *s)
{
    s->restart_rank_count = 0;
    for (char *next; text; text = next) {
        next = strchr(text, ',');
        if (next)
            *next++ = '\0';
        if (s->restart_rank_count == RESTART_RANKS_MAX)
            argp_error(state, "--restart-ranks names more than %d numbers", RESTART_RANKS_MAX);
        s->restart_ranks[s->restart_rank_count++] = number(state, "--restart-ranks", text, 1, TOOL_LAUNCH_RANKS_MAX);
    }
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct settings *s = state->input;
    switch (key) {
    case 'n':
        s->rank_count = number(state, "-n", text, 1, TOOL_LAUNCH_RANKS_MAX);
        return 0;
    case LAUNCH_RESTARTS: s->restarts = number(state, "--restarts", text, 0, 1000000); return 0;
    case LAUNCH_RESTART_RANKS: parse_restart_ranks(state, text, s); return 0;
    case LAUNCH_LABEL: s->launch.label = true; return 0;
    case LAUNCH_GRACE: s->launch.grace_s = number(state, "--grace", text, 0, 3600); return 0;
    case ARGP_KEY_ARG: /* the program: what follows is its own */
        s->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if (s->rank_count == 0)
            argp_error(state, "-n is missing; give the number of ranks");
        if (s->restart_rank_count > s->restarts)
            argp_error(state, "--restart-ranks names the ranks of %u restart%s, but --restarts allows %u",
                       s->restart_rank_count, s->restart_rank_count == 1 ? "" : "s", s->restarts);
        if (!s->command)
            argp_error(state, "the program is missing; name it after the options, with its own options behind it");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* A rank that is waited for by nobody: the launcher's own environment says that it is one itself. */
static void warn_of_nesting(void)
{
    if (getenv("EVENODD_RANK"))
        fprintf(stderr, "%s: warning: this is already a rank of another launch; the inner ranks do not join it\n",
                program_invocation_short_name);
}

static bool new_token(char text[2 * TOKEN_BYTES + 1])
{
    unsigned char token[TOKEN_BYTES];
    if (getrandom(token, sizeof(token), 0) != sizeof(token))
        return false;
    for (int i = 0; i < TOKEN_BYTES; i++)
        sprintf(text + 2 * i, "%02x", token[i]);
    return true;
}

static uint32_t ranks_of_turn(const struct settings *settings, uint32_t turn)
{
    const uint32_t named = settings->restart_rank_count;
    if (turn == 0 || named == 0)
        return settings->rank_count;
    return settings->restart_ranks[turn < named ? turn - 1 : named - 1];
}

static uint32_t most_ranks(const struct settings *settings)
{
    uint32_t most = settings->rank_count;
    for (uint32_t i = 0; i < settings->restart_rank_count; i++)
        most = settings->restart_ranks[i] > most ? settings->restart_ranks[i] : most;
    return most;
}

static void tell_restart(const struct settings *settings, uint32_t turn)
{
    const uint32_t before = ranks_of_turn(settings, turn - 1), now = ranks_of_turn(settings, turn);
    fprintf(stderr, "%s: restart %u of %u", program_invocation_short_name, turn, settings->restarts);
    if (now != before)
        fprintf(stderr, ", with %u rank%s instead of %u", now, now == 1 ? "" : "s", before);
    fputc('\n', stderr);
}

/* What would end in the same way, and who sends a signal does not want another start. */
static bool is_final(const struct tool_launch *launch, int status)
{
    return status == TOOL_EXIT_OK || status == TOOL_EXIT_BAD_INPUT || status == EXIT_NOT_EXECUTABLE ||
           status == EXIT_NOT_FOUND || launch->interrupted || launch->is_unread;
}

/* Ranks that end as soon as they are started are given time: what they miss may come back, and the log is to be read. */
static uint32_t next_pause_ms(uint32_t pause_ms, time_t lived_s)
{
    if (lived_s >= SHORT_LIFE_S)
        return 0;
    return pause_ms == 0 ? PAUSE_MS : pause_ms < PAUSE_MS_MAX / 2 ? 2 * pause_ms : PAUSE_MS_MAX;
}

static time_t seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

int main(int argc, char **argv)
{
    struct settings settings = {.launch = {.grace_s = 6}};
    const struct argp argp = {
        .options = launch_options, .parser = parse, .args_doc = "PROGRAM [ARGUMENTS]",
        .doc = "Starts PROGRAM once for each rank, on this machine, and ends all of them after a failure.\vExit status: 0 if "
               "all ranks ended with 0; 2 if one refused its input; 3 if one was lost (a signal, or no answer); else the "
               "status of the first failed rank. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go to all ranks.",
    };
    tool_arguments_parse(&argp,
                         &(struct tool_arguments){.argc = argc, .argv = argv, .flags = ARGP_IN_ORDER, .command_follows = true},
                         &settings);
    warn_of_nesting();
    settings.launch.command = settings.command;
    if (!tool_launch_init(&settings.launch, most_ranks(&settings)))
        return TOOL_EXIT_FAILED;
    if (settings.launch.label) { /* a signal is heard whoever reads */
        tool_patient_begin(&stdout, STDOUT_FILENO, _IOLBF);
        tool_patient_begin(&stderr, STDERR_FILENO, _IOLBF);
    }
    int status = TOOL_EXIT_FAILED;
    uint32_t pause_ms = 0;
    for (uint32_t turn = 0; turn <= settings.restarts; turn++) {
        char token[2 * TOKEN_BYTES + 1];
        if (!new_token(token)) {
            fprintf(stderr, "%s: no random bytes\n", program_invocation_short_name);
            break;
        }
        if (turn)
            tell_restart(&settings, turn);
        settings.launch.rank_count = ranks_of_turn(&settings, turn);
        const time_t begin_s = seconds_now();
        status = tool_launch_run(&settings.launch, token, turn);
        if (is_final(&settings.launch, status) || turn == settings.restarts)
            break;
        pause_ms = next_pause_ms(pause_ms, seconds_now() - begin_s);
        tool_launch_pause(&settings.launch, pause_ms);
        if (settings.launch.interrupted)
            break;
    }
    const bool is_written = tool_launch_await_reader(&settings.launch);
    tool_launch_fini(&settings.launch);
    if (!is_written)
        fprintf(stderr, "%s: the ranks' output cannot be written: it is incomplete\n", program_invocation_short_name);
    return status == TOOL_EXIT_OK && !is_written ? TOOL_EXIT_FAILED : status;
}
