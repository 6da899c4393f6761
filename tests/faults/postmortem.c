/* SPDX-License-Identifier: MIT
 *
 * Goal: postmortem names the operation that a rank has not entered, where no end of a collective is known (GPUs) and where a
 * copy to disk is under way too; what each rank did last, where ranks first differ, and the ranks without a file. Files of
 * strangers neither keep it busy nor command the terminal.
 * Method: flight recorders of two ranks with entries of the test's own, and the program's words.
 * usage: postmortem POSTMORTEM
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <evenodd/plan.h>

#include "runtime/flight/recorder.h"
#include "tests/tap/tap.h"

enum { RANKS = 2, ENTRIES = 64 };

static char folder[] = "/tmp/postmortem-XXXXXX", told[4096];
static const char *program;

struct recorded {
    eo_operation_kind kind;
    bool ended;
};

static const char *const names[] = {[EO_OP_ALL_GATHER] = "all-gather of block.0",
                                    [EO_OP_FORWARD] = "forward of block.0",
                                    [EO_OP_BACKWARD] = "backward of block.0",
                                    [EO_OP_REDUCE_SCATTER] = "reduce-scatter of block.0",
                                    [EO_OP_FETCH] = "fetch of block.0",
                                    [EO_OP_ALL_REDUCE] = "all-reduce of \x1b[31m\xc2\x9b"
                                                         "31m\xc3\xa4",
                                    [EO_OP_KIND_COUNT] = NULL};

/* All of step 1, up to an entry without a kind (EO_OP_KIND_COUNT). */
static void record_of(uint32_t rank, uint32_t rank_count, uint64_t steps, const struct recorded *entries)
{
    char path[64];
    eo_flight_recorder *recorder;
    struct eo_timeline ring;
    snprintf(path, sizeof(path), "%s/%u.flight", folder, rank);
    if (eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.path = path, .rank = rank, .rank_count = rank_count)) <
            0 ||
        eo_flight_recorder_begin(recorder, &ring, ENTRIES, names, EO_OP_KIND_COUNT) < 0)
        exit(1);
    for (uint32_t i = 0; entries[i].kind != EO_OP_KIND_COUNT; i++) {
        const bool on_compute = entries[i].kind == EO_OP_FORWARD || entries[i].kind == EO_OP_BACKWARD;
        *eo_timeline_add(&ring) = (struct eo_timeline_entry){
            .kind = entries[i].kind, .name_index = entries[i].kind, .queue = on_compute ? EO_QUEUE_COMPUTE : 1,
            .span = {.ready_ns = i + 1, .start_ns = entries[i].ended ? i + 1 : 0, .end_ns = entries[i].ended ? i + 2 : 0}};
        eo_flight_recorder_mark(recorder, entries[i].kind, 0, ring.count);
    }
    eo_flight_recorder_finish(recorder, steps);
    eo_flight_recorder_destroy(&recorder);
    eo_timeline_fini(&ring);
}

/* A sparse file of one rank of many, with as many operations as room. */
static void record_sparse(void)
{
    enum { SPARSE_ENTRIES = 1000000 };
    char path[64];
    const struct flight_head head = {.magic = FLIGHT_MAGIC,
                                     .version = FLIGHT_VERSION,
                                     .entry_bytes = sizeof(struct eo_timeline_entry),
                                     .rank_count = 65536,
                                     .host = "h",
                                     .name_count = 1,
                                     .capacity = SPARSE_ENTRIES,
                                     .count = SPARSE_ENTRIES,
                                     .note = FLIGHT_NO_NAME,
                                     .run = 1,
                                     .made_ns = INT64_MAX};
    snprintf(path, sizeof(path), "%s/0.flight", folder);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(&head, sizeof(head), 1, file) != 1 || fflush(file) != 0 ||
        ftruncate(fileno(file),
                  FLIGHT_PAGE + (FLIGHT_NOTES + 1) * FLIGHT_NAME_BYTES + (off_t)SPARSE_ENTRIES * (off_t)head.entry_bytes) != 0)
        exit(1);
    fclose(file);
}

static bool tells(const char *line)
{
    char command[600];
    snprintf(command, sizeof(command), "timeout 20 '%s' '%s' 2>&1", program, folder);
    FILE *output = popen(command, "r");
    told[output ? fread(told, 1, sizeof(told) - 1, output) : 0] = '\0';
    const bool good = output && pclose(output) == 0 && strstr(told, line);
    for (const char *at = told; !good && *at; at += strcspn(at, "\n") + 1)
        printf("# %.*s\n", (int)strcspn(at, "\n"), at);
    return good;
}

/* The line about the missing rank, as the program prints it. */
static bool says(const struct recorded *a, const struct recorded *b, const char *line)
{
    record_of(0, RANKS, 0, a);
    record_of(1, RANKS, 0, b);
    return tells(line);
}

static void unlink_file(uint32_t rank)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%u.flight", folder, rank);
    unlink(path);
}

#define END {EO_OP_KIND_COUNT, false}

