/* SPDX-License-Identifier: MIT */
#include "tools/launch/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/shared/clock.h"
#include "tools/shared/end_signals.h"
#include "tools/shared/patient_output.h"
#include "tools/shared/problem.h"
#include "tools/shared/told.h"

enum { EXIT_NOT_STARTED = 127, KEPT_BYTES = 1 << 16, LAST_READ_MS = 1000, LOOK_NS_MAX = 1000000000 };

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { FORWARDED_COUNT = sizeof(forwarded) / sizeof(forwarded[0]) };

/* One that was ignored when the launcher began (nohup, a shell's background job) stays so: blocked, it would be read all the
 * same. */
static void add_signal(sigset_t *set, int number)
{
    struct sigaction at_start;
    if (sigaction(number, NULL, &at_start) == 0 && at_start.sa_handler != SIG_IGN)
        sigaddset(set, number);
}

static void our_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (int i = 0; i < FORWARDED_COUNT; i++)
        add_signal(set, forwarded[i]);
    add_signal(set, SIGTSTP);
}

bool tool_launch_init(struct tool_launch *launch, uint32_t ranks_most)
{
    sigset_t set;
    signal(SIGCHLD, SIG_DFL); /* ignored, as a parent may hand it down, nobody could wait for a rank */
    our_signals(&set);
    launch->ranks = calloc(ranks_most, sizeof(*launch->ranks));
    sigprocmask(SIG_BLOCK, &set, NULL);
    launch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!launch->ranks || launch->signals < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, launch->ranks ? strerror(errno) : "no memory");
        return false;
    }
    /* What a rank starts and leaves behind becomes ours, and ends with us. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    if (!tool_launch_guard_start(&launch->guard)) {
        fprintf(stderr, "%s: cannot start the guard process: %s\n",
                program_invocation_short_name, strerror(errno));
        return false;
    }
    if (!tool_launch_children_keep(&launch->children)) {
        fprintf(stderr, "%s: no memory\n", program_invocation_short_name);
        return false;
    }
    return true;
}

void tool_launch_fini(struct tool_launch *launch)
{
    free(launch->ranks);
    free(launch->children.kept);
    close(launch->signals);
    tool_launch_guard_stop(&launch->guard);
}

/* ---- start ---- */

static void set_number(const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    setenv(name, text, 1);
}

static void become_rank(const struct tool_launch *launch, uint32_t rank, const char *token, uint32_t turn, pid_t parent,
                        int out, int err)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before the line above */
        _exit(EXIT_NOT_STARTED);
    const int in = open("/dev/null", O_RDONLY);
    if (in >= 0)
        dup2(in, STDIN_FILENO);
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
    }
    set_number("EVENODD_RANK", rank);
    set_number("EVENODD_RANKS", launch->rank_count);
    set_number("EVENODD_LOCAL_RANK", rank);
    set_number("EVENODD_LOCAL_RANKS", launch->rank_count);
    set_number("EVENODD_RESTART", turn);
    set_number("EVENODD_JOB", (uint64_t)parent);
    tool_told_name(launch->told);
    setenv("EVENODD_TOKEN", token, 1);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGXFSZ, SIG_DFL); /* ignored by us (tool_arguments_parse), and inherited */
    signal(SIGTTOU, SIG_IGN); /* in the background of a terminal, a rank would be stopped by what it writes (stty tostop) */
    execvp(launch->command[0], launch->command);
    struct tool_problem problem;
    (void)tool_problem_set(&problem, EO_ERR_INVALID, "%s: %s", launch->command[0], strerror(errno));
    if (tool_told_first(rank, problem.text))
        dprintf(STDERR_FILENO, "%s: %s\n", program_invocation_short_name, problem.text);
    _exit(EXIT_NOT_STARTED);
}

