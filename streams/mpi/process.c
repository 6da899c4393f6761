/* SPDX-License-Identifier: MIT
 *
 * A process of MPI: its start and end, its place among the others, and data that all exchange before a world is made.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "streams/mpi/internal.h"

static bool is_started_here; /* under the lock */

static eo_status start(const eo_log *log)
{
    int is_there = 0, is_over = 0, level = MPI_THREAD_SINGLE;
    EO_TRY(eo_mpi_load(log));
    EO_TRY(eo_mpi_check(eo_mpi.Finalized(&is_over), "MPI_Finalized", log));
    EO_REQUIRE(log, !is_over, "mpi: MPI_Finalize was already called");
    EO_TRY(eo_mpi_check(eo_mpi.Initialized(&is_there), "MPI_Initialized", log));
    if (!is_there) {
        EO_TRY(eo_mpi_check(eo_mpi.Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread", log));
        is_started_here = true;
    }
    EO_TRY(eo_mpi_check(eo_mpi.Query_thread(&level), "MPI_Query_thread", log));
    EO_REQUIRE(log, level >= MPI_THREAD_SERIALIZED,
               "mpi: MPI was started for one thread; start it with MPI_Init_thread and MPI_THREAD_SERIALIZED, or, if the "
               "program calls MPI while a runtime works, MPI_THREAD_MULTIPLE");
    return EO_OK;
}

static eo_status start_process(const eo_log *log)
{
    eo_mpi_lock();
    const eo_status status = start(log);
    eo_mpi_unlock();
    return status;
}

/* All ranks come here, having closed what they had; after a failure not all do. */
static void await_closed(void)
{
    enum { MOST_MS = 10000 };
    const uint64_t end_ns = eo_now_ns() + MOST_MS * UINT64_C(1000000);
    for (uint32_t looks = 0; eo_mpi_comms_sweep(NULL) > 0 && eo_now_ns() < end_ns; looks++)
        eo_mpi_pause(looks);
}

static void process_stop(void)
{
    if (is_started_here)
        await_closed();
    eo_mpi_lock();
    if (is_started_here)
        (void)eo_mpi.Finalize();
    is_started_here = false;
    eo_mpi_unlock();
}

static void process_abort(int exit_status)
{
    if (eo_mpi_is_loaded()) /* not under the lock: whoever hangs may have it */
        (void)eo_mpi.Abort(eo_mpi.world, exit_status);
}

static eo_status process_place(const void *communicator, struct eo_group_place *place, const eo_log *log)
{
    int rank = 0, count = 0;
    EO_TRY(start_process(log));
    const MPI_Comm comm = communicator ? *(const MPI_Comm *)communicator : eo_mpi.world;
    eo_mpi_lock();
    eo_status status = eo_mpi_check(eo_mpi.Comm_rank(comm, &rank), "MPI_Comm_rank", log);
    if (status >= 0)
        status = eo_mpi_check(eo_mpi.Comm_size(comm, &count), "MPI_Comm_size", log);
    eo_mpi_unlock();
    *place = (struct eo_group_place){(uint32_t)rank, (uint32_t)count};
    return status;
}

struct eo_mpi_exchange {
    MPI_Comm comm;
    int rank_count;
    uint32_t timeout_ms;
    eo_log log;
    unsigned char *room; /* of the call in progress: a blob of ours, and then one of each rank */
    bool is_stuck;       /* that call has failed, and MPI may still write into the room */
    struct eo_mpi_exchange *next_kept;
};

/* Callers keep their memory for the time of the call alone; what is late comes into the room, which then stays. */
static eo_status exchange_all_gather(void *user, const void *send, uint32_t bytes, void *recv)
{
    struct eo_mpi_exchange *exchange = user;
    const size_t all_bytes = (size_t)bytes * (size_t)exchange->rank_count;
    MPI_Request request;
    if (exchange->is_stuck) {
        eo_log_write(&exchange->log, EO_LOG_ERROR, "mpi: an exchange before this one has failed");
        return EO_ERR_COMM;
    }
    exchange->room = malloc(bytes + all_bytes + 1);
    if (!exchange->room)
        return EO_ERR_NO_MEMORY;
    memcpy(exchange->room, send, bytes);
    eo_mpi_lock();
    const int result = eo_mpi.Iallgather(exchange->room, (int)bytes, eo_mpi.byte, exchange->room + bytes, (int)bytes,
                                         eo_mpi.byte, exchange->comm, &request);
    eo_mpi_unlock();
    exchange->is_stuck = true;
    EO_TRY(eo_mpi_check(result, "MPI_Iallgather", &exchange->log));
    EO_TRY(eo_mpi_await(&request, exchange->timeout_ms * UINT64_C(1000000), "MPI_Iallgather", &exchange->log));
    exchange->is_stuck = false;
    memcpy(recv, exchange->room + bytes, all_bytes);
    free(exchange->room);
    return EO_OK;
}

static eo_status exchange_open(struct eo_mpi_exchange **out, const void *communicator, uint32_t timeout_ms,
                               const eo_log *log)
{
    *out = NULL;
    EO_TRY(start_process(log));
    struct eo_mpi_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return EO_ERR_NO_MEMORY;
    exchange->timeout_ms = timeout_ms ? timeout_ms : 60000;
    exchange->log = log ? *log : (eo_log){0};
    const MPI_Comm comm = communicator ? *(const MPI_Comm *)communicator : eo_mpi.world;
    eo_mpi_lock();
    eo_status status = eo_mpi_check(eo_mpi.Comm_size(comm, &exchange->rank_count), "MPI_Comm_size", log);
    eo_mpi_unlock();
    if (status >= 0)
        status = eo_mpi_duplicate(&exchange->comm, comm, exchange->timeout_ms * UINT64_C(1000000), log);
    if (status < 0) {
        free(exchange);
        return status;
    }
    *out = exchange;
    return EO_OK;
}

static struct eo_exchange exchange_of(struct eo_mpi_exchange *exchange)
{
    return (struct eo_exchange){exchange_all_gather, exchange};
}

static struct eo_mpi_exchange *kept_exchanges; /* under the lock of MPI; until the process ends */

static void exchange_close(struct eo_mpi_exchange *exchange)
{
    if (!exchange)
        return;
    const bool is_kept = exchange->is_stuck;
    eo_mpi_lock();
    if (is_kept) {
        exchange->next_kept = kept_exchanges;
        kept_exchanges = exchange;
    } else {
        (void)eo_mpi.Comm_free(&exchange->comm);
    }
    eo_mpi_unlock();
    if (!is_kept)
        free(exchange);
}

const struct eo_mpi_ops eo_mpi_process_ops = {
    .start = start_process,
    .stop = process_stop,
    .end_all = process_abort,
    .place = process_place,
    .exchange_open = exchange_open,
    .exchange_of = exchange_of,
    .exchange_close = exchange_close,
};
