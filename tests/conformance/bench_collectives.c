/* SPDX-License-Identifier: MIT
 *
 * The speed of the local collectives beside the machine's copy bandwidth. Not a test: prints one JSON line.
 *
 * Goal: show how near the collectives come to what the memory gives.
 * Method: 2 ranks, LAYERS layers of 28 MB (7 million fp32) that take turns over 2 gather buffers, as a runtime uses
 * them. First each rank's thread copies 28 MB with memcpy from and to the same buffers, all ranks at once; then the
 * same with the device's copy, which writes past the caches; then the ranks all-gather (a 14 MB shard each into a
 * 28 MB buffer), then reduce-scatter (a 28 MB buffer into a 14 MB shard). Rounds of the four alternate; the best of
 * ROUNDS counts for each, since others only take bandwidth away.
 *
 *     memcpy_gb_s          bytes written by memcpy, per rank and second, all ranks at once
 *     copy_gb_s            the same of the device's copy
 *     all_gather_gb_s      bytes written by the all-gather (its whole buffer), per rank and second
 *     reduce_scatter_gb_s  bytes written by the reduce-scatter (its shard), per rank and second
 *     *_ratio              bytes moved (read + written) per second, against those of the faster of the two copies. A
 *                          copied byte moves 2, a gathered byte 2, a reduced byte of the shard W + 1: its W inputs
 *                          and itself
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "streams/collective.h"
#include "tests/tap/threads.h"

enum { RANKS = 2, LAYERS = 4, BUFFERS = 2, ROUNDS = 12, OPERATIONS = 8, SHARD_COUNT = 3500032 };
#define SHARD_BYTES ((uint64_t)SHARD_COUNT * 4)
#define LAYER_BYTES (SHARD_BYTES * RANKS)

enum measure { MEMCPY, COPY, ALL_GATHER, REDUCE_SCATTER, MEASURES };

static struct eo_group *group;
static pthread_barrier_t barrier;
static uint64_t best_ns[MEASURES];

static void need(eo_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, eo_status_text(status));
        exit(1);
    }
}

struct rank {
    uint32_t rank;
    struct eo_device *device;
    struct eo_comm *comm;
    unsigned char *shards[LAYERS], *layers[LAYERS], *buffers[BUFFERS];
};

static eo_status reserve(struct rank *self, uint64_t bytes, void **out)
{
    return self->device->ops->reserve(self->device, EO_MEMORY_KIND_GATHER, bytes, out);
}

static void operate(struct rank *self, enum measure measure, uint32_t i)
{
    const struct eo_comm_ops *ops = eo_comm_find("local");
    unsigned char *shard = self->shards[i % LAYERS], *buffer = self->buffers[i % BUFFERS];
    struct eo_event event;
    if (measure == MEMCPY) {
        memcpy(buffer, self->layers[i % LAYERS], LAYER_BYTES);
        return;
    }
    if (measure == COPY) {
        self->device->ops->copy(self->device, EO_QUEUE_COMPUTE, buffer, self->layers[i % LAYERS], LAYER_BYTES);
        return;
    }
    if (measure == ALL_GATHER)
        need(ops->all_gather(self->comm, buffer, shard, SHARD_BYTES, "layer", NULL), "all-gather");
    else
        need(ops->reduce_scatter(self->comm, shard, buffer, SHARD_COUNT, EO_DTYPE_FP32, "layer", NULL), "reduce");
    self->device->ops->record(self->device, EO_QUEUE_COMM, &event);
    need(self->device->ops->wait(self->device, EO_QUEUE_COMPUTE, &event), "wait");
}

static void *rank_main(void *arg)
{
    struct rank *self = arg;
    const struct eo_device_params params = {.queue_count = 2, .ring_capacity = 4, .rank = self->rank,
                                            .rank_count = RANKS};
    need(eo_device_create(&self->device, "cpu", &params), "device");
    for (uint32_t i = 0; i < LAYERS; i++) {
        need(reserve(self, SHARD_BYTES, (void **)&self->shards[i]), "reserve");
        need(reserve(self, LAYER_BYTES, (void **)&self->layers[i]), "reserve");
    }
    for (uint32_t i = 0; i < BUFFERS; i++)
        need(reserve(self, LAYER_BYTES, (void **)&self->buffers[i]), "reserve");
    need(eo_comm_find("local")->open(&self->comm, group, self->rank, self->device, EO_QUEUE_COMM, false), "open");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t measure = 0; measure < MEASURES; measure++) {
            pthread_barrier_wait(&barrier);
            const uint64_t begin_ns = eo_now_ns();
            for (uint32_t i = 0; i < OPERATIONS; i++)
                operate(self, (enum measure)measure, i);
            pthread_barrier_wait(&barrier);
            const uint64_t ns = (eo_now_ns() - begin_ns) / OPERATIONS;
            if (self->rank == 0 && (best_ns[measure] == 0 || ns < best_ns[measure]))
                best_ns[measure] = ns;
        }
    }
    need(eo_comm_find("local")->quiesce(self->comm), "quiesce");
    eo_comm_find("local")->close(self->comm);
    for (uint32_t i = 0; i < LAYERS; i++) {
        self->device->ops->release(self->device, EO_MEMORY_KIND_GATHER, self->shards[i], SHARD_BYTES);
        self->device->ops->release(self->device, EO_MEMORY_KIND_GATHER, self->layers[i], LAYER_BYTES);
    }
    for (uint32_t i = 0; i < BUFFERS; i++)
        self->device->ops->release(self->device, EO_MEMORY_KIND_GATHER, self->buffers[i], LAYER_BYTES);
    eo_device_destroy(&self->device);
    eo_comm_find("local")->group_release(group);
    return NULL;
}

int main(void)
{
    const struct eo_group_params params = {.rank_count = RANKS, .timeout_ms = 60000};
    need(eo_comm_find("local")->group_create(&group, &params), "group");
    pthread_barrier_init(&barrier, NULL, RANKS);
    static struct rank ranks[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        ranks[r].rank = r;
    run_as_threads(rank_main, ranks, RANKS, sizeof(ranks[0]));
    const double memcpy_speed = (double)LAYER_BYTES / (double)best_ns[MEMCPY];
    const double copy_speed = (double)LAYER_BYTES / (double)best_ns[COPY];
    const double fastest = copy_speed > memcpy_speed ? copy_speed : memcpy_speed;
    const double gather_speed = (double)LAYER_BYTES / (double)best_ns[ALL_GATHER];
    const double reduce_speed = (double)SHARD_BYTES / (double)best_ns[REDUCE_SCATTER];
    printf("{\"ranks\": %d, \"layer_bytes\": %llu, \"memcpy_gb_s\": %.2f, \"copy_gb_s\": %.2f, "
           "\"all_gather_gb_s\": %.2f, \"reduce_scatter_gb_s\": %.2f, \"all_gather_ratio\": %.3f, \"reduce_scatter_ratio\": %.3f}\n",
           (int)RANKS, (unsigned long long)LAYER_BYTES, memcpy_speed, copy_speed, gather_speed,
           reduce_speed, gather_speed / fastest, reduce_speed * (RANKS + 1) / (fastest * 2));
    return 0;
}
