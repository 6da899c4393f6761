/* SPDX-License-Identifier: MIT
 *
 * Goal: a target takes every input of its corpus, with any compiler.
 * Method: each input in a process of its own, under the target's limits; what is wrong has the file's name. An empty
 *         corpus is a failure.
 * usage: fuzz_TARGET CORPUS...   (folders, or single files)
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tests/tap/tap.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* they take terabytes of address space */
enum { IS_SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif
#else
enum { IS_SANITIZED = 0 };
#endif

enum { START_MEGABYTES = 64 }; /* of a process that has done nothing yet */

/* A copy of exact size, so that a read past its end is seen. */
static uint8_t *read_input(const char *path, size_t *bytes)
{
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0)
        return NULL;
    *bytes = (size_t)info.st_size;
    uint8_t *data = malloc(*bytes ? *bytes : 1);
    const bool good = data && read(file, data, *bytes) == (ssize_t)*bytes;
    close(file);
    if (!good)
        free(data);
    return good ? data : NULL;
}

static void take_input(const char *path)
{
    size_t bytes = 0;
    const rlim_t room = (rlim_t)(fuzz_limits.megabytes + START_MEGABYTES) << 20;
    uint8_t *data = read_input(path, &bytes);
    if (!data)
        exit(1);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO);
    if (!IS_SANITIZED)
        setrlimit(RLIMIT_DATA, &(struct rlimit){room, room});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    alarm(fuzz_limits.seconds);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
    exit(0);
}

static bool replay_input(const char *path)
{
    int status = 0;
    struct rusage used;
    fuzz_clear();
    const pid_t child = fork();
    if (child == 0)
        take_input(path);
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        printf("# %s\n", strerror(errno));
        return false;
    }
    const long megabytes = used.ru_maxrss >> 10;
    if (WIFSIGNALED(status))
        printf("# ended by signal %d (%s)%s\n", WTERMSIG(status), strsignal(WTERMSIG(status)),
               WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
    else if (WEXITSTATUS(status))
        printf("# ended with status %d\n", WEXITSTATUS(status));
    else if (!IS_SANITIZED && megabytes > (long)fuzz_limits.megabytes + START_MEGABYTES)
        printf("# it took %ld MiB\n", megabytes);
    else
        return true;
    return false;
}

static void tell_input(const char *path)
{
    const char *slash = strrchr(path, '/');
    tap(replay_input(path), "%s", slash ? slash + 1 : path);
}

static int is_plain_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    (void)fuzz_folder(); /* one for all: it goes at the end, whatever becomes of them */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        struct dirent **entries = NULL;
        const int count = scandir(argv[i], &entries, is_plain_name, alphasort);
        if (count < 0)
            tell_input(argv[i]);
        for (int k = 0; k < count; k++) {
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s", argv[i], entries[k]->d_name);
            tell_input(path);
            free(entries[k]);
        }
        free(entries);
    }
    if (tap_program.count == 0)
        tap(false, "there is something to replay");
    return tap_end();
}
