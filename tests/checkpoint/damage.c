/* SPDX-License-Identifier: MIT
 *
 * Damaged checkpoints: every flipped bit is found and named, whatever lies in a file nothing is read past its end, and a
 * checkpoint of another model is refused with the first field that differs.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hashing.h"
#include "runtime/checkpoint/files.h"
#include "saved_training.h"

enum { RANKS = 3, STEP = 2 };

static char folder[256], step_path[320];

static void saves(struct saved_rank *self)
{
    saved_initialise(self);
    saved_steps(self, STEP);
    CHECK_THAT(saved_save(self, folder, 0, "the trainer's own", 17) == EO_OK);
}

static void make_checkpoint(const struct saved_settings *settings)
{
    saved_folder_make(folder, sizeof(folder));
    snprintf(step_path, sizeof(step_path), "%s/step-%012d", folder, STEP);
    (void)saved_run(settings, saves, NULL);
}

static void path_of(char path[400], const char *name)
{
    snprintf(path, 400, "%s/%s", step_path, name);
}

static void flip(const char *path, uint64_t at, unsigned bit)
{
    unsigned char byte = 0;
    const int file = open(path, O_RDWR);
    CHECK_THAT(file >= 0 && pread(file, &byte, 1, (off_t)at) == 1);
    byte ^= (unsigned char)(1u << bit);
    CHECK_THAT(pwrite(file, &byte, 1, (off_t)at) == 1);
    close(file);
}

/* Whether the log names all three. */
static bool is_told(const char *file, const char *what, const char *word)
{
    const char *text = saved_log_text();
    const bool told = strstr(text, file) && strstr(text, what) && strstr(text, word);
    if (!told)
        tap_note(__FILE__, __LINE__, "'%s', '%s', '%s' are not told: %s", file, what, word, text);
    return told;
}

static eo_status open_and_verify(void)
{
    eo_checkpoint *checkpoint;
    saved_log_clear();
    eo_status status = eo_checkpoint_open(&checkpoint, step_path, &saved_log);
    if (status >= 0)
        status = eo_checkpoint_verify(checkpoint);
    eo_checkpoint_close(&checkpoint);
    return status;
}

/* -- bits ----------------------------------------------------------------------------------------------------------*/

static void fails_to_load(struct saved_rank *self)
{
    char failure[64];
    pthread_barrier_wait(self->shared); /* all are there before the first gives up */
    CHECK_THAT(saved_load(self, folder) == EO_ERR_IO);
    pthread_barrier_wait(self->shared);
    eo_world_failure(self->world, failure, sizeof(failure));
    CHECK_THAT(failure[0] == '\0'); /* a trainer may go back to another one */
    pthread_barrier_wait(self->shared);
}

static void flip_in_section(const struct checkpoint_tables *tables, uint32_t s, const char *name, uint64_t draw)
{
    const struct checkpoint_section *section = &tables->sections[s];
    const uint64_t bytes = eo_align_up(section->bytes, CHECKPOINT_ALIGN), at = section->file_offset + draw % bytes;
    char path[400], what[128];
    path_of(path, name);
    eo_checkpoint_section_text(tables, section, what, sizeof(what));
    flip(path, at, draw % 8);
    CHECK_THAT(open_and_verify() == EO_ERR_IO);
    (void)is_told(name, what, "checksum");
    flip(path, at, draw % 8);
}

/*
 * Goal: a flipped bit in any section of any file, padding included, is found by verify, and by load where it reads it;
 *       one in a head or in the manifest is found when the checkpoint is opened.
 */
