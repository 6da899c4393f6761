/* SPDX-License-Identifier: MIT */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/library.h"
#include "streams/mpi/internal.h"

struct eo_mpi eo_mpi;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded, is_started_here; /* under the lock */

void eo_mpi_lock(void)
{
    pthread_mutex_lock(&lock);
}

void eo_mpi_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

eo_status eo_mpi_check(int result, const char *what, const eo_log *log)
{
    if (result == MPI_SUCCESS)
        return EO_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)eo_mpi.Error_string(result, text, &length);
    eo_log_write(log, EO_LOG_ERROR, "mpi: %s: %s", what, text);
    return EO_ERR_COMM;
}

/* Short looks first, for messages take microseconds; then the processor is for who computes. */
void eo_mpi_pause(uint32_t looks)
{
    enum { SPINS = 50, YIELDS = 2000, LONG_NS = 50000 };
    if (looks < SPINS)
        return;
    if (looks < YIELDS)
        sched_yield();
    else
        (void)nanosleep(&(const struct timespec){0, LONG_NS}, NULL);
}

/* -- the library ------------------------------------------------------------------------------------------------- */

/*
 * Handles of Open MPI are addresses of objects of the library: the build has seen that mpi.h is its. A program that is
 * linked with it may have these objects itself (copied by the loader), so they are looked for as the library finds them.
 */
static bool find_handles(void)
{
    eo_mpi.world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    eo_mpi.comm_null = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_null");
    eo_mpi.byte = dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
    eo_mpi.errors_return = dlsym(RTLD_DEFAULT, "ompi_mpi_errors_return");
    eo_mpi.request_null = dlsym(RTLD_DEFAULT, "ompi_request_null");
    return eo_mpi.world && eo_mpi.comm_null && eo_mpi.byte && eo_mpi.errors_return && eo_mpi.request_null;
}

static const char *find_functions(void)
{
#define X(name)                                                                                                       \
    *(void **)&eo_mpi.name = dlsym(RTLD_DEFAULT, "MPI_" #name);                                                            \
    if (!eo_mpi.name)                                                                                                 \
        return "MPI_" #name;
    EO_MPI_FUNCTIONS(X)
#undef X
    return NULL;
}

static eo_status load(const eo_log *log)
{
    if (is_loaded)
        return EO_OK;
    static const char *const names[] = {"libmpi.so.40", "libmpi.so"};
    char problem[600];
    void *library = NULL;
    /* Global: the library's own plugins look for its symbols there. Where the program has linked it, it is the same. */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++)
        library = eo_library_open(names[i], NULL, RTLD_NOW | RTLD_GLOBAL, problem, sizeof(problem));
    if (!library) {
        eo_log_write(log, EO_LOG_ERROR, "mpi: cannot load Open MPI: %s", problem);
        return EO_ERR_UNSUPPORTED;
    }
    const char *missing = find_functions();
    if (missing || !find_handles()) {
        eo_log_write(log, EO_LOG_ERROR, "mpi: this library is not the Open MPI of evenodd's build: it has no %s",
                     missing ? missing : "handles of its kind");
        return EO_ERR_UNSUPPORTED;
    }
    is_loaded = true;
    return EO_OK;
}

static eo_status start(const eo_log *log)
{
    int is_there = 0, is_over = 0, level = MPI_THREAD_SINGLE;
    EO_TRY(load(log));
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
    if (is_loaded) /* not under the lock: whoever hangs may have it */
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

/* -- with deadlines ---------------------------------------------------------------------------------------------- */

static eo_status await(MPI_Request *request, uint64_t deadline_ns, const char *what, const eo_log *log)
{
    for (uint32_t looks = 0;; looks++) {
        int is_complete = 0;
        eo_mpi_lock();
        const int result = eo_mpi.Test(request, &is_complete, MPI_STATUS_IGNORE);
        eo_mpi_unlock();
        EO_TRY(eo_mpi_check(result, what, log));
        if (is_complete)
            return EO_OK;
        if (eo_now_ns() >= deadline_ns) {
            eo_log_write(log, EO_LOG_ERROR, "mpi: %s: a rank missed the deadline", what);
            return EO_ERR_TIMEOUT;
        }
        eo_mpi_pause(looks);
    }
}

eo_status eo_mpi_duplicate(MPI_Comm *out, MPI_Comm of, uint64_t deadline_ns, const eo_log *log)
{
    MPI_Request request;
    eo_mpi_lock();
    const int result = eo_mpi.Comm_idup(of, out, &request);
    eo_mpi_unlock();
    EO_TRY(eo_mpi_check(result, "MPI_Comm_idup", log));
    EO_TRY(await(&request, deadline_ns, "MPI_Comm_idup", log));
    eo_mpi_lock();
    (void)eo_mpi.Comm_set_errhandler(*out, eo_mpi.errors_return);
    eo_mpi_unlock();
    return EO_OK;
}

struct eo_mpi_exchange {
    MPI_Comm comm;
    uint32_t timeout_ms;
    eo_log log;
};

static eo_status exchange_all_gather(void *user, const void *send, uint32_t bytes, void *recv)
{
    struct eo_mpi_exchange *exchange = user;
    MPI_Request request;
    eo_mpi_lock();
    const int result = eo_mpi.Iallgather(send, (int)bytes, eo_mpi.byte, recv, (int)bytes, eo_mpi.byte, exchange->comm,
                                         &request);
    eo_mpi_unlock();
    EO_TRY(eo_mpi_check(result, "MPI_Iallgather", &exchange->log));
    return await(&request, eo_now_ns() + exchange->timeout_ms * UINT64_C(1000000), "MPI_Iallgather", &exchange->log);
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
    const eo_status status =
        eo_mpi_duplicate(&exchange->comm, communicator ? *(const MPI_Comm *)communicator : eo_mpi.world,
                         eo_now_ns() + exchange->timeout_ms * UINT64_C(1000000), log);
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

static void exchange_close(struct eo_mpi_exchange *exchange)
{
    if (!exchange)
        return;
    eo_mpi_lock();
    (void)eo_mpi.Comm_free(&exchange->comm);
    eo_mpi_unlock();
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