static bool start_rank(struct tool_launch *launch, uint32_t rank, const char *token, uint32_t turn)
{
    struct tool_launch_rank *r = &launch->ranks[rank];
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    *r = (struct tool_launch_rank){.ended = true, .output = {{.fd = -1}, {.fd = -1}}};
    if (launch->label && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)) {
        for (int i = 0; i < 2 && out[0] >= 0; i++)
            close(out[i]);
        return false;
    }
    const pid_t parent = getpid();
    r->pid = fork();
    if (r->pid == 0)
        become_rank(launch, rank, token, turn, parent, out[1], err[1]);
    if (launch->label) {
        close(out[1]);
        close(err[1]);
        fcntl(out[0], F_SETFL, O_NONBLOCK);
        fcntl(err[0], F_SETFL, O_NONBLOCK);
        r->output[0].fd = out[0];
        r->output[1].fd = err[0];
    }
    if (r->pid < 0)
        return false;
    setpgid(r->pid, r->pid); /* both sides: nobody is to signal the group before it is there */
    tool_launch_guard_tell(&launch->guard, rank, r->pid);
    r->ended = false;
    return true;
}

/* ---- output with labels ---- */

static void write_line(FILE *to, uint32_t rank, const char *line, uint32_t bytes)
{
    fprintf(to, "[%u] %.*s\n", rank, (int)bytes, line);
    fflush(to);
}

/* Whole lines, so that those of several ranks do not mix. */
static void pass_on(struct tool_launch *launch, uint32_t rank, int which)
{
    struct tool_launch_output *o = &launch->ranks[rank].output[which];
    FILE *to = which ? stderr : stdout;
    const ssize_t got = read(o->fd, o->line + o->bytes, sizeof(o->line) - o->bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        if (o->bytes)
            write_line(to, rank, o->line, o->bytes);
        close(o->fd);
        o->fd = -1;
        return;
    }
    o->bytes += (uint32_t)got;
    for (char *end; (end = memchr(o->line, '\n', o->bytes));) {
        const uint32_t used = (uint32_t)(end - o->line);
        write_line(to, rank, o->line, used);
        o->bytes -= used + 1;
        memmove(o->line, end + 1, o->bytes);
    }
    if (o->bytes == sizeof(o->line)) {
        write_line(to, rank, o->line, o->bytes);
        o->bytes = 0;
    }
}

/* ---- ends ---- */

static uint32_t running(const struct tool_launch *launch)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < launch->rank_count; r++)
        count += !launch->ranks[r].ended;
    return count;
}

static void signal_all(struct tool_launch *launch, int number)
{
    for (uint32_t r = 0; r < launch->rank_count; r++)
        if (!launch->ranks[r].ended)
            kill(-launch->ranks[r].pid, number);
}

static void kill_rank(struct tool_launch_rank *rank)
{
    rank->killed = true;
    kill(-rank->pid, SIGKILL);
}

/* Where input was refused or there is no program, all ranks end alike: one of them is told, and how many others. */
static bool is_alike(const struct tool_launch *launch, int status)
{
    const bool is_common =
        WIFEXITED(status) && (WEXITSTATUS(status) == TOOL_EXIT_BAD_INPUT || WEXITSTATUS(status) == EXIT_NOT_STARTED);
    bool is_told = false;
    for (uint32_t r = 0; r < launch->rank_count; r++)
        is_told = is_told || (launch->ranks[r].ended && launch->ranks[r].status == status);
    return is_common && is_told;
}

static void tell_end(const struct tool_launch *launch, uint32_t r)
{
    const struct tool_launch_rank *rank = &launch->ranks[r];
    if (WIFSIGNALED(rank->status))
        fprintf(stderr, "%s: rank %u (process %d) %s by signal %d (%s)\n", program_invocation_short_name, r, (int)rank->pid,
                rank->killed ? "did not end, and was killed" : "was killed", WTERMSIG(rank->status),
                strsignal(WTERMSIG(rank->status)));
    else
        fprintf(stderr, "%s: rank %u (process %d) ended with status %d\n", program_invocation_short_name, r, (int)rank->pid,
                WEXITSTATUS(rank->status));
}

