/* SPDX-License-Identifier: MIT
 *
 * Not a test: how long ranks that are processes take from launch to their first step. Read from their flight recorders.
 * usage: bench_start LAUNCH TRAIN FOLDER TEXT RANKS MODEL
 */
#include <evenodd/flight_recorder.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    int status;
    const int64_t begin_ns = wall_ns();
    const pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(1);
        execl(argv[1], argv[1], "-n", argv[5], argv[2], "--model", argv[6], "--steps", "1", "--threads", "1", "--batch", "1",
              "--seq", "16", "--peak-seconds", "0", "--sample", "0", "--text", argv[4], "--flight-recorder", argv[3], (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return 1;
    const double all_s = (double)(wall_ns() - begin_ns) * 1e-9;
    double first_s = 0, last_s = 0;
    for (int r = 0; r < atoi(argv[5]); r++) {
        char path[4096];
        eo_flight_log *flight;
        eo_flight_entry entry;
        snprintf(path, sizeof(path), "%s/rank-%05d.flight", argv[3], r);
        if (eo_flight_log_open(&flight, path, NULL) < 0)
            return 1;
        const eo_flight_info info = eo_flight_log_info(flight);
        if (!eo_flight_log_entry(flight, info.first, &entry))
            return 1;
        const double from_s = (double)((int64_t)entry.issued_ns + info.clock_ns - begin_ns) * 1e-9;
        first_s = r == 0 || from_s < first_s ? from_s : first_s;
        last_s = from_s > last_s ? from_s : last_s;
        eo_flight_log_close(&flight);
    }
    printf("%s processes, %s: the first rank's first step begins after %.2f s, the last one's after %.2f s; all over after "
           "%.2f s\n", argv[5], argv[6], first_s, last_s, all_s);
    return 0;
}