static void every_section(void)
{
    uint64_t draw = 1;
    uint32_t sections = 0;
    char path[400], name[EO_CHECKPOINT_FILE_MAX];
    make_checkpoint(&(struct saved_settings){.ranks = RANKS});
    CHECK_THAT(open_and_verify() == EO_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        struct checkpoint_tables tables;
        struct checkpoint_error error;
        eo_checkpoint_file_name(name, r);
        path_of(path, name);
        if (eo_checkpoint_read_head(&tables, path, &error) < 0) {
            tap_note(__FILE__, __LINE__, "%s", error.text);
            continue;
        }
        for (uint32_t s = 0; s < tables.head->section_count; s++, sections++)
            for (int i = 0; i < 2; i++)
                flip_in_section(&tables, s, name, draw = eo_hash64(&draw, sizeof(draw)));
        for (int i = 0; i < 24; i++) {
            draw = eo_hash64(&draw, sizeof(draw));
            const uint64_t at = i < 4 ? (uint64_t)i * 8 : draw % tables.head->head_bytes;
            flip(path, at, draw % 8);
            CHECK_THAT(open_and_verify() == EO_ERR_IO);
            (void)is_told(name, "", "");
            flip(path, at, draw % 8);
        }
        eo_checkpoint_free_tables(&tables);
    }
    CHECK_THAT(sections >= RANKS * 11);
    CHECK_THAT(open_and_verify() == EO_OK);

    path_of(path, "manifest");
    struct stat info;
    CHECK_THAT(stat(path, &info) == 0);
    for (off_t at = 0; at < info.st_size; at++) {
        flip(path, (uint64_t)at, (unsigned)at % 8);
        CHECK_THAT(open_and_verify() == EO_ERR_IO);
        (void)is_told("manifest", "", "");
        flip(path, (uint64_t)at, (unsigned)at % 8);
    }
    CHECK_THAT(open_and_verify() == EO_OK);
    tap_case("a bit flipped in any section, head or manifest is found, and the file and section are named");

    path_of(path, "rank-00001");
    flip(path, 300000, 3);
    saved_log_clear();
    pthread_barrier_t both;
    pthread_barrier_init(&both, NULL, 2);
    (void)saved_run(&(struct saved_settings){.ranks = 2}, fails_to_load, &both);
    pthread_barrier_destroy(&both);
    (void)is_told("rank-00001", "of body", "checksum");
    flip(path, 300000, 3);
    tap_case("a runtime that loads a damaged file says so on the ranks that need it");
}

/*
 * Goal: ranks that verify a piece each have verified everything, and no chunk is read twice.
 * Method: a flipped bit, anywhere, is found by exactly one of the pieces, whatever their number.
 */
static void verify_in_pieces(void)
{
    char path[400];
    struct stat info;
    uint64_t draw = 7;
    path_of(path, "rank-00001");
    CHECK_THAT(stat(path, &info) == 0);
    for (uint32_t count = 1; count < 40; count += 1 + count / 4) {
        eo_checkpoint *checkpoint = NULL;
        uint32_t found = 0;
        saved_log_clear();
        CHECK_THAT(eo_checkpoint_open(&checkpoint, step_path, &saved_log) == EO_OK);
        draw = eo_hash64(&draw, sizeof(draw));
        const uint64_t data = (uint64_t)info.st_size / 2, at = data + draw % ((uint64_t)info.st_size - data);
        flip(path, at, 1);
        for (uint32_t part = 0; part < count; part++)
            found += eo_checkpoint_verify_part(checkpoint, part, count) == EO_ERR_IO;
        CHECK_THAT(found == 1);
        CHECK_THAT(eo_checkpoint_verify_part(checkpoint, count, count) == EO_ERR_INVALID);
        flip(path, at, 1);
        eo_checkpoint_close(&checkpoint);
    }
    tap_case("of any number of pieces of a checkpoint exactly one finds a flipped bit");
}

/* -- files ---------------------------------------------------------------------------------------------------------*/

static void copy_file(const char *from, const char *to)
{
    char command[1024];
    snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
    CHECK_THAT(system(command) == 0);
}

