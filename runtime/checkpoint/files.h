/* SPDX-License-Identifier: MIT
 *
 * A checkpoint's folder on the disk.
 *
 *     FOLDER/step-000000000120.new/    while it is written: rank-00000 ... of each rank
 *     FOLDER/step-000000000120/        when all files and the manifest are on the disk
 *
 * The manifest is text, a word and its value a line; the last line is a checksum of all before it.
 *
 * No function here touches a device or a runtime, and none but those that list folders allocates: they run on the
 * saver's thread. What fails is told as a text that names the file, the reason and what to do.
 */
#ifndef EO_RUNTIME_CHECKPOINT_FILES_H
#define EO_RUNTIME_CHECKPOINT_FILES_H

#include "runtime/checkpoint/format.h"

struct checkpoint_error {
    char text[512];
};

/* Always EO_ERR_IO; `number` is errno, or 0. */
eo_status eo_checkpoint_io_error(struct checkpoint_error *error, int number, const char *format, ...)
    EO_PRINTF(3, 4);

/* The same for a file that cannot be opened or read; EO_ERR_DEVICE where the reason is not in the file. */
eo_status eo_checkpoint_unreadable(struct checkpoint_error *error, int number, const char *path);

/* "FOLDER/step-000000000120" and what is given behind it. EO_ERR_IO: too long. */
EO_NODISCARD eo_status eo_checkpoint_path(char path[CHECKPOINT_PATH_MAX], const char *folder, uint64_t step,
                                          const char *suffix, struct checkpoint_error *error);
void eo_checkpoint_file_name(char name[EO_CHECKPOINT_FILE_MAX], uint32_t rank);

/* -- writing -------------------------------------------------------------------------------------------------------*/

/* EO_ERR_IO: there is something of that step's name. */
EO_NODISCARD eo_status eo_checkpoint_check_free(const char *folder, uint64_t step, struct checkpoint_error *error);

/* Bytes of a section from `at` on, at most CHECKPOINT_PIECE of them, at an aligned address, padded with zeros. `piece`
 * is aligned memory of that size that may be used for it. NULL: `error` says why not. */
enum { CHECKPOINT_PIECE = 4 * CHECKPOINT_CHUNK };
typedef const void *(*checkpoint_source)(void *user, const struct checkpoint_section *section, uint64_t at,
                                         uint64_t bytes, void *piece, struct checkpoint_error *error);

/* Whether what is in it is on the disk, or the file system has no such call, as some of networks and in user space. */
bool eo_checkpoint_sync(int file);
/* Makes it if it is not there, and then brings its name to the disk. */
EO_NODISCARD eo_status eo_checkpoint_make_folder(const char *path, struct checkpoint_error *error);
EO_NODISCARD eo_status eo_checkpoint_sync_folder(const char *path, struct checkpoint_error *error);
/* EO_ERR_INVALID: it is there, and nothing can be made in it, or it cannot be read (and so not be synced). */
EO_NODISCARD eo_status eo_checkpoint_check_writable(const char *path, struct checkpoint_error *error);

/* A new file in the place of whatever had its name: what others put there, a pipe or a link, is neither waited for nor
 * written through. -1: errno says why. */
int eo_checkpoint_create(const char *path, int more_flags);

/*
 * Makes FOLDER, and keeps other runs from writing there until the lock is given back. EO_ERR_INVALID: another run has it,
 * FOLDER/.lock is no file, or the folder cannot be made or written to. EO_OK with *out -1: it cannot be locked, which is logged
 * as a warning.
 */
EO_NODISCARD eo_status eo_checkpoint_lock(int *out, const char *folder, const eo_log *log,
                                          struct checkpoint_error *error);
/*
 * Before something is written or removed there again: locks anew where FOLDER was moved or .lock removed since. EO_ERR_IO:
 * another run has the folder, or it cannot be locked; *lock is CHECKPOINT_LOCK_LOST then, and the next call tries again.
 */
enum { CHECKPOINT_LOCK_LOST = -2 };
EO_NODISCARD eo_status eo_checkpoint_keep_lock(int *lock, const char *folder, struct checkpoint_error *error);
/* For a rank without the lock. EO_ERR_IO: it names another run than `owner`, which is taken from it where it is "". */
enum { CHECKPOINT_OWNER_BYTES = 128 };
EO_NODISCARD eo_status eo_checkpoint_same_owner(char owner[CHECKPOINT_OWNER_BYTES], const char *folder,
                                                struct checkpoint_error *error);
void eo_checkpoint_unlock(int file);
/* Of a folder that was made by locking it: with its lock, where nothing else is in it. */
void eo_checkpoint_remove_made(const char *folder);

/* Makes FOLDER, the folder of the step in it, and writes a rank's file: sections, then the head with all checksums. It
 * is on the disk when this returns; after a failure it is removed. */
EO_NODISCARD eo_status eo_checkpoint_write_file(const char *folder, const struct checkpoint_tables *tables,
                                                checkpoint_source source, void *user, void *piece,
                                                struct checkpoint_error *error);

/* All files are there: looks at their heads, writes the manifest, gives the folder its name, removes what is older than
 * the `keep` newest ones (0: nothing) and what was left unfinished. `error` after EO_OK: a warning about what stays, or "". */
EO_NODISCARD eo_status eo_checkpoint_commit(const char *folder, const struct checkpoint_tables *tables, uint32_t keep,
                                            struct checkpoint_error *error);
/* The highest step of a whole checkpoint there; 0: none, or the folder cannot be listed. */
uint64_t eo_checkpoint_latest(const char *folder);
/* Removes what was begun. */
void eo_checkpoint_discard(const char *folder, uint64_t step);

/* -- reading -------------------------------------------------------------------------------------------------------*/

struct checkpoint_manifest_file {
    char name[EO_CHECKPOINT_FILE_MAX];
    uint64_t bytes, head_hash;
};

struct checkpoint_manifest {
    uint64_t step;
    uint32_t rank_count;
    struct checkpoint_manifest_file *files; /* by rank */
};

/* EO_ERR_IO: not there, cut off or damaged; EO_ERR_UNSUPPORTED: of another version. */
EO_NODISCARD eo_status eo_checkpoint_read_manifest(struct checkpoint_manifest *out, const char *path,
                                                   struct checkpoint_error *error);

/* Reads and checks a file's head against what it says of itself: sums, orders, bounds, the size of the file. */
EO_NODISCARD eo_status eo_checkpoint_read_head(struct checkpoint_tables *out, const char *path,
                                               struct checkpoint_error *error);

/* Exactly `bytes` from `offset` on. */
EO_NODISCARD eo_status eo_checkpoint_read_at(int file, void *data, uint64_t bytes, uint64_t offset, const char *path,
                                             struct checkpoint_error *error);

/* The folders that have the name of a checkpoint: calls back for each, in no order. One without a manifest is damaged, or
 * was being removed. EO_IN_PROGRESS: no such folder. */
EO_NODISCARD eo_status eo_checkpoint_list(const char *folder,
                                          void (*found)(void *user, uint64_t step, bool has_manifest), void *user,
                                          struct checkpoint_error *error);

#endif