static void take_end(struct tool_launch *launch, uint32_t r, int status)
{
    struct tool_launch_rank *rank = &launch->ranks[r];
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        rank->stopped = WIFSTOPPED(status);
        return;
    }
    const bool is_told = is_alike(launch, status);
    rank->ended = true;
    rank->status = status;
    kill(-rank->pid, SIGKILL); /* what it started */
    tool_launch_guard_tell(&launch->guard, r, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    launch->is_unread = launch->is_unread || (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    if (is_told)
        launch->alike_counts[WEXITSTATUS(status) == EXIT_NOT_STARTED]++;
    else
        tell_end(launch, r);
    if (!launch->fail_ns)
        launch->fail_ns = tool_now_ns();
}

static void reap(struct tool_launch *launch)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
        if (WIFEXITED(status) || WIFSIGNALED(status))
            tool_launch_children_forget(&launch->children, pid);
        for (uint32_t r = 0; r < launch->rank_count; r++)
            if (launch->ranks[r].pid == pid && !launch->ranks[r].ended)
                take_end(launch, r, status);
    }
}

/* The cause: a rank that a signal ended counts before one that gave a status, and that before those that only say that
 * another was lost. Input that was refused is refused again, so it counts before a failure. Who wrote to nobody is not lost. */
static int exit_status(const struct tool_launch *launch)
{
    int status = TOOL_EXIT_OK;
    for (uint32_t r = 0; r < launch->rank_count; r++) {
        const struct tool_launch_rank *rank = &launch->ranks[r];
        const bool is_unread = WIFSIGNALED(rank->status) && WTERMSIG(rank->status) == SIGPIPE;
        if (WIFSIGNALED(rank->status) && !rank->killed && !is_unread)
            return TOOL_EXIT_RANK_LOST;
        const int own = is_unread                   ? TOOL_EXIT_FAILED
                        : WIFSIGNALED(rank->status) ? TOOL_EXIT_RANK_LOST
                                                    : WEXITSTATUS(rank->status);
        if (own != 0 && (status == TOOL_EXIT_OK || status == TOOL_EXIT_RANK_LOST || own == TOOL_EXIT_BAD_INPUT))
            status = own;
    }
    return status;
}

/* ---- the loop ---- */

/* The terminal's stop reaches the launcher alone: the ranks have groups of their own. */
static void stop_together(struct tool_launch *launch)
{
    signal_all(launch, SIGSTOP);
    raise(SIGSTOP);
    signal_all(launch, SIGCONT);
}

static void take_signals(struct tool_launch *launch)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof(info)) == sizeof(info)) {
        const int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        if (number == SIGTSTP) {
            stop_together(launch);
            continue;
        }
        const bool is_end = number != SIGUSR1 && number != SIGUSR2;
        const uint64_t now = tool_now_ns();
        const bool is_again = launch->interrupted && now - launch->interrupted_ns > TOOL_SAME_SIGNAL_NS;
        /* They have the same time to end as after a failure; who asks at a terminal asks again, if it is too long. */
        if (is_end && !launch->fail_ns && (number != SIGINT || is_again))
            launch->fail_ns = now;
        if (is_end && !launch->interrupted)
            launch->interrupted_ns = now;
        launch->interrupted = launch->interrupted || is_end;
        signal_all(launch, number);
        if (is_end)
            signal_all(launch, SIGCONT); /* a stopped one cannot end */
    }
}

/* Where the ranks were ended, nobody may ever read the rest; else all of it is waited for, or a signal. */
bool tool_launch_await_reader(struct tool_launch *launch)
{
    struct pollfd signals = {.fd = launch->signals, .events = POLLIN};
    const uint64_t end_ns = tool_now_ns() + LAST_READ_MS * UINT64_C(1000000);
    bool is_out;
    fflush(NULL);
    while (!(is_out = tool_patient_end(0)) && errno == EAGAIN && !(launch->interrupted && tool_now_ns() >= end_ns)) {
        (void)poll(&signals, 1, 10);
        take_signals(launch);
    }
    return (is_out || errno == EAGAIN) && !ferror(stdout) && !ferror(stderr);
}

void tool_launch_pause(struct tool_launch *launch, uint32_t ms)
{
    struct pollfd signals = {.fd = launch->signals, .events = POLLIN};
    const uint64_t end_ns = tool_now_ns() + ms * UINT64_C(1000000);
    for (uint64_t now = tool_now_ns(); now < end_ns && !launch->interrupted; now = tool_now_ns()) {
        (void)poll(&signals, 1, (int)((end_ns - now) / 1000000) + 1);
        take_signals(launch);
    }
}

