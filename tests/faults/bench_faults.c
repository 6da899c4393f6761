/* SPDX-License-Identifier: MIT
 *
 * Not a test: how long it takes from the signal that ends or stops a rank until all others have said who it was, and until
 * no process of the job is left. Trainings of 2 to 4 ranks; a seed chooses ranks, victim and moment. All processes write
 * to one pipe: a line of each rank has its time, and when the pipe ends, the last process has.
 * usage: bench_faults LAUNCH TRAIN FOLDER TEXT CASES SPINNERS
 * SPINNERS processes compute beside. Of five cases two are killed, two end by SIGSEGV, and one is stopped, with a deadline
 * of two seconds. Prints JSON.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/faults/victim.h"

enum { RANKS_MAX = 4, CASES_MAX = 1000, SPINNERS_MAX = 256, STATUS_LOST = 3 };

static const int signals[] = {SIGKILL, SIGSEGV, SIGKILL, SIGSEGV, SIGSTOP};

struct fault {
    uint32_t rank_count, victim, wait_us;
    int signal;
};

struct taken {
    double told_ms[CASES_MAX], ended_ms[CASES_MAX];
    uint32_t count;
};

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static struct fault draw(uint32_t seed)
{
    uint32_t z = seed * 2654435761u + 12345u;
    struct fault f = {.rank_count = 2 + (z >> 8) % 3, .wait_us = (z >> 4) % 200000, .signal = signals[seed % 5]};
    f.victim = (z >> 20) % f.rank_count;
    return f;
}

static pid_t start(const struct fault *f, char **argv, int *pipe_end)
{
    char ranks[16];
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    snprintf(ranks, sizeof(ranks), "%u", f->rank_count);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        setenv("OMP_NUM_THREADS", "1", 1);
        if (!freopen("/dev/null", "w", stdout))
            _exit(1);
        execl(argv[1], argv[1], "-n", ranks, argv[2], "--model", "2x32x2", "--seq", "16", "--batch", "1", "--steps", "1000000",
              "--threads", "1", "--peak-seconds", "0", "--sample", "0", "--text", argv[4], "--flight-recorder", argv[3],
              "--rank-timeout", f->signal == SIGSTOP ? "2" : "60", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *pipe_end = ends[0];
    return pid;
}

/* Each rank that says the victim's name, once; then the pipe's end. False: not all others said it. */
static bool read_reports(const struct fault *f, int fd, double *told_ms, double *ended_ms)
{
    static char text[1 << 16];
    size_t bytes = 0;
    bool told[RANKS_MAX] = {false};
    uint32_t count = 0;
    for (struct pollfd wait = {.fd = fd, .events = POLLIN}; poll(&wait, 1, 60000) > 0;) {
        const ssize_t got = read(fd, text + bytes, sizeof(text) - 1 - bytes);
        const double at = now_ms();
        if (got <= 0) {
            *ended_ms = at;
            break;
        }
        bytes += (size_t)got;
        text[bytes] = '\0';
        for (uint32_t r = 0; r < f->rank_count; r++) {
            char begin[80];
            snprintf(begin, sizeof(begin), "train: rank %u: rank %u (host ", r, f->victim);
            if (told[r] || !strstr(text, begin))
                continue;
            told[r] = true;
            count++;
            *told_ms = at;
        }
    }
    if (count == f->rank_count - 1)
        return true;
    fprintf(stderr, "%u of the others have named it:\n%s", count, text);
    return false;
}

static bool run_fault(const struct fault *f, char **argv, struct taken *taken)
{
    int fd = -1, status = 0;
    struct victim v;
    char path[600];
    for (uint32_t r = 0; r < f->rank_count; r++) {
        snprintf(path, sizeof(path), "%s/rank-%05u.flight", argv[3], r);
        unlink(path);
    }
    const pid_t launcher = start(f, argv, &fd);
    if (launcher < 0 || !victim_open(&v, argv[3], f->victim, launcher))
        return false;
    while (victim_step(&v) < 3 && kill(victim_process(&v), 0) == 0)
        usleep(1000);
    usleep(f->wait_us);
    double told_ms = 0, ended_ms = 0;
    const double from_ms = now_ms();
    kill(victim_process(&v), f->signal);
    bool good = read_reports(f, fd, &told_ms, &ended_ms);
    victim_close(&v);
    close(fd);
    if (waitpid(launcher, &status, 0) != launcher || !WIFEXITED(status) || WEXITSTATUS(status) != STATUS_LOST) {
        fprintf(stderr, "launch ended with %d, not with status %d\n", status, STATUS_LOST);
        good = false;
    }
    taken->told_ms[taken->count] = told_ms - from_ms;
    taken->ended_ms[taken->count++] = ended_ms - from_ms;
    return good;
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void print_times(const char *name, double *times, uint32_t count)
{
    qsort(times, count, sizeof(*times), compare);
    printf("\"%s_median_ms\": %.1f, \"%s_worst_ms\": %.1f", name, count ? times[count / 2] : 0, name,
           count ? times[count - 1] : 0);
}

static void print_taken(const char *name, struct taken *taken)
{
    printf("\"%s\": {\"cases\": %u, ", name, taken->count);
    print_times("told", taken->told_ms, taken->count);
    printf(", ");
    print_times("ended", taken->ended_ms, taken->count);
    printf("}");
}

int main(int argc, char **argv)
{
    static struct taken ended, stopped;
    pid_t spinners[SPINNERS_MAX];
    if (argc != 7 || atoi(argv[5]) < 1 || atoi(argv[5]) > CASES_MAX || atoi(argv[6]) < 0 || atoi(argv[6]) > SPINNERS_MAX)
        return 2;
    const int cases = atoi(argv[5]), spinner_count = atoi(argv[6]);
    for (int i = 0; i < spinner_count; i++) {
        spinners[i] = fork();
        if (spinners[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint64_t n = 0;; n++) {
            }
        }
    }
    bool good = true;
    for (int i = 0; i < cases && good; i++) {
        const struct fault f = draw((uint32_t)i);
        good = run_fault(&f, argv, f.signal == SIGSTOP ? &stopped : &ended);
        if (!good)
            fprintf(stderr, "case %d: rank %u of %u, signal %d\n", i, f.victim, f.rank_count, f.signal);
    }
    for (int i = 0; i < spinner_count; i++) {
        kill(spinners[i], SIGKILL);
        waitpid(spinners[i], NULL, 0);
    }
    if (!good)
        return 1;
    printf("{\"spinners\": %d, ", spinner_count);
    print_taken("ended", &ended);
    printf(", ");
    print_taken("stopped", &stopped);
    printf("}\n");
    return 0;
}
