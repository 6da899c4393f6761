/* SPDX-License-Identifier: MIT */
#include "tools/shared/told.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXTS_MAX = 64, RANKS_MAX = 4096, SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* From the beginning; without a hash: none yet. */
struct told_text {
    _Atomic uint64_t hash;
    _Atomic uint32_t said, came[RANKS_MAX]; /* how often, in all and by each rank */
};

int tool_told_make(void)
{
    const int file = memfd_create("evenodd-told", MFD_ALLOW_SEALING);
    if (file >= 0 && (ftruncate(file, TEXTS_MAX * sizeof(struct told_text)) != 0 || fcntl(file, F_ADD_SEALS, SEALS) != 0)) {
        close(file);
        return -1;
    }
    return file;
}

void tool_told_name(int file)
{
    char text[64] = "0";
    struct stat heard;
    if (file >= 0 && fstat(STDERR_FILENO, &heard) == 0)
        snprintf(text, sizeof(text), "%d %ju %ju", file, (uintmax_t)heard.st_dev, (uintmax_t)heard.st_ino);
    setenv("EVENODD_TOLD", text, 1);
}

/* What the variable names may be another's file by now: only one of ours has these seals and this size. And who sends its
 * errors elsewhere than the others says all of them there. */
static struct told_text *find_texts(void)
{
    static struct told_text own[TEXTS_MAX], *_Atomic found;
    if (atomic_load(&found))
        return found;
    atomic_store(&found, own);
    const char *text = getenv("EVENODD_TOLD");
    int file = -1;
    uintmax_t device = 0, inode = 0;
    struct stat info, heard;
    if (!text || sscanf(text, "%d %ju %ju", &file, &device, &inode) != 3 || file <= STDERR_FILENO)
        return own;
    const int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & (SEALS | F_SEAL_WRITE)) != SEALS || fstat(file, &info) != 0 || info.st_size != sizeof(own))
        return own;
    if (fstat(STDERR_FILENO, &heard) != 0 || heard.st_dev != device || heard.st_ino != inode)
        return own;
    void *shared = mmap(NULL, sizeof(own), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); /* until the process ends */
    if (shared != MAP_FAILED)
        atomic_store(&found, shared);
    return found;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash ? hash : 1;
}

/* Whether none has come with it as often as this rank now. */
static bool comes_first(struct told_text *told, uint32_t rank)
{
    const uint32_t times = atomic_fetch_add(&told->came[rank], 1) + 1;
    uint32_t said = atomic_load(&told->said);
    while (said < times)
        if (atomic_compare_exchange_weak(&told->said, &said, times))
            return true;
    return false;
}

uint32_t tool_told_rank(void)
{
    const char *rank = getenv("EVENODD_RANK");
    return rank ? (uint32_t)strtoul(rank, NULL, 10) : 0;
}

bool tool_told_never(const char *text)
{
    static _Atomic uint64_t said[TEXTS_MAX];
    const uint64_t hash = hash_text(text);
    for (int i = 0; i < TEXTS_MAX; i++) {
        uint64_t before = 0;
        if (atomic_compare_exchange_strong(&said[i], &before, hash))
            return tool_told_first(tool_told_rank(), text);
        if (before == hash)
            return false;
    }
    return true;
}

bool tool_told_first(uint32_t rank, const char *text)
{
    struct pollfd standard_error = {STDERR_FILENO, POLLOUT, 0};
    const bool is_heard = poll(&standard_error, 1, 0) == 1 && (standard_error.revents & POLLOUT);
    struct told_text *texts = find_texts();
    const uint64_t hash = hash_text(text);
    for (int i = 0; i < TEXTS_MAX && is_heard && rank < RANKS_MAX; i++) {
        uint64_t before = 0;
        if (atomic_compare_exchange_strong(&texts[i].hash, &before, hash) || before == hash)
            return comes_first(&texts[i], rank);
    }
    return true;
}
