/* SPDX-License-Identifier: MIT
 *
 * Saves beside training: they change no bit of it; and those that are forgotten, begun by some ranks alone or never waited for.
 */
#include <stdio.h>
#include <string.h>

#include "saved_training.h"

struct story {
    char folder[256];
    uint64_t hash; /* of the weights at the end, rank 0's */
    uint64_t step; /* until which a run goes */
};

/* A saver that logs where the cases look. */
static eo_saver *saver_of(struct saved_rank *self, uint32_t keep)
{
    const struct story *story = self->shared;
    eo_saver *saver = NULL;
    CHECK_THAT(eo_saver_create(&saver, eo_saver_params(.runtime = self->runtime, .folder = story->folder, .keep = keep,
                                                       .log = self->log)) == EO_OK);
    return saver;
}

/* -- saves that end --------------------------------------------------------------------------------------------------*/

static void saves_beside(struct saved_rank *self)
{
    struct story *story = self->shared;
    eo_saver_report report;
    saved_initialise(self);
    eo_saver *saver = saver_of(self, 2);
    uint32_t begun = 0, written = 0;
    for (uint32_t step = 0; step < 40; step++) {
        const eo_status status = saved_step_with(self, saver, &report);
        CHECK_THAT(status == EO_OK || status == EO_IN_PROGRESS);
        written += report.is_written;
        if (status == EO_OK && begun < 5) {
            CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
            CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_IN_PROGRESS);
            begun++;
        }
        if (step == 20) { /* a second one begins after this, however slow the disk is */
            CHECK_THAT(eo_saver_wait(saver, &report) == EO_OK);
            written += report.is_written;
        }
    }
    CHECK_THAT(eo_saver_wait(saver, &report) == EO_OK);
    written += report.is_written;
    CHECK_THAT(written == begun && begun > 1);
    eo_saver_destroy(&saver);
    const uint64_t hash = saved_hash(self);
    if (self->rank == 0)
        story->hash = hash;
}

static void saves_nothing(struct saved_rank *self)
{
    struct story *story = self->shared;
    saved_initialise(self);
    saved_steps(self, 40);
    CHECK_THAT(saved_hash(self) == story->hash);
}

static void beside_training(void)
{
    struct story story = {.hash = 0};
    const struct saved_settings settings = {.ranks = 3};
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&settings, saves_beside, &story);
    (void)saved_run(&settings, saves_nothing, &story);
    CHECK_THAT(saved_count_entries(story.folder, "") == 2 && saved_count_entries(story.folder, ".new") == 0);
    saved_folder_remove(story.folder);
    tap_case("saves beside training change no bit of it, end in order, and the newest two stay");
}

static const char *const forgotten[] = {"eo_saver_value was not called", "eo_saver_poll was not called",
                                        "eo_saver_poll was given other sums"};

/* Saves that are not carried on as they should be; each ends by eo_saver_wait all the same. */
static void saves_forgotten(struct saved_rank *self)
{
    eo_saver_report report;
    double meet = 0;
    saved_initialise(self);
    eo_saver *saver = saver_of(self, 0);
    CHECK_THAT(eo_saver_begin(saver, NULL, 7) == EO_ERR_INVALID);
    CHECK_THAT(strstr(eo_runtime_error(self->runtime), "7 trainer's bytes, but blob is NULL"));
    for (uint64_t way = 0; way < 3; way++) {
        const uint64_t begun = 1 + 8 * way;
        saved_steps(self, begun);
        CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
        if (self->rank == 0)
            saved_log_clear();
        CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
        CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
        for (uint64_t step = begun; step < begun + 5; step++) {
            if (way > 0)
                (void)eo_saver_value(saver);
            saved_steps(self, step + 1);
            if (way > 1)
                CHECK_THAT(eo_saver_poll(saver, 3, &report) == EO_IN_PROGRESS);
            CHECK_THAT(step > begun + 2 ||
                       (eo_saver_begin(saver, NULL, 0) == EO_IN_PROGRESS && !strstr(saved_log_text(), "not over")));
        }
        CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_IN_PROGRESS && strstr(saved_log_text(), forgotten[way]));
        CHECK_THAT(eo_saver_wait(saver, &report) == EO_OK && report.is_written);
    }
    eo_runtime *too_early = self->runtime;
    eo_runtime_destroy(&too_early);
    CHECK_THAT(too_early && strstr(saved_log_text(), "savers of this runtime are left (1)"));
    eo_saver_destroy(&saver);
}

static void forgotten_calls(void)
{
    struct story story = {.hash = 0};
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&(struct saved_settings){.ranks = 1}, saves_forgotten, &story);
    saved_folder_remove(story.folder);
    tap_case("a save whose value or sum is forgotten says so at the next begin, once some steps have ended");
}

/* -- saves that cannot end as they should --------------------------------------------------------------------------*/