static void missing_and_foreign_files(void)
{
    char path[400], other[400], kept[400];
    path_of(path, "rank-00002");
    path_of(other, "rank-00001");
    snprintf(kept, sizeof(kept), "%s/kept", folder);

    CHECK_THAT(rename(path, kept) == 0 && open_and_verify() == EO_ERR_IO);
    (void)is_told("rank-00002", "missing", "");
    copy_file(other, path);
    CHECK_THAT(open_and_verify() == EO_ERR_IO);
    (void)is_told("rank-00002", "belongs to another checkpoint", "");
    CHECK_THAT(truncate(path, 5000) == 0 && open_and_verify() == EO_ERR_IO);
    (void)is_told("rank-00002", "cut off", "");
    CHECK_THAT(truncate(path, 0) == 0 && open_and_verify() == EO_ERR_IO);
    (void)is_told("rank-00002", "cut off", "");
    CHECK_THAT(unlink(path) == 0 && mkdir(path, 0700) == 0 && open_and_verify() == EO_ERR_IO);
    (void)is_told("rank-00002", "", "");
    CHECK_THAT(rmdir(path) == 0 && mkfifo(path, 0600) == 0 && open_and_verify() == EO_ERR_IO); /* and does not hang */
    CHECK_THAT(unlink(path) == 0 && rename(kept, path) == 0 && open_and_verify() == EO_OK);

    path_of(path, "manifest");
    CHECK_THAT(rename(path, kept) == 0 && open_and_verify() == EO_ERR_IO);
    (void)is_told("manifest", "missing", "");
    CHECK_THAT(saved_folder_hash(folder) == 0);

    /* It is found all the same, and so is what is older. */
    uint64_t step = UINT64_MAX;
    snprintf(other, sizeof(other), "%s/step-%012d", folder, STEP - 1);
    CHECK_THAT(mkdir(other, 0700) == 0);
    CHECK_THAT(eo_checkpoint_find_before(path, sizeof(path), &step, folder, &saved_log) == EO_OK && step == STEP &&
               strcmp(path, step_path) == 0);
    CHECK_THAT(eo_checkpoint_find_before(path, sizeof(path), &step, folder, &saved_log) == EO_OK && step == STEP - 1 &&
               strcmp(path, other) == 0);
    CHECK_THAT(eo_checkpoint_find_before(path, sizeof(path), &step, folder, &saved_log) == EO_IN_PROGRESS && step == STEP - 1);
    CHECK_THAT(rmdir(other) == 0);
    path_of(path, "manifest");
    CHECK_THAT(rename(kept, path) == 0 && open_and_verify() == EO_OK);
    tap_case("files that are missing, cut off, exchanged, folders or pipes are named");
}

/* -- another model -------------------------------------------------------------------------------------------------*/

static void is_refused(struct saved_rank *self)
{
    saved_initialise(self);
    const uint64_t before = saved_hash(self);
    CHECK_THAT(saved_load(self, folder) == EO_ERR_INVALID && strstr(eo_runtime_error(self->runtime), folder));
    CHECK_THAT(saved_hash(self) == before); /* nothing half done */
}

static void another_model(void)
{
    static const struct {
        struct saved_settings settings;
        const char *what, *there, *here;
    } cases[] = {
        {{.ranks = 2, .body_rows = 302}, "the dims of body.weight", "301 x 1000 there", "302 x 1000 here"},
        {{.ranks = 2, .body = "torso"}, "layer 1", "body there", "torso here"},
        {{.ranks = 2, .thaws = true}, "layer fixed", "frozen there", "trained here"},
        {{.ranks = 2, .states = 3}, "another optimizer", "2 arrays of state there", "3 here"},
        {{.ranks = 2, .optimizer = EO_OPTIMIZER_SGD}, "another optimizer", "adamw there", "sgd here"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        saved_log_clear();
        (void)saved_run(&cases[i].settings, is_refused, NULL);
        (void)is_told(cases[i].what, cases[i].there, cases[i].here);
    }
    saved_folder_remove(folder);
    struct saved_settings blocks = {.ranks = 2, .optimizer = EO_OPTIMIZER_ADAMW8BIT, .body_rows = 304};
    make_checkpoint(&blocks);
    blocks.joined = true;
    saved_log_clear();
    (void)saved_run(&blocks, is_refused, NULL);
    (void)is_told(folder, "the optimizer's blocks of body.weight", "lie otherwise");
    tap_case("a checkpoint of another model is refused with the first field that differs, before anything is loaded");
}

/* -- fuzz ----------------------------------------------------------------------------------------------------------*/

static char *read_whole(const char *path, size_t *bytes)
{
    struct stat info;
    const int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &info) != 0)
        exit(1);
    *bytes = (size_t)info.st_size;
    char *data = calloc(1, *bytes + 1);
    if (read(file, data, *bytes) != (ssize_t)*bytes)
        exit(1);
    close(file);
    return data;
}