/* Time is counted from look to look: a job that was stopped whole has saved nothing meanwhile. */
static void press(struct tool_launch *launch)
{
    if (!launch->fail_ns)
        return;
    const uint64_t now = tool_now_ns(), since_ns = now - (launch->looked_ns ? launch->looked_ns : launch->fail_ns);
    launch->grace_ns += since_ns < LOOK_NS_MAX ? since_ns : LOOK_NS_MAX;
    launch->looked_ns = now;
    const bool is_over = launch->grace_ns >= (uint64_t)launch->grace_s * 1000000000u;
    for (uint32_t r = 0; r < launch->rank_count; r++) {
        struct tool_launch_rank *rank = &launch->ranks[r];
        if (!rank->ended && !rank->killed && (is_over || rank->stopped))
            kill_rank(rank);
    }
}

static bool outputs_are_open(const struct tool_launch *launch)
{
    for (uint32_t r = 0; r < launch->rank_count; r++)
        if (launch->ranks[r].output[0].fd >= 0 || launch->ranks[r].output[1].fd >= 0)
            return true;
    return false;
}

/* What the ranks' output is passed on to takes no more for now: the rest stays in the ranks' pipes. */
static bool is_full(int which)
{
    return tool_patient_kept(which ? STDERR_FILENO : STDOUT_FILENO) >= KEPT_BYTES;
}

static void watch(struct tool_launch *launch)
{
    const uint32_t capacity = 1 + 2 * launch->rank_count;
    struct pollfd *polls = calloc(capacity, sizeof(*polls));
    if (!polls) {
        signal_all(launch, SIGKILL);
        return;
    }
    uint64_t quiet_ns = 0; /* all have ended, and only a descendant may hold the pipes */
    while (running(launch) > 0 || (outputs_are_open(launch) && tool_now_ns() < quiet_ns)) {
        polls[0] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
        const bool full[2] = {is_full(0), is_full(1)};
        for (uint32_t i = 0; i < 2 * launch->rank_count; i++)
            polls[1 + i] = (struct pollfd){.fd = full[i % 2] ? -1 : launch->ranks[i / 2].output[i % 2].fd, .events = POLLIN};
        (void)poll(polls, capacity, launch->fail_ns || running(launch) == 0 || full[0] || full[1] ? 50 : 1000);
        for (uint32_t i = 0; i < 2 * launch->rank_count; i++)
            if (polls[1 + i].revents)
                pass_on(launch, i / 2, (int)(i % 2));
        take_signals(launch);
        reap(launch);
        press(launch);
        if (running(launch) > 0 || ((full[0] || full[1]) && !launch->interrupted))
            quiet_ns = tool_now_ns() + 500000000u;
    }
    free(polls);
}

int tool_launch_run(struct tool_launch *launch, const char *token, uint32_t turn)
{
    bool all = true;
    launch->fail_ns = launch->looked_ns = launch->grace_ns = 0;
    launch->alike_counts[0] = launch->alike_counts[1] = 0;
    launch->told = tool_told_make();
    fflush(NULL);
    for (uint32_t r = 0; r < launch->rank_count; r++)
        launch->ranks[r] = (struct tool_launch_rank){.ended = true, .output = {{.fd = -1}, {.fd = -1}}};
    for (uint32_t r = 0; r < launch->rank_count && all; r++) {
        all = start_rank(launch, r, token, turn);
        if (!all)
            fprintf(stderr, "%s: cannot start rank %u: %s\n", program_invocation_short_name, r, strerror(errno));
    }
    if (!all)
        signal_all(launch, SIGKILL);
    watch(launch);
    for (int i = 0; i < 2; i++)
        if (launch->alike_counts[i])
            fprintf(stderr, "%s: %u other rank%s ended with status %d\n", program_invocation_short_name,
                    launch->alike_counts[i], tool_plural(launch->alike_counts[i]), i ? EXIT_NOT_STARTED : TOOL_EXIT_BAD_INPUT);
    tool_launch_children_end(&launch->children);
    if (launch->told >= 0)
        close(launch->told);
    for (uint32_t r = 0; r < launch->rank_count; r++)
        for (int i = 0; i < 2; i++)
            if (launch->ranks[r].output[i].fd >= 0)
                close(launch->ranks[r].output[i].fd);
    return all ? exit_status(launch) : TOOL_EXIT_FAILED;
}