/* Rank 0 alone, another one alone, and one a step after the others, at steps whose numbers are told apart or not. */
static void saves_alone(struct saved_rank *self)
{
    static const struct {
        uint64_t step;
        uint32_t first, last, late; /* ranks that begin; the one that does so a step later */
        const char *text;
    } cases[] = {{1, 0, 0, 9, "1 of 3 ranks began this save: call eo_saver_begin on all ranks"},
                 {600, 2, 2, 9, "rank 0 did not begin this save: call eo_saver_begin on all ranks"},
                 {1023, 1, 2, 9, "rank 0 did not begin"},
                 {1400, 0, 2, 1, "2 of 3 ranks began"},
                 {1800, 0, 2, 0, "rank 0 did not begin"}};
    struct story *story = self->shared;
    eo_saver_report report;
    double meet = 0;
    saved_initialise(self);
    eo_saver *saver = saver_of(self, 0);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const bool begins = self->rank >= cases[c].first && self->rank <= cases[c].last, is_late = self->rank == cases[c].late;
        eo_status status = EO_OK;
        saved_steps(self, cases[c].step);
        for (int steps = 0; steps < 300; steps++) {
            if (begins && steps == is_late)
                CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK);
            const eo_status now = saved_step_with(self, saver, &report);
            status = now < 0 ? now : status;
            CHECK_THAT(begins || now == EO_OK);
        }
        CHECK_THAT(status == (begins ? EO_ERR_IO : EO_OK) && saved_step_with(self, saver, &report) == EO_OK);
        CHECK_THAT(!begins || is_late || strstr(eo_saver_error(saver), cases[c].text));
        CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
        CHECK_THAT(eo_saver_begin(saver, NULL, 0) == EO_OK && eo_saver_wait(saver, &report) == EO_OK && report.is_written);
        CHECK_THAT(saved_count_entries(story->folder, ".new") == 0);
        CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK);
    }
    eo_saver_destroy(&saver);
}

static void begun_alone(void)
{
    struct story story = {.hash = 0};
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&(struct saved_settings){.ranks = 3}, saves_alone, &story);
    saved_folder_remove(story.folder);
    tap_case("a save that some ranks did not begin, or began a step later, fails on the others, and the next one is good");
}

static void saves_at_the_end(struct saved_rank *self)
{
    struct story *story = self->shared;
    eo_saver_report report;
    double sum, meet = 0;
    saved_initialise(self);
    saved_steps(self, 1);
    eo_saver *saver = saver_of(self, 0);
    if (self->rank == 0)
        saved_log_clear();
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_OK && eo_saver_begin(saver, NULL, 0) == EO_OK);
    if (story->step == 0) { /* dropped */
        eo_saver_destroy(&saver);
        CHECK_THAT(strstr(saved_log_text(), "the save of step 1 is not over, and is dropped: call eo_saver_wait"));
        return;
    }
    self->breaks = true;
    CHECK_THAT(saved_step(self, eo_saver_value(saver), &sum) == EO_ERR_NOT_FINITE);
    CHECK_THAT(eo_saver_wait(saver, &report) == EO_OK && report.is_written && report.step == 1);
    CHECK_THAT(eo_sum(self->runtime, &meet, 1) == EO_ERR_INVALID); /* for the save alone */
    eo_saver_destroy(&saver);
    CHECK_THAT(!strstr(saved_log_text(), "is dropped"));
}

static void ended_late(void)
{
    for (uint64_t step = 0; step < 2; step++) {
        struct story story = {.step = step};
        saved_folder_make(story.folder, sizeof(story.folder));
        (void)saved_run(&(struct saved_settings){.ranks = 2}, saves_at_the_end, &story);
        CHECK_THAT(saved_count_entries(story.folder, "") == 1 && saved_count_entries(story.folder, ".new") == 1 - step);
        saved_folder_remove(story.folder);
    }
    tap_case("a save that nobody waits for is dropped with a word; after a step that stopped it can still be waited for");
}

static void saves_until(struct saved_rank *self)
{
    struct story *story = self->shared;
    saved_initialise(self);
    saved_steps(self, story->step);
    CHECK_THAT(saved_save(self, story->folder, 0, NULL, 0) == EO_OK);
}

static void beside_later(void)
{
    struct story story = {.step = 3};
    saved_folder_make(story.folder, sizeof(story.folder));
    (void)saved_run(&(struct saved_settings){.ranks = 2}, saves_until, &story);
    saved_log_clear();
    story.step = 2;
    (void)saved_run(&(struct saved_settings){.ranks = 2}, saves_until, &story);
    CHECK_THAT(strstr(saved_log_text(), "has one of step 3, of another run or a resumed one"));
    saved_log_clear();
    story.step = 4;
    (void)saved_run(&(struct saved_settings){.ranks = 2}, saves_until, &story);
    CHECK_THAT(!strstr(saved_log_text(), "another run"));
    saved_folder_remove(story.folder);
    tap_case("a save before a later one of another run says which of them is found");
}

void checkpoint_beside_cases(void)
{
    beside_training();
    forgotten_calls();
    begun_alone();
    ended_late();
    beside_later();
}
