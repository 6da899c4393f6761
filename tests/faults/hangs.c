/* SPDX-License-Identifier: MIT
 *
 * Goal: a rank whose training stands still while its process lives and gives signs of life is found by the deadline of the
 * collective that the others wait in: rank, operation, layer and step are told, all processes end with status 3, the one
 * that hangs too, and postmortem names what it has not entered.
 * Method: trainings as they are, started by a launcher. One thread of one rank is stopped by ptrace where its flight
 * recorder says it is; all its other threads go on. Needs leave to trace, else it is skipped.
 * usage: hangs TRAIN POSTMORTEM FOLDER shared|mpi LAUNCHER OPTIONS...; the last option is the one before the number of ranks
 *        hangs REASON: says why it is skipped
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/faults/victim.h"
#include "tests/tap/tap.h"

enum { STEPS = 1000000, PATIENCE_S = 90, STATUS_LOST = 3, RANKS_MAX = 4, HANGS = 4 };

struct hang {
    const char *thread, *phase; /* begins of their names */
    uint32_t rank_count, victim;
    char flight[400], err[400], after[400];
    pid_t launcher, stopped, processes[RANKS_MAX];
    char operation[FLIGHT_NAME_BYTES];
};

static struct hang hangs[HANGS] = {
    {.thread = "eo-rank-", .phase = "forward", .rank_count = 2, .victim = 1},
    {.thread = "eo-rank-", .phase = "backward", .rank_count = 3, .victim = 0},
    {.thread = "eo-rank-", .phase = "norm partial", .rank_count = 2, .victim = 0},
    {.thread = "eo-comm-", .phase = "backward", .rank_count = 3, .victim = 2},
};

static const char *train, *postmortem, *folder, *collectives;
static char **launcher, text[400];

static pid_t start(const struct hang *h)
{
    char ranks[16], steps[16];
    const char *words[64];
    int count = 0;
    snprintf(ranks, sizeof(ranks), "%u", h->rank_count);
    snprintf(steps, sizeof(steps), "%d", STEPS);
    for (char **word = launcher; *word && count < 24; word++)
        words[count++] = *word;
    const char *const options[] = {ranks, train, "--model", "2x32x2", "--seq", "16", "--batch", "1", "--steps", steps,
        "--threads", "1", "--peak-seconds", "0", "--sample", "0", "--text", text, "--flight-recorder", h->flight, "--rank-timeout", "2",
        "--collectives", collectives, NULL};
    memcpy(words + count, options, sizeof(options));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!freopen("/dev/null", "w", stdout) || !freopen(h->err, "w", stderr))
        _exit(1);
    setenv("OMP_NUM_THREADS", "1", 1);
    execvp(words[0], (char **)words);
    _exit(127);
}

static const char *read_text(const char *path)
{
    static char all[1 << 16];
    FILE *file = fopen(path, "r");
    all[file ? fread(all, 1, sizeof(all) - 1, file) : 0] = '\0';
    if (file)
        fclose(file);
    return all;
}

