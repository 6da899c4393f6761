/* SPDX-License-Identifier: MIT
 *
 * Prints the speed of collectives between processes of one machine as JSON: `shared` and `mpi` beside what Open MPI itself
 * does with the same buffers, in turns. Run by mpirun; the argument is the bytes of the whole buffer of a rank [28 MiB].
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "streams/mpi/mpi.h"

enum { ROUNDS = 15, OPERATIONS = 4, BUFFERS = 2 };

enum side { SHARED, MESSAGES, PEER, SIDES };
enum what { ALL_GATHER, IN_PLACE, REDUCE_SCATTER, WHATS };

static const char *const side_names[SIDES] = {"shared", "mpi", "open_mpi"};
static const char *const what_names[WHATS] = {"all_gather", "all_gather_in_place", "reduce_scatter"};

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "bench_processes: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

struct bench {
    int rank, rank_count;
    uint64_t slice_bytes;
    unsigned char *slices[BUFFERS], *wholes[BUFFERS];
    struct eo_device *device;
    const struct eo_comm_ops *ops[SIDES];
    struct eo_group *groups[SIDES];
    struct eo_comm *comms[SIDES];
};

static void open_side(struct bench *b, enum side side, const struct eo_exchange *exchange, void *memory, uint64_t bytes)
{
    const struct eo_comm_ops *ops = eo_comm_find(side_names[side]);
    need(ops != NULL, side_names[side]);
    b->ops[side] = ops;
    need(ops->group_create(&b->groups[side], &(const struct eo_group_params){
             .rank_count = (uint32_t)b->rank_count, .timeout_ms = 60000,
             .join = &(const struct eo_group_join){.rank = (uint32_t)b->rank, .exchange = exchange}}) >= 0, "a group");
    need(ops->open(&b->comms[side], b->groups[side], (uint32_t)b->rank, b->device, EO_QUEUE_COMM, false) >= 0, "open");
    if (ops->register_memory)
        need(ops->register_memory(b->comms[side], memory, bytes) >= 0, "register_memory");
}

static void operate(struct bench *b, enum side side, enum what what, int i)
{
    unsigned char *whole = b->wholes[i % BUFFERS];
    unsigned char *slice = what == IN_PLACE ? whole + (uint64_t)b->rank * b->slice_bytes : b->slices[i % BUFFERS];
    const uint64_t count = b->slice_bytes / 4;
    if (side == PEER) {
        if (what != REDUCE_SCATTER)
            MPI_Allgather(what == IN_PLACE ? MPI_IN_PLACE : slice, (int)count, MPI_FLOAT, whole, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
        else
            MPI_Reduce_scatter_block(whole, slice, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
    }
    struct eo_event event;
    if (what != REDUCE_SCATTER)
        need(b->ops[side]->all_gather(b->comms[side], whole, slice, b->slice_bytes, "layer", NULL) >= 0, "all_gather");
    else
        need(b->ops[side]->reduce_scatter(b->comms[side], slice, whole, count, EO_DTYPE_FP32, "layer", NULL) >= 0,
             "reduce_scatter");
    b->device->ops->record(b->device, EO_QUEUE_COMM, &event);
    need(b->device->ops->await(b->device, &event) >= 0, "await");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.rank_count);
    const uint64_t whole_bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)28 << 20;
    b.slice_bytes = whole_bytes / (uint64_t)b.rank_count / 64 * 64;
    const struct eo_device_params params = {.queue_count = 2, .ring_capacity = 4, .rank = (uint32_t)b.rank,
                                            .rank_count = (uint32_t)b.rank_count, .share_memory = true};
    need(eo_device_create(&b.device, "cpu", &params) >= 0, "a device");
    const uint64_t bytes = BUFFERS * (b.slice_bytes * (uint64_t)b.rank_count + b.slice_bytes);
    void *memory;
    need(b.device->ops->reserve(b.device, EO_MEMORY_KIND_GATHER, bytes, &memory) >= 0, "reserve");
    for (int i = 0; i < BUFFERS; i++) {
        b.wholes[i] = (unsigned char *)memory + (uint64_t)i * b.slice_bytes * (uint64_t)b.rank_count;
        b.slices[i] = (unsigned char *)memory + (uint64_t)BUFFERS * b.slice_bytes * (uint64_t)b.rank_count +
                      (uint64_t)i * b.slice_bytes;
    }
    const struct eo_mpi_ops *mpi = eo_mpi_find();
    struct eo_mpi_exchange *outside = NULL;
    need(mpi && mpi->exchange_open(&outside, NULL, 60000, NULL) >= 0, "an exchange");
    const struct eo_exchange exchange = mpi->exchange_of(outside);
    open_side(&b, SHARED, &exchange, memory, bytes);
    open_side(&b, MESSAGES, &exchange, memory, bytes);
    static double ms[SIDES][WHATS][ROUNDS];
    for (int round = -1; round < ROUNDS; round++) { /* one that does not count */
        for (int what = 0; what < WHATS; what++) {
            for (int side = 0; side < SIDES; side++) {
                MPI_Barrier(MPI_COMM_WORLD);
                const double begin = MPI_Wtime();
                for (int i = 0; i < OPERATIONS; i++)
                    operate(&b, (enum side)side, (enum what)what, i);
                MPI_Barrier(MPI_COMM_WORLD);
                if (round >= 0)
                    ms[side][what][round] = (MPI_Wtime() - begin) * 1e3 / OPERATIONS;
            }
        }
    }
    if (b.rank == 0)
        printf("{\"ranks\": %d, \"whole_bytes\": %llu", b.rank_count,
               (unsigned long long)(b.slice_bytes * (uint64_t)b.rank_count));
    for (int side = 0; side < SIDES && b.rank == 0; side++) {
        for (int what = 0; what < WHATS; what++) {
            qsort(ms[side][what], ROUNDS, sizeof(double), compare);
            printf(", \"%s_%s_ms\": %.3f, \"%s_%s_best_ms\": %.3f", side_names[side], what_names[what],
                   ms[side][what][ROUNDS / 2], side_names[side], what_names[what], ms[side][what][0]);
        }
    }
    if (b.rank == 0)
        puts("}");
    for (int side = 0; side < PEER; side++) {
        need(b.ops[side]->quiesce(b.comms[side]) >= 0, "quiesce");
        b.ops[side]->close(b.comms[side]);
        b.ops[side]->group_release(b.groups[side]);
    }
    mpi->exchange_close(outside);
    b.device->ops->release(b.device, EO_MEMORY_KIND_GATHER, memory, bytes);
    eo_device_destroy(&b.device);
    MPI_Finalize();
    return 0;
}
