/* SPDX-License-Identifier: MIT
 *
 * Goal: a flight recorder holds what its rank did, for who reads it while it is written, after it was cut off, and never
 * more than was written; worlds inside a world train by themselves.
 * Method: two ranks as threads, a small model of the tests' own; recorders in files, which are read back, cut and damaged.
 */
#include <evenodd/evenodd.h>

#include <linux/fs.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { RANKS = 4, LAYERS = 3, COUNT = 640 };

static eo_plan *plan; /* for two ranks */
static char folder[] = "/tmp/flight-XXXXXX";

struct rank {
    eo_world *world;
    eo_flight_recorder *recorder;
    uint32_t number, steps, stop_at; /* stop_at: position of the last step at which it ends in the midst of it */
    eo_status status;
    float weight;
};

static eo_plan *make_plan(uint32_t ranks)
{
    eo_plan *made;
    eo_model *model;
    if (eo_model_create(&model, eo_model_params(.name = "small")) < 0)
        exit(1);
    for (uint32_t l = 0; l < LAYERS; l++) {
        char name[16], weight[16];
        uint32_t layer, unused;
        snprintf(name, sizeof(name), "layer.%u", l);
        snprintf(weight, sizeof(weight), "weight.%u", l);
        if (eo_model_add_layer(model, eo_layer_params(.name = name), &layer) < 0 ||
            eo_model_add_parameter(model, eo_parameter_params(.layer = layer, .name = weight, .dims = {COUNT}, .dim_count = 1),
                                   &unused) < 0 ||
            eo_model_add_position(model, eo_position_params(.layer = layer), &unused) < 0)
            exit(1);
    }
    if (eo_plan_create(&made, model, eo_plan_params(.rank_count = ranks)) < 0)
        exit(1);
    eo_model_destroy(&model);
    return made;
}

/* The gradient of each element is 1 + the rank's number in the world of all. */
static eo_status step(struct rank *rank, eo_runtime *rt, uint32_t stop_at)
{
    const eo_view *view;
    eo_status status = eo_step_begin(rt);
    for (uint32_t p = 0; p < LAYERS && status >= 0; p++)
        if ((status = eo_forward_begin(rt, p, &view)) >= 0)
            status = eo_forward_end(rt, p);
    for (uint32_t p = LAYERS; p-- > 0 && status >= 0;) {
        if (p == stop_at)
            return EO_IN_PROGRESS;
        if ((status = eo_backward_begin(rt, p, &view)) < 0 || (status = eo_gradients_begin(rt, p, &view)) < 0)
            break;
        float *gradient = eo_view_gradient(rt, view, 0);
        for (uint32_t i = 0; i < COUNT; i++)
            gradient[i] = 1 + (float)rank->number;
        status = eo_backward_end(rt, p);
    }
    return status < 0 ? status : eo_step_end(rt, eo_step_params(.learning_rate = 0.5f), NULL);
}

static void *life(void *arg)
{
    struct rank *rank = arg;
    eo_runtime *rt = NULL;
    float values[COUNT];
    rank->status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = rank->world, .recorder = rank->recorder));
    for (uint32_t s = 0; s < rank->steps && rank->status >= 0; s++)
        rank->status = step(rank, rt, s + 1 == rank->steps ? rank->stop_at : UINT32_MAX);
    if (rank->status == EO_IN_PROGRESS)
        eo_world_abort(rank->world, "the test ends it here");
    else if (rank->status >= 0 && eo_weights_read(rt, "weight.1", values) >= 0)
        rank->weight = values[0];
    eo_runtime_destroy(&rt);
    return NULL;
}

static void run(struct rank *ranks, uint32_t count)
{
    run_as_threads(life, ranks, count, sizeof(*ranks));
}

static const char *path_of(uint32_t rank)
{
    static char paths[RANKS][64];
    snprintf(paths[rank], sizeof(paths[rank]), "%s/%u", folder, rank);
    return paths[rank];
}

static bool begin(struct rank *ranks, uint32_t steps)
{
    eo_world *worlds[2];
    if (eo_world_create_local(worlds, eo_world_params(.rank_count = 2)) < 0)
        return false;
    for (uint32_t r = 0; r < 2; r++) {
        ranks[r] = (struct rank){.world = worlds[r], .number = r, .steps = steps, .stop_at = UINT32_MAX};
        if (eo_flight_recorder_create(&ranks[r].recorder, eo_flight_recorder_params(
                .path = path_of(r), .rank = r, .rank_count = 2, .host = "here")) < 0)
            return false;
    }
    return true;
}

