/* SPDX-License-Identifier: MIT
 *
 * The disk under tests of checkpoints: a folder, a file system of a test's own there, and what others have that this one has
 * not, by functions in the place of the C library's.
 */
#ifndef EO_TESTS_CHECKPOINT_DISK_H
#define EO_TESTS_CHECKPOINT_DISK_H

#include <stdatomic.h>
#include <sys/types.h>

#include "saved_training.h"

enum { CHILD_SKIPS = 77 };

extern char folder[256];
extern ino_t left_below; /* a folder of an overlayfs' lower layer */
extern bool has_no_fallocate, has_no_exchange, has_no_locks, has_layers, renames_slowly, loses_files, syncs_no_renames,
    syncs_no_second_save, keeps_old_names;
extern atomic_int sync_count; /* calls of fsync */

bool write_text_to(const char *path, const char *text);
void step_path(char *path, size_t bytes, uint64_t step, const char *suffix);
void clear_folder(void);

/* Runs a case in a process of its own, with a file system at the folder if it mounts. False: there is none for it. */
bool in_child(void (*body)(void), bool mounts);

#endif
