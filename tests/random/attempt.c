/* SPDX-License-Identifier: MIT */
#include "tests/random/attempt.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

enum { SEEDS_A_PROCESS = 1000 };

/* What a child tells its parent. */
struct attempt_page {
    uint64_t held;
    struct case_outcome outcome;
};

/* One case, or seeds from `first`. The child's end: 0 when all held. */
static int try_in_child(const struct case_trial *trial, const struct random_case *c, uint64_t first, uint64_t count,
                        struct attempt_page *page)
{
    static struct random_case made;
    (void)setrlimit(RLIMIT_CORE, &(const struct rlimit){0, 0}); /* of crashes on the way to the smallest */
    for (uint64_t i = 0; i < count; i++) {
        if (!c)
            trial->make(&made, first + i);
        alarm(trial->seconds_max);
        if (!trial->holds(c ? c : &made, &page->outcome))
            return 0;
        page->held++;
    }
    alarm(0);
    return 0;
}

static uint64_t attempt(const struct case_trial *trial, const struct random_case *c, uint64_t first, uint64_t count,
                        struct case_outcome *out)
{
    struct attempt_page *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ended = 0;
    if (page == MAP_FAILED)
        eo_fatal("out of memory");
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0)
        eo_fatal("no process for a case");
    if (child == 0)
        exit(try_in_child(trial, c, first, count, page));
    (void)waitpid(child, &ended, 0);
    const uint64_t held = page->held;
    *out = page->outcome;
    munmap(page, sizeof(*page));
    if (WIFSIGNALED(ended) && WTERMSIG(ended) == SIGALRM)
        snprintf(out->text, sizeof(out->text), "hangs: not over after %u seconds", trial->seconds_max);
    else if (WIFSIGNALED(ended))
        snprintf(out->text, sizeof(out->text), "crashes: signal %d", WTERMSIG(ended));
    else if (WEXITSTATUS(ended) != 0)
        snprintf(out->text, sizeof(out->text), "crashes: exit status %d", WEXITSTATUS(ended));
    else
        return held;
    return held == count ? held - 1 : held; /* what is found at exit (leaks) is told of the last */
}

bool case_attempt(const struct case_trial *trial, const struct random_case *c, struct case_outcome *out)
{
    return attempt(trial, c, 0, 1, out) == 1;
}

uint64_t case_attempt_seeds(const struct case_trial *trial, uint64_t first, uint64_t count, struct case_outcome *out)
{
    uint64_t held = 0;
    while (held < count) {
        const uint64_t part = count - held < SEEDS_A_PROCESS ? count - held : SEEDS_A_PROCESS;
        const uint64_t more = attempt(trial, NULL, first + held, part, out);
        held += more;
        if (more < part)
            break;
    }
    return held;
}