int main(int argc, char **argv)
{
    if (argc != 2 || !mkdtemp(folder))
        return 1;
    program = argv[1];
    const struct recorded
        far[] = {{EO_OP_ALL_GATHER, true}, {EO_OP_FORWARD, true}, {EO_OP_BACKWARD, true}, {EO_OP_REDUCE_SCATTER, false}, END},
        near[] = {{EO_OP_ALL_GATHER, true}, {EO_OP_FORWARD, true}, END};
    tap(says(far, near, "rank 1 has not entered reduce-scatter of block.0 of step 1; rank 0 is in it\n"),
        "a rank that has not come to a collective is named, and it, and who is in it");
    tap(tells("\noperations 0 ... 1 are the same on all ranks\n") && !strstr(told, "no file of"),
        "so far the ranks agree, and all are there");
    tap(tells("): last step 1, reduce-scatter of block.0, begun at ") &&
            tells("): last step 1, forward of block.0, done, begun at "),
        "each rank's last operation is told, and whether it is done");
    const struct recorded other[] = {{EO_OP_ALL_GATHER, true}, {EO_OP_FETCH, true}, {EO_OP_BACKWARD, true}, END};
    tap(says(far, other,
             "\nranks first differ at operation 1: rank 0 has step 1, forward of block.0; rank 1 has step 1, "
             "fetch of block.0\n"),
        "ranks that did different things are told");
    const struct recorded
        gpu_far[] = {{EO_OP_ALL_GATHER, false}, {EO_OP_FORWARD, false}, {EO_OP_BACKWARD, false}, {EO_OP_REDUCE_SCATTER, false}, END},
        gpu_near[] = {{EO_OP_ALL_GATHER, false}, {EO_OP_FORWARD, false}, END};
    tap(says(gpu_far, gpu_near, "rank 1 has not entered reduce-scatter of block.0 of step 1; rank 0 has entered it\n"
                                "all ranks have entered all-gather of block.0 of step 1; ranks 0, 1 have no end of it yet\n"),
        "without ends, as in a GPU's step, too: by what was issued");
    tap(says(gpu_near, gpu_near, "\nall ranks have entered all-gather of block.0 of step 1; ranks 0, 1 have no end of it yet\n"),
        "where all have issued the same nobody is named");
    const struct recorded
        disk_far[] = {{EO_OP_ALL_GATHER, true}, {EO_OP_FETCH, true}, {EO_OP_REDUCE_SCATTER, false}, END},
        disk_near[] = {{EO_OP_ALL_GATHER, true}, {EO_OP_FETCH, false}, END};
    tap(says(disk_far, disk_near, "rank 1 has not entered reduce-scatter of block.0 of step 1; rank 0 is in it\n"),
        "a rank's open copy from disk is none that others take part in");
    const struct recorded open_gather[] = {{EO_OP_ALL_GATHER, false}, {EO_OP_FORWARD, true}, END};
    tap(says(open_gather, near, "; no end yet of all-gather of block.0 of step 1\n") &&
            tells("\nall ranks have entered all-gather of block.0 of step 1; rank 0 has no end of it yet\n"),
        "a collective that has not ended is told beside what was done later");
    tap(says(near, near, "\nno rank is in a collective\n"), "nor is one named where all have ended");
    record_of(3, 12, 7, far);
    tap(tells("\nno file of ranks 0, 1, 2, 4, 5, 6, 7, 8 and 3 more\n") &&
            tells("and 3 more have not entered reduce-scatter of block.0 of step 1; rank 3 is in it\n"),
        "ranks without a file are named, the first eight of them");
    tap(tells("; 7 steps finished\n"), "steps that left no operations are counted");
    record_of(5, 12, 0, far);
    tap(tells("of step 1; ranks 3, 5 are in it\n"), "and all who are in a collective");
    unlink_file(5);
    unlink_file(3);
    const struct recorded reduced[] = {{EO_OP_ALL_REDUCE, false}, END};
    tap(says(reduced, reduced, "all ranks have entered all-reduce of ?[31m??31m\xc3\xa4 of step 1;"),
        "what would command a terminal does not reach it");
    char path[64];
    snprintf(path, sizeof(path), "%s/\x1b[31m.flight", folder);
    FILE *file = fopen(path, "w");
    tap(file && fclose(file) == 0 && tells("/?[31m.flight: ") && !strchr(told, '\x1b'), "nor does the name of a file");
    unlink(path);
    struct recorded many[3 * ENTRIES + 1] = {{0}};
    for (int i = 0; i < 3 * ENTRIES; i++)
        many[i] = (struct recorded){EO_OP_FORWARD, true};
    many[ENTRIES + 6] = (struct recorded)END;
    tap(says(many, gpu_near, "\nthe ranks are too far apart for the recorders: no operation is in all of them\n"),
        "a recorder keeps the last operations: those before are not compared");
    record_of(0, RANKS, 0, many);
    many[ENTRIES + 2] = (struct recorded)END;
    record_of(1, RANKS, 0, many);
    tap(tells("\noperations 6 ... 65 are the same on all ranks\n"), "those that all ranks keep are");
    record_sparse();
    tap(tells("operations 0 ... 999999 are the same on all ranks\n"), "a sparse file of one of 65,536 ranks is told at once");
    for (uint32_t r = 0; r < RANKS; r++)
        unlink_file(r);
    rmdir(folder);
    return tap_end();
}