static void write_whole(const char *path, const char *data, size_t bytes)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK_THAT(file >= 0 && write(file, data, bytes) == (ssize_t)bytes);
    close(file);
}

/* The manifest that fits the files of `ranks` ranks as they are. */
static void write_manifest_text(uint32_t ranks)
{
    char path[400], name[EO_CHECKPOINT_FILE_MAX], text[512];
    int used = snprintf(text, sizeof(text), "evenodd-checkpoint 1\nstep %d\nranks %u\n", STEP, ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        struct checkpoint_head head;
        struct stat info;
        eo_checkpoint_file_name(name, r);
        path_of(path, name);
        const int file = open(path, O_RDONLY);
        CHECK_THAT(file >= 0 && read(file, &head, sizeof(head)) == sizeof(head) && fstat(file, &info) == 0);
        close(file);
        used += snprintf(text + used, sizeof(text) - (size_t)used, "file %s %" PRIu64 " %016" PRIx64 "\n", name,
                         (uint64_t)info.st_size, head.head_hash);
    }
    used += snprintf(text + used, sizeof(text) - (size_t)used, "end %016" PRIx64 "\n", eo_hash64(text, (size_t)used));
    path_of(path, "manifest");
    write_whole(path, text, (size_t)used);
}

/* Makes a head's checksum good again. */
static void rehash(char *data, size_t bytes)
{
    struct checkpoint_head head;
    memset(data + offsetof(struct checkpoint_head, head_hash), 0, 8);
    memcpy(&head, data, sizeof(head));
    const uint64_t hash = eo_hash64(data, head.head_bytes <= bytes ? head.head_bytes : bytes);
    memcpy(data + offsetof(struct checkpoint_head, head_hash), &hash, 8);
}

/* A number as an attacker or a broken disk would have it. */
static uint64_t strange_number(uint64_t draw, uint64_t old)
{
    static const uint64_t strange[] = {0, 1, 2, 0x7f, 0xff, 0xffff, 0x7fffffff, 0x80000000u, 0xffffffff,
                                       0x100000000u, INT64_MAX, UINT64_MAX, UINT64_MAX / 4, UINT64_MAX - 4095, 4096};
    switch (draw % 4) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return old ^ (uint64_t)1 << (draw >> 8) % 64;
    default: return strange[(draw >> 8) % (sizeof(strange) / sizeof(strange[0]))];
    }
}

static void mutate(char *data, size_t room, uint64_t draw)
{
    const size_t width = draw & 1 ? 4 : 8;
    const size_t at = (draw >> 8) % (room / width) * width;
    uint64_t value = 0;
    memcpy(&value, data + at, width);
    value = strange_number(draw >> 40, value);
    memcpy(data + at, &value, width);
}

/* Reads all that the head promises; the log stays as it is. */
static void read_everything(void)
{
    static const eo_log silence = {0};
    eo_checkpoint *checkpoint;
    eo_checkpoint_info info;
    float values[64];
    if (eo_checkpoint_open(&checkpoint, step_path, &silence) < 0)
        return;
    eo_status status = eo_checkpoint_verify(checkpoint);
    eo_checkpoint_get_info(checkpoint, &info);
    for (uint32_t l = 0; l < info.layer_count; l++)
        for (uint32_t a = 0; a <= info.optimizer_states; a++)
            for (uint64_t at = 0; at < 3000; at += 777)
                status = eo_checkpoint_read(checkpoint, l, a, at, 64, values);
    char blob[64];
    uint32_t bytes = sizeof(blob);
    status = eo_checkpoint_blob(checkpoint, 0, blob, &bytes);
    (void)status;
    eo_checkpoint_close(&checkpoint);
}