static void end(struct rank *ranks)
{
    for (uint32_t r = 0; r < 2; r++) {
        eo_flight_recorder_destroy(&ranks[r].recorder);
        eo_world_destroy(&ranks[r].world);
    }
}

static void in_order(void)
{
    struct rank ranks[2];
    char last[128];
    eo_flight_log *a, *b;
    eo_flight_entry x, y;
    bool good = begin(ranks, 7);
    eo_flight_recorder_last(ranks[0].recorder, last, sizeof(last));
    tap(good && strcmp(last, "its start") == 0, "before a runtime uses it a recorder tells of the start");
    run(ranks, 2);
    eo_flight_recorder_last(ranks[0].recorder, last, sizeof(last));
    tap(strstr(last, "step 7, ") == last, "afterwards it tells the step and the newest operation: %s", last);
    eo_flight_recorder_note(ranks[0].recorder, "a pause");
    eo_flight_recorder_last(ranks[0].recorder, last, sizeof(last));
    tap(strcmp(last, "a pause, after step 7") == 0, "a note of the trainer's comes before it: %s", last);
    char text[16] = "a save";
    for (int i = 0; i < 40; i++) /* in one place, as texts of other languages may be */
        eo_flight_recorder_note(ranks[0].recorder, memcpy(text, i % 2 ? "a load" : "a save", sizeof("a load")));
    memset(text, 'x', sizeof(text) - 1);
    eo_flight_recorder_last(ranks[0].recorder, last, sizeof(last));
    tap(strcmp(last, "a load, after step 7") == 0, "the next ones too, whatever becomes of their memory: %s", last);
    eo_flight_recorder_note(ranks[0].recorder, NULL);
    end(ranks);
    good = eo_flight_log_open(&a, path_of(0), NULL) >= 0 && eo_flight_log_open(&b, path_of(1), NULL) >= 0;
    const eo_flight_info info = good ? eo_flight_log_info(a) : (eo_flight_info){0};
    tap(good && info.finished && info.steps == 7 && info.rank_count == 2 && info.process == (uint32_t)getpid() &&
            strcmp(info.host, "here") == 0,
        "the file says whose it is, how many steps have ended, and that all did in order");
    uint64_t same = 0, ended = 0, told = 0;
    for (uint64_t i = info.first; i < info.count; i++) {
        const bool both = eo_flight_log_entry(a, i, &x) && eo_flight_log_entry(b, i, &y);
        same += both && x.step == y.step && strcmp(x.name, y.name) == 0;
        ended += both && x.end_ns >= x.start_ns && x.start_ns > 0;
        told += both && x.collective == (strstr(x.name, "gather") || strstr(x.name, "reduce"));
    }
    tap(info.count - info.first > 40 && same == info.count - info.first,
        "the n-th entry of both ranks is the same operation of the same step (%llu entries)",
        (unsigned long long)(info.count - info.first));
    tap(ended == same, "and all have ended");
    tap(told == same, "those in which all ranks take part are told as collectives, and no others: %llu of %llu are",
        (unsigned long long)told, (unsigned long long)same);
    tap(!eo_flight_log_entry(a, info.count, &x) && (info.first == 0 || !eo_flight_log_entry(a, info.first - 1, &x)),
        "before the first and after the last there is nothing");
    eo_flight_log_close(&a);
    eo_flight_log_close(&b);
}

static void cut_off(void)
{
    struct rank ranks[2];
    eo_flight_log *flight;
    eo_flight_entry entry = {0};
    const bool good = begin(ranks, 5);
    ranks[1].stop_at = 1; /* rank 1 does not come to the backward pass of layer 1 in step 5 */
    run(ranks, 2);
    end(ranks);
    tap(good && ranks[1].status == EO_IN_PROGRESS && ranks[0].status == EO_ERR_COMM, "a rank that ends in a step ends the others");
    const bool opened = eo_flight_log_open(&flight, path_of(1), NULL) >= 0;
    const eo_flight_info info = opened ? eo_flight_log_info(flight) : (eo_flight_info){0};
    bool there = false;
    for (uint64_t i = info.first; i < info.count; i++)
        there = there || (eo_flight_log_entry(flight, i, &entry) && entry.step == 5 && strstr(entry.name, "backward of layer.1"));
    tap(opened && !info.finished && !there && eo_flight_log_entry(flight, info.count - 1, &entry) && entry.step == 5,
        "its file does not say that it ended in order, and holds step 5 up to there");
    eo_flight_log_close(&flight);
}

