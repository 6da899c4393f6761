/* SPDX-License-Identifier: MIT
 *
 * Whether processes have left something behind: this process goes into namespaces of its own before it starts them, so
 * that whatever is found there afterwards, sockets, ports, shared memory, is theirs, and all orphans become its children.
 */
#ifndef EO_TESTS_FAULTS_LEFTOVERS_H
#define EO_TESTS_FAULTS_LEFTOVERS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline bool leftovers_write(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY);
    const bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

static inline bool leftovers_raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const bool good = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

/* Of a process with one thread. NULL, or why not: then nothing has changed that matters to what it starts. */
static inline const char *leftovers_enclose(void)
{
    const int spaces = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS;
    const uid_t user = geteuid();
    const gid_t group = getegid();
    char map[40];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (unshare(user == 0 ? spaces : CLONE_NEWUSER | spaces) != 0)
        return strerror(errno);
    if (user != 0) {
        snprintf(map, sizeof(map), "%u %u 1", user, user);
        if (!leftovers_write("/proc/self/uid_map", map) || !leftovers_write("/proc/self/setgroups", "deny"))
            return "no map of users";
        snprintf(map, sizeof(map), "%u %u 1", group, group);
        if (!leftovers_write("/proc/self/gid_map", map))
            return "no map of groups";
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", "/dev/shm", "tmpfs", 0, NULL) != 0)
        return strerror(errno);
    return leftovers_raise_loopback() ? NULL : strerror(errno);
}

/* The first line of a table of the kernel's behind its head; with `state`, one whose fourth word is that. */
static inline bool leftovers_in_table(const char *path, const char *state, char *found, size_t bytes)
{
    char line[400], word[16];
    FILE *file = fopen(path, "r");
    bool is_there = false;
    for (int i = 0; file && !is_there && fgets(line, sizeof(line), file); i++)
        is_there = i > 0 && (!state || (sscanf(line, "%*s %*s %*s %15s", word) == 1 && strcmp(word, state) == 0));
    if (is_there)
        snprintf(found, bytes, "%s: %.200s", path, line);
    if (file)
        fclose(file);
    return is_there;
}

static inline bool leftovers_in_folder(const char *path, char *found, size_t bytes)
{
    DIR *folder = opendir(path);
    bool is_there = false;
    for (struct dirent *entry; folder && !is_there && (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            is_there = true;
            snprintf(found, bytes, "%s/%.200s", path, entry->d_name);
        }
    if (folder)
        closedir(folder);
    return is_there;
}

/* After its children have been waited for. */
static inline bool leftovers_find(char *found, size_t bytes)
{
    static const char listens[] = "0A";
    if (waitpid(-1, NULL, WNOHANG) >= 0) {
        snprintf(found, bytes, "a process that belongs to nobody");
        return true;
    }
    return leftovers_in_table("/proc/self/net/unix", NULL, found, bytes) ||
           leftovers_in_table("/proc/self/net/tcp", listens, found, bytes) ||
           leftovers_in_table("/proc/self/net/tcp6", listens, found, bytes) ||
           leftovers_in_table("/proc/sysvipc/shm", NULL, found, bytes) || leftovers_in_folder("/dev/shm", found, bytes);
}

#endif
