/* SPDX-License-Identifier: MIT
 *
 * Runs a program, and looks again and again at what the page cache holds of each unnamed file that it has open. Writes the
 * most that it held of one, the most that one has, and how often it looked: "cached BYTES of BYTES, N looks". Ends as the program does.
 * usage: cached RESULT PROGRAM [ARGUMENTS]
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    uint64_t cached, bytes, looks;
} most;

static uint64_t cached_of(int fd, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    uint64_t count = 0;
    unsigned char *held = malloc(pages);
    void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (held && memory != MAP_FAILED && mincore(memory, bytes, held) == 0)
        for (uint64_t i = 0; i < pages; i++)
            count += held[i] & 1;
    if (memory != MAP_FAILED)
        munmap(memory, bytes);
    free(held);
    return count * page;
}

static void look_at(int folder, const char *name)
{
    char target[4096];
    struct stat info;
    const ssize_t length = readlinkat(folder, name, target, sizeof(target) - 1);
    if (length <= 0)
        return;
    target[length] = '\0';
    if (!strstr(target, " (deleted)") || strncmp(target, "/memfd:", 7) == 0 || strncmp(target, "/dev/", 5) == 0)
        return;
    const int fd = openat(folder, name, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        const uint64_t cached = cached_of(fd, (uint64_t)info.st_size);
        most.cached = cached > most.cached ? cached : most.cached;
        most.bytes = (uint64_t)info.st_size > most.bytes ? (uint64_t)info.st_size : most.bytes;
        most.looks++;
    }
    if (fd >= 0)
        close(fd);
}

static void look(pid_t process)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)process);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        look_at(dirfd(folder), entry->d_name);
    if (folder)
        closedir(folder);
}

int main(int argc, char **argv)
{
    int status = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: cached RESULT PROGRAM [ARGUMENTS]\n");
        return 126;
    }
    const pid_t process = fork();
    if (process == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    while (process > 0 && waitpid(process, &status, WNOHANG) == 0) {
        look(process);
        usleep(500);
    }
    FILE *result = fopen(argv[1], "w");
    if (result) {
        fprintf(result, "cached %llu of %llu, %llu looks\n", (unsigned long long)most.cached, (unsigned long long)most.bytes,
                (unsigned long long)most.looks);
        fclose(result);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