static bool makes_recorder(const char *path, const char *text)
{
    eo_flight_recorder *recorder = NULL;
    FILE *file = fopen(path, "w");
    if (file) {
        fputs(text, file);
        fclose(file);
    }
    const eo_status status = eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.path = path, .rank_count = 1));
    eo_flight_recorder_destroy(&recorder);
    return status == EO_OK;
}

static void in_the_way(void)
{
    char path[80], link[80], text[16] = "";
    eo_flight_recorder *recorder = NULL;
    snprintf(path, sizeof(path), "%s/thesis", folder);
    snprintf(link, sizeof(link), "%s/link", folder);
    const bool refused = !makes_recorder(path, "a thesis") && !makes_recorder(path, "short");
    FILE *file = fopen(path, "r");
    const bool stays = file && fgets(text, sizeof(text), file) && strcmp(text, "short") == 0;
    if (file)
        fclose(file);
    const bool link_stays =
        symlink("thesis", link) == 0 &&
        eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.path = link, .rank_count = 1)) == EO_ERR_INVALID &&
        access(link, F_OK) == 0;
    tap(refused && stays && link_stays, "a file of somebody else, or a link, is refused and stays");
    tap(makes_recorder(path, "") &&
            eo_flight_recorder_create(&recorder, eo_flight_recorder_params(.path = path, .rank_count = 1)) == EO_OK,
        "an empty file is replaced, and one of a recorder");
    eo_flight_recorder_destroy(&recorder);
    unlink(link);
    unlink(path);
}

static int kept_flags; /* of the last file: while nothing is in it btrfs takes them */

/* In the place of the C library's. */
int ioctl(int fd, unsigned long request, ...)
{
    struct stat info;
    va_list arguments;
    va_start(arguments, request);
    int *flags = va_arg(arguments, int *);
    va_end(arguments);
    if (request != FS_IOC_GETFLAGS && request != FS_IOC_SETFLAGS)
        return (int)syscall(SYS_ioctl, fd, request, flags);
    if (request == FS_IOC_GETFLAGS)
        *flags = 0;
    else if (fstat(fd, &info) == 0 && info.st_size == 0)
        kept_flags = *flags;
    return 0;
}

/* On btrfs a page that is written back goes elsewhere the next time: on a full disk a SIGBUS would end the rank. */
static void in_place(void)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/in_place", folder);
    kept_flags = 0;
    tap(makes_recorder(path, "") && kept_flags == FS_NOCOW_FL, "a file is rewritten in place");
    unlink(path);
}

static void damaged(void)
{
    static unsigned char data[1 << 20];
    char path[80];
    eo_flight_log *flight;
    eo_flight_entry entry;
    uint32_t opened = 0;
    snprintf(path, sizeof(path), "%s/damaged", folder);
    FILE *file = fopen(path_of(0), "rb");
    const size_t bytes = file ? fread(data, 1, sizeof(data), file) : 0;
    if (file)
        fclose(file);
    for (uint32_t i = 0; i < 600; i++) { /* a word anywhere in head and names, or the end cut away */
        const size_t at = (i * 2654435761u >> 7) % (i < 300 ? 256 : bytes - 8), keep = i % 3 ? bytes : bytes - at;
        unsigned char saved[8];
        memcpy(saved, data + at, 8);
        memset(data + at, (int)(i * 37), 8);
        file = fopen(path, "wb");
        if (file) {
            (void)!fwrite(data, 1, keep, file);
            fclose(file);
        }
        memcpy(data + at, saved, 8);
        if (eo_flight_log_open(&flight, path, NULL) < 0)
            continue;
        opened++;
        const eo_flight_info info = eo_flight_log_info(flight);
        for (uint64_t k = info.first; k < info.count && k < info.first + 2000; k++)
            if (eo_flight_log_entry(flight, k, &entry) && strlen(entry.name) > 200)
                exit(1);
        eo_flight_log_close(&flight);
    }
    tap(bytes > 4096 && opened > 0 && opened < 600, "files that are damaged or cut are refused or read within their bounds");
    unlink(path);
}

