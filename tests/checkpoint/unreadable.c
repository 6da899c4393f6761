/* SPDX-License-Identifier: MIT
 *
 * Goal: a folder that cannot be read now is never taken for one without checkpoints, and nothing of it is removed.
 * Method: readdir fails in the linker's place of it; links to names that no file system takes can be neither found nor
 *         ruled out.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "saved_training.h"

static const struct saved_settings alone = {.ranks = 1};
static char folder[256];
static bool reading_fails;

struct dirent *__real_readdir64(DIR *list);
struct dirent *__wrap_readdir64(DIR *list);

struct dirent *__wrap_readdir64(DIR *list)
{
    if (!reading_fails)
        return __real_readdir64(list);
    errno = EIO;
    return NULL;
}

static void saves_two_steps(struct saved_rank *self)
{
    saved_initialise(self);
    for (uint64_t step = 1; step <= 2; step++) {
        saved_steps(self, step);
        CHECK_THAT(saved_save(self, folder, 0, NULL, 0) == EO_OK);
    }
}

static void saves_a_third(struct saved_rank *self)
{
    saved_initialise(self);
    saved_steps(self, 3);
    CHECK_THAT(saved_save(self, folder, 1, NULL, 0) == EO_OK);
}

static eo_status look(uint64_t before)
{
    char path[4096];
    saved_log_clear();
    return before == UINT64_MAX ? eo_checkpoint_find(path, sizeof(path), NULL, folder, &saved_log)
                                : eo_checkpoint_find_before(path, sizeof(path), &before, folder, &saved_log);
}

static void reading_ends_early(void)
{
    reading_fails = true;
    CHECK_THAT(look(UINT64_MAX) == EO_ERR_IO && strstr(saved_log_text(), "Input/output error"));
    CHECK_THAT(look(3) == EO_ERR_IO && strstr(saved_log_text(), folder));
    reading_fails = false;
    CHECK_THAT(look(UINT64_MAX) == EO_OK && look(1) == EO_IN_PROGRESS);
}

static void link_to_nowhere(const char *name)
{
    char path[400], far_too_long[300];
    memset(far_too_long, 'x', sizeof(far_too_long) - 1);
    far_too_long[sizeof(far_too_long) - 1] = '\0';
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    CHECK_THAT(symlink(far_too_long, path) == 0);
}

static bool is_there(const char *name)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void names_not_told(void)
{
    char manifest[400], aside[400], whole[300], path[4096];
    snprintf(whole, sizeof(whole), "%s/step-000000000002", folder);
    snprintf(manifest, sizeof(manifest), "%s/step-000000000002/manifest", folder);
    snprintf(aside, sizeof(aside), "%s/aside", folder);
    CHECK_THAT(rename(manifest, aside) == 0);
    link_to_nowhere("step-000000000002/manifest");
    CHECK_THAT(look(UINT64_MAX) == EO_ERR_IO && strstr(saved_log_text(), "step-000000000002"));
    CHECK_THAT(eo_checkpoint_find(path, sizeof(path), NULL, whole, &saved_log) == EO_ERR_IO);
    (void)saved_run(&alone, saves_a_third, NULL);
    CHECK_THAT(is_there("step-000000000001") && is_there("step-000000000002") && is_there("step-000000000003"));
    CHECK_THAT(rename(aside, manifest) == 0 && look(UINT64_MAX) == EO_OK);
    link_to_nowhere("step-000000000004");
    CHECK_THAT(look(UINT64_MAX) == EO_ERR_IO && strstr(saved_log_text(), "step-000000000004"));
}

void checkpoint_unreadable_cases(void)
{
    saved_folder_make(folder, sizeof(folder));
    (void)saved_run(&alone, saves_two_steps, NULL);
    reading_ends_early();
    tap_case("a folder whose reading fails is an error, not a folder without checkpoints");
    names_not_told();
    tap_case("a checkpoint that cannot be looked at is neither passed over nor removed by the next save");
    saved_folder_remove(folder);
}
