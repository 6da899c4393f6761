/* SPDX-License-Identifier: MIT */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/random/case_rank.h"

static char folder[256];

void case_folder_make(void)
{
    const char *given = getenv("TMPDIR"), *base = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof(folder), "%s/evenodd-random-XXXXXX", given ? given : base);
    if (!mkdtemp(folder))
        eo_fatal("no folder %s", folder);
}

static int remove_entry_of_case(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void case_folder_remove(void)
{
    (void)nftw(folder, remove_entry_of_case, 16, FTW_DEPTH | FTW_PHYS);
}

eo_status case_save(struct case_rank *self)
{
    eo_saver *saver;
    eo_saver_report report;
    EO_TRY(eo_saver_create(&saver, eo_saver_params(.runtime = self->rt, .folder = folder, .in_place = self->world->end_step % 2)));
    eo_status status = eo_saver_begin(saver, NULL, 0);
    if (status >= 0)
        status = eo_saver_wait(saver, &report);
    if (status < 0)
        case_complain(self->world->verdict, "saved: rank %u: %s %s", self->rank, eo_status_text(status), eo_saver_error(saver));
    else if (!report.is_written || report.step != self->world->end_step)
        case_complain(self->world->verdict, "saved: rank %u: step %u is told of as %llu", self->rank, self->world->end_step,
                      (unsigned long long)report.step);
    eo_saver_destroy(&saver);
    return status;
}

eo_status case_load(struct case_rank *self)
{
    char path[sizeof(folder) + 64];
    uint64_t step;
    eo_checkpoint *checkpoint;
    EO_TRY(eo_checkpoint_find(path, sizeof(path), &step, folder, NULL));
    EO_TRY(eo_checkpoint_open(&checkpoint, path, NULL));
    const eo_status status = eo_checkpoint_load(checkpoint, self->rt);
    eo_checkpoint_close(&checkpoint);
    if (step != self->world->first_step)
        case_complain(self->world->verdict, "loaded: step %llu, not %u", (unsigned long long)step, self->world->first_step);
    return status;
}