struct split {
    eo_world *world, *inner;
    uint32_t color, key;
    eo_status status;
};

static void *split_main(void *arg)
{
    struct split *s = arg;
    s->status = eo_world_split(&s->inner, s->world, s->color, s->key);
    return NULL;
}

static void inner_worlds(void)
{
    eo_world *worlds[RANKS];
    struct rank ranks[RANKS];
    struct split splits[RANKS];
    bool good = true;
    if (eo_world_create_local(worlds, eo_world_params(.rank_count = RANKS)) < 0)
        exit(1);
    for (uint32_t r = 0; r < RANKS; r++) /* ranks 3 and 1, in this order, and 0 and 2 */
        splits[r] = (struct split){.world = worlds[r], .color = r % 2, .key = r % 2 ? RANKS - r : 0};
    run_as_threads(split_main, splits, RANKS, sizeof(splits[0]));
    for (uint32_t r = 0; r < RANKS; r++)
        good = good && splits[r].status >= 0 && splits[r].inner && eo_world_rank_count(splits[r].inner) == 2;
    if (!tap(good && eo_world_rank(splits[3].inner) == 0 && eo_world_rank(splits[1].inner) == 1 &&
                 eo_world_rank(splits[0].inner) == 0 && eo_world_rank(splits[2].inner) == 1,
             "ranks of one color are a world, in order of their keys, then of their ranks"))
        return;
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r] = (struct rank){.world = splits[r].inner, .number = r, .steps = 3, .stop_at = UINT32_MAX};
    run(ranks, RANKS);
    for (uint32_t r = 0; r < RANKS; r++)
        good = good && ranks[r].status >= 0;
    tap(good && ranks[0].weight < 0 && memcmp(&ranks[0].weight, &ranks[2].weight, sizeof(float)) == 0 &&
            memcmp(&ranks[1].weight, &ranks[3].weight, sizeof(float)) == 0, "both worlds train at one time, each by itself");
    for (uint32_t r = 0; r < RANKS; r++) {
        eo_world_destroy(&splits[r].inner);
        eo_world_destroy(&worlds[r]);
    }
}

/* One rank, so that nothing differs but what is between the steps. */
static void between_steps(void)
{
    enum { RECORDS = 256 };
    static eo_timeline_record before[RECORDS], after[RECORDS];
    struct rank rank = {.stop_at = UINT32_MAX};
    eo_plan *alone = make_plan(1);
    eo_runtime *rt = NULL;
    const eo_view *view;
    bool good = eo_world_create_local(&rank.world, eo_world_params(.rank_count = 1)) >= 0 &&
                eo_runtime_create(&rt, eo_runtime_params(.plan = alone, .world = rank.world)) >= 0;
    for (int s = 0; s < 3 && good; s++)
        good = step(&rank, rt, UINT32_MAX) >= 0;
    const uint32_t count = eo_runtime_timeline(rt, before, RECORDS);
    for (int e = 0; e < 2 && good; e++) {
        good = eo_evaluation_begin(rt) >= 0;
        for (uint32_t p = 0; p < LAYERS && good; p++)
            good = eo_forward_begin(rt, p, &view) >= 0 && eo_forward_end(rt, p) >= 0;
        good = good && eo_evaluation_end(rt) >= 0;
    }
    good = good && step(&rank, rt, UINT32_MAX) >= 0; /* the timeline is of the step before, and the evaluations */
    const uint32_t again = eo_runtime_timeline(rt, after, RECORDS);
    for (uint32_t i = 0; i < count && good; i++)
        good = after[i].operation == before[i].operation;
    tap(good && count > 0 && again == count,
        "the timeline of a step has nothing of evaluations behind it (%u records, then %u)", count, again);
    eo_runtime_destroy(&rt);
    eo_world_destroy(&rank.world);
    eo_plan_destroy(&alone);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    plan = make_plan(2);
    in_order();
    between_steps();
    cut_off();
    in_the_way();
    in_place();
    damaged();
    inner_worlds();
    eo_plan_destroy(&plan);
    for (uint32_t r = 0; r < 2; r++)
        unlink(path_of(r));
    rmdir(folder);
    return tap_end();
}
