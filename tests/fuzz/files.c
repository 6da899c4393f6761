/* SPDX-License-Identifier: MIT */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder_path[256];
static pid_t folder_owner;

bool fuzz_taken(eo_status status, const char *why)
{
    FUZZ_HOLDS(status >= 0 || !why || why[0]);
    FUZZ_HOLDS(status != EO_ERR_NO_MEMORY);
    return status >= 0;
}

/* ---- the folder ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    return place->level == 0 ? 0 : remove(path);
}

void fuzz_clear(void)
{
    FUZZ_HOLDS(nftw(fuzz_folder(), remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

static void remove_folder_at_end(void)
{
    if (getpid() != folder_owner)
        return;
    (void)nftw(folder_path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    (void)rmdir(folder_path);
}

const char *fuzz_folder(void)
{
    if (folder_path[0])
        return folder_path;
    const char *given = getenv("TMPDIR");
    const char *place = given && given[0] ? given : access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    FUZZ_HOLDS(strlen(place) < sizeof(folder_path) - 32);
    snprintf(folder_path, sizeof(folder_path), "%s/evenodd-fuzz-XXXXXX", place);
    FUZZ_HOLDS(mkdtemp(folder_path) != NULL);
    folder_owner = getpid();
    FUZZ_HOLDS(atexit(remove_folder_at_end) == 0);
    return folder_path;
}

static bool make_folders(char *path)
{
    for (char *slash = strchr(path + strlen(fuzz_folder()) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool good = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!good)
            return false;
    }
    return true;
}

const char *fuzz_file(const char *name, const void *data, size_t bytes)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    FUZZ_HOLDS((size_t)snprintf(path, sizeof(paths[0]), "%s/%s", fuzz_folder(), name) < sizeof(paths[0]));
    FUZZ_HOLDS(make_folders(path));
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_HOLDS(file >= 0);
    FUZZ_HOLDS(write(file, data, bytes) == (ssize_t)bytes);
    close(file);
    return path;
}

/* ---- parts ---- */

bool fuzz_next_part(struct fuzz_part *rest, struct fuzz_part *part)
{
    static const char border[] = "\n====\n";
    if (!rest->data)
        return false;
    const uint8_t *end = memmem(rest->data, rest->bytes, border, sizeof(border) - 1);
    *part = (struct fuzz_part){rest->data, end ? (size_t)(end - rest->data) : rest->bytes};
    const size_t used = part->bytes + (end ? sizeof(border) - 1 : 0);
    *rest = (struct fuzz_part){end ? rest->data + used : NULL, rest->bytes - used};
    return true;
}

char *fuzz_text(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);
    FUZZ_HOLDS(text != NULL);
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}