static void show(const char *path)
{
    for (const char *line = read_text(path); *line;) {
        const int length = (int)strcspn(line, "\n");
        printf("# %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

/* ---- the thread that hangs ---- */

/* Of a process, by the beginning of its name; 0: none. */
static pid_t find_thread(pid_t process, const char *begin)
{
    char path[300], name[32] = "";
    pid_t found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    for (struct dirent *entry; tasks && !found && (entry = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/comm", (int)process, entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file) && strncmp(name, begin, strlen(begin)) == 0)
            found = atoi(entry->d_name);
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

static bool stop_thread(pid_t thread)
{
    return ptrace(PTRACE_SEIZE, thread, NULL, NULL) == 0 && ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0 &&
           waitpid(thread, NULL, __WALL) == thread;
}

/* Where the recorder says that it is, or soon after. 0 with errno: it could not be stopped. */
static pid_t stop_victim(struct hang *h, const struct victim *v)
{
    const pid_t thread = find_thread(victim_process(v), h->thread);
    errno = ESRCH;
    while (thread && (victim_step(v) < 5 || strncmp(victim_operation(v), h->phase, strlen(h->phase)) != 0) &&
           kill(victim_process(v), 0) == 0)
        usleep(20);
    if (!thread || !stop_thread(thread))
        return 0;
    snprintf(h->operation, sizeof(h->operation), "%s", victim_operation(v));
    return thread;
}

/* 0, or why no thread stands still. */
static int begin_hang(struct hang *h, size_t number)
{
    struct victim v;
    int why = 0;
    snprintf(h->flight, sizeof(h->flight), "%s/flight-%zu", folder, number);
    snprintf(h->err, sizeof(h->err), "%s/err-%zu", folder, number);
    snprintf(h->after, sizeof(h->after), "%s/postmortem-%zu", folder, number);
    for (uint32_t r = 0; r < h->rank_count; r++) {
        char path[500];
        snprintf(path, sizeof(path), "%s/rank-%05u.flight", h->flight, r);
        unlink(path);
    }
    h->launcher = start(h);
    for (uint32_t r = 0; r < h->rank_count && victim_open(&v, h->flight, r, h->launcher); r++) {
        h->processes[r] = victim_process(&v);
        victim_close(&v);
    }
    if (!victim_open(&v, h->flight, h->victim, h->launcher))
        return ESRCH;
    h->stopped = stop_victim(h, &v);
    if (!h->stopped)
        why = errno;
    victim_close(&v);
    return why;
}

/* Who traces a thread is told of its end first; only then is its process seen to end. */
static bool await_end(const struct hang *h, int *status)
{
    for (int i = 0; i < PATIENCE_S * 100; i++) {
        if (h->stopped)
            (void)waitpid(h->stopped, NULL, __WALL | WNOHANG);
        if (waitpid(h->launcher, status, WNOHANG) == h->launcher)
            return true;
        usleep(10000);
    }
    kill(h->launcher, SIGKILL);
    waitpid(h->launcher, status, 0);
    return false;
}

/* Those whose launcher did not wait for them are ours by now. */
static bool all_gone(const struct hang *h)
{
    uint32_t gone = 0;
    for (int i = 0; i < PATIENCE_S * 100 && gone < h->rank_count; i++) {
        gone = 0;
        if (h->stopped)
            (void)waitpid(h->stopped, NULL, __WALL | WNOHANG);
        for (uint32_t r = 0; r < h->rank_count; r++) {
            (void)waitpid(h->processes[r], NULL, WNOHANG);
            gone += h->processes[r] && kill(h->processes[r], 0) != 0;
        }
        usleep(10000);
    }
    return gone == h->rank_count;
}

/* ---- what was said ---- */

/* A line of that rank's, or of the library in its process, names the victim. */
static bool is_named(const char *told, const struct hang *h)
{
    char name[80];
    snprintf(name, sizeof(name), "rank %u has not ", h->victim);
    for (const char *line = told; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (memmem(line, strcspn(line, "\n"), name, strlen(name)) && memmem(line, strcspn(line, "\n"), "train: step ", 12))
            return true;
    return false;
}

static void run_postmortem(const struct hang *h)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (!freopen(h->after, "w", stdout))
            _exit(1);
        execl(postmortem, postmortem, h->flight, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* What launch says of each. mpirun ends all others when one has ended, and tells of that one; its own end after a failure
 * may be a crash inside PMIx (4.2.2). */
static bool all_ended_alike(const struct hang *h, const char *told, int status)
{
    char line[80];
    if (strcmp(collectives, "mpi") == 0) {
        const char *code = strstr(told, "Exit code: ");
        return code && atoi(code + strlen("Exit code: ")) == STATUS_LOST;
    }
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == STATUS_LOST;
    for (uint32_t r = 0; r < h->rank_count; r++) {
        snprintf(line, sizeof(line), "launch: rank %u (process %d) ended with status %d", r, (int)h->processes[r], STATUS_LOST);
        good = good && strstr(told, line);
    }
    return good;
}

/* One that stands still inside of a collective has entered it: what all ranks wrote is then the same. */
static bool postmortem_names(const struct hang *h)
{
    char wanted[80];
    run_postmortem(h);
    snprintf(wanted, sizeof(wanted), "rank %u has not entered ", h->victim);
    const char *told = read_text(h->after);
    return strstr(told, wanted) || (strncmp(h->thread, "eo-comm-", 8) == 0 && strstr(told, "all ranks have entered "));
}

static void end_hang(struct hang *h, int why)
{
    int status = 0;
    if (why)
        kill(h->launcher, SIGTERM);
    const bool ended = await_end(h, &status);
    const bool gone = !why && all_gone(h);
    const bool named = is_named(read_text(h->err), h), alike = all_ended_alike(h, read_text(h->err), status);
    const bool found = postmortem_names(h);
    tap(!why && ended && gone && named && alike && found,
        "%s, %u ranks: a thread (%s%u) stands still in %s: its rank is named, all end with status 3, postmortem knows",
        collectives, h->rank_count, h->thread, h->victim, h->phase);
    printf("# stopped in %s: %s; ended %d, all gone %d, named %d, alike %d, postmortem %d, status %d\n", h->operation,
           why ? strerror(why) : "yes", ended, gone, named, alike, found, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    if (tap_program.failures || getenv("SHOW")) {
        show(h->err);
        show(h->after);
    }
}

int main(int argc, char **argv)
{
    int why[HANGS];
    if (argc == 2)
        return tap_skip_all("%s", argv[1]);
    if (argc < 6)
        return 2;
    train = argv[1];
    postmortem = argv[2];
    folder = argv[3];
    collectives = argv[4];
    launcher = argv + 5;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    mkdir(folder, 0700);
    snprintf(text, sizeof(text), "%s/text", folder);
    FILE *file = fopen(text, "w");
    for (int i = 0; file && i < 1000; i++)
        fprintf(file, "a rank stands still %d\n", i % 7);
    if (!file || fclose(file) != 0)
        return 2;
    for (size_t i = 0; i < HANGS; i++) /* while one waits for its deadline, the next is started */
        why[i] = begin_hang(&hangs[i], i);
    if (why[0] == EPERM) {
        for (size_t i = 0; i < HANGS; i++)
            kill(hangs[i].launcher, SIGTERM);
        return tap_skip_all("threads of other processes may not be traced here");
    }
    for (size_t i = 0; i < HANGS; i++)
        end_hang(&hangs[i], why[i]);
    return tap_end();
}