/*
 * Goal: heads and manifests of any content are refused or read, and nothing else.
 * Method: numbers in them are changed and the checksums made good again, so that what lies behind the checksum is
 *         reached. Under the sanitizers this is the test that nothing is read out of bounds.
 */
static void hostile_heads(void)
{
    make_checkpoint(&(struct saved_settings){.ranks = 1, .body_rows = 2});
    char path[400];
    size_t bytes;
    path_of(path, "rank-00000");
    char *good = read_whole(path, &bytes), *data = malloc(bytes);
    const size_t head_bytes = ((const struct checkpoint_head *)good)->head_bytes;
    uint64_t draw = 7;
    for (int round = 0; round < 1500; round++) {
        memcpy(data, good, bytes);
        for (int i = 0; i <= round % 3; i++)
            mutate(data, i == 0 && round % 2 ? sizeof(struct checkpoint_head) : head_bytes, draw = eo_hash64(&draw, sizeof(draw)));
        rehash(data, bytes);
        write_whole(path, data, bytes);
        write_manifest_text(1);
        read_everything();
    }
    memcpy(data, good, bytes);
    snprintf(((struct checkpoint_head *)data)->model_name, sizeof(((struct checkpoint_head *)data)->model_name), "\xc2\x9b");
    rehash(data, bytes);
    write_whole(path, data, bytes);
    write_manifest_text(1);
    CHECK_THAT(open_and_verify() == EO_ERR_IO && is_told("rank-00000", "its names", "")); /* a terminal's command */
    write_whole(path, good, bytes);
    write_manifest_text(1);
    CHECK_THAT(open_and_verify() == EO_OK); /* what was changed was of a good one */
    tap_case("heads with any numbers in them are refused or read, and nothing is read past its end");

    char manifest[400];
    size_t text_bytes;
    path_of(manifest, "manifest");
    char *text = read_whole(manifest, &text_bytes), *changed = malloc(text_bytes + 1);
    for (int round = 0; round < 1000; round++) {
        memcpy(changed, text, text_bytes + 1);
        for (int i = 0; i <= round % 4; i++) {
            draw = eo_hash64(&draw, sizeof(draw));
            changed[draw % (text_bytes - 21)] = "0123456789 \n-xf/.\x7f"[(draw >> 32) % 18];
        }
        snprintf(changed + text_bytes - 21, 22, "end %016" PRIx64 "\n", eo_hash64(changed, text_bytes - 21));
        write_whole(manifest, changed, text_bytes - (round % 7 == 0 ? (draw >> 40) % text_bytes : 0));
        read_everything();
    }
    write_whole(manifest, text, text_bytes);
    CHECK_THAT(open_and_verify() == EO_OK);
    free(changed);
    free(text);
    free(data);
    free(good);
    saved_folder_remove(folder);
    tap_case("manifests with any words in them are refused or read");
}

/*
 * Goal: a part that does not begin where the one before it ends is refused, also where it holds nothing but padding:
 *       who reads relies on it, and would read past the end of tables.
 */
static void parts_out_of_order(void)
{
    make_checkpoint(&(struct saved_settings){.ranks = RANKS});
    char path[400];
    size_t bytes;
    path_of(path, "rank-00002");
    char *good = read_whole(path, &bytes), *data = malloc(bytes);
    const uint32_t sections = ((const struct checkpoint_head *)good)->section_count;
    for (uint32_t s = 0; s + 1 < sections; s++) { /* the last is the trainer's */
        struct checkpoint_tables tables;
        memcpy(data, good, bytes);
        eo_checkpoint_set_tables(&tables, (struct checkpoint_head *)data);
        tables.sections[s].offset += s % 2 ? 16 : (uint64_t)1 << 40;
        rehash(data, bytes);
        write_whole(path, data, bytes);
        write_manifest_text(RANKS);
        CHECK_THAT(open_and_verify() == EO_ERR_IO);
        (void)is_told("is missing or out of order", "", "");
    }
    write_whole(path, good, bytes);
    write_manifest_text(RANKS);
    CHECK_THAT(open_and_verify() == EO_OK);
    free(data);
    free(good);
    saved_folder_remove(folder);
    tap_case("parts of an array that do not follow on one another are refused");
}

/* Goal: each field of a head is checked by itself. Method: one is changed at a time, and the checksums are right. */
static void fields_of_heads(void)
{
    static const char *const told[] = {"a layer's name",    "a parameter's name", "its size",      "its size",
                                       "a section's place", "a section's place",  "another model", "another model"};
    make_checkpoint(&(struct saved_settings){.ranks = RANKS});
    char path[400];
    size_t bytes;
    path_of(path, "rank-00002");
    char *good = read_whole(path, &bytes), *data = malloc(bytes);
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        struct checkpoint_tables tables;
        memcpy(data, good, bytes);
        eo_checkpoint_set_tables(&tables, (struct checkpoint_head *)data);
        switch (i) {
        case 0:
            tables.layers[0].name[0] = '\n';
            break;
        case 1:
            tables.parameters[0].name[0] = '\033';
            break;
        case 2:
            tables.head->head_bytes -= CHECKPOINT_ALIGN;
            break;
        case 3:
            tables.head->head_bytes += 16;
            break;
        case 4:
            tables.sections[1].file_offset += CHECKPOINT_ALIGN;
            break;
        case 5:
            tables.sections[1].chunk_begin++;
            break;
        case 6: /* fine by itself, and not what the other ranks' files have */
            tables.parameters[0].name[0]++;
            break;
        case 7:
            tables.layers[0].name[0]++;
            break;
        }
        rehash(data, bytes);
        write_whole(path, data, bytes);
        write_manifest_text(RANKS);
        CHECK_THAT(open_and_verify() == EO_ERR_IO && is_told(told[i], "", ""));
    }
    free(data);
    free(good);
    saved_folder_remove(folder);
    tap_case("a head with one wrong field is refused, and the field is named");
}

/* Goal: who reads the manifest of a large world is done at once; it took hours. */
static void manifest_of_many_ranks(void)
{
    enum { MANY = 500000, LINE_MAX_BYTES = 64, SECONDS_MAX = 20 };
    char path[400], *text = malloc(MANY * LINE_MAX_BYTES);
    struct checkpoint_manifest manifest;
    struct checkpoint_error error;
    struct timespec begin, end;
    saved_folder_make(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/manifest", folder);
    int used = sprintf(text, "evenodd-checkpoint 1\nstep %d\nranks %d\n", STEP, MANY);
    for (int r = 0; r < MANY; r++)
        used += sprintf(text + used, "file rank-%05d %d %016x\n", r, 4096 + r, r);
    used += sprintf(text + used, "end %016" PRIx64 "\n", eo_hash64(text, (size_t)used));
    write_whole(path, text, (size_t)used);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CHECK_THAT(eo_checkpoint_read_manifest(&manifest, path, &error) == EO_OK && manifest.rank_count == MANY);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK_THAT(end.tv_sec - begin.tv_sec < SECONDS_MAX);
    CHECK_THAT(manifest.files[MANY - 1].bytes == 4096 + MANY - 1 && manifest.files[MANY - 1].head_hash == MANY - 1);
    free(manifest.files);
    free(text);
    saved_folder_remove(folder);
    tap_case("the manifest of 500,000 ranks is read at once");
}

void checkpoint_damage_cases(void)
{
    every_section();
    verify_in_pieces();
    missing_and_foreign_files();
    another_model();
    saved_folder_remove(folder);
    parts_out_of_order();
    fields_of_heads();
    hostile_heads();
    manifest_of_many_ranks();
}
