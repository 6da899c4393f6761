/* SPDX-License-Identifier: MIT
 *
 * Open MPI as a library loaded at its first use; its calls under one lock, and with deadlines.
 */
#include <sched.h>
#include <time.h>

#include "base/check.h"
#include "base/library.h"
#include "streams/mpi/internal.h"

struct eo_mpi eo_mpi;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded; /* under the lock */

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

eo_status eo_mpi_load(const eo_log *log)
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

bool eo_mpi_is_loaded(void)
{
    return is_loaded;
}

/* -- with deadlines ---------------------------------------------------------------------------------------------- */

eo_status eo_mpi_await(MPI_Request *request, uint64_t limit_ns, const char *what, const eo_log *log)
{
    struct eo_stopwatch waited = eo_stopwatch_start();
    for (uint32_t looks = 0;; looks++) {
        int is_complete = 0;
        eo_mpi_lock();
        const int result = eo_mpi.Test(request, &is_complete, MPI_STATUS_IGNORE);
        eo_mpi_unlock();
        EO_TRY(eo_mpi_check(result, what, log));
        if (is_complete)
            return EO_OK;
        if (eo_stopwatch_look(&waited, EO_LOOK_NS_MAX) >= limit_ns) {
            eo_log_write(log, EO_LOG_ERROR, "mpi: %s: a rank missed the deadline", what);
            return EO_ERR_TIMEOUT;
        }
        eo_mpi_pause(looks);
    }
}

eo_status eo_mpi_duplicate(MPI_Comm *out, MPI_Comm of, uint64_t limit_ns, const eo_log *log)
{
    MPI_Request request;
    eo_mpi_lock();
    const int result = eo_mpi.Comm_idup(of, out, &request);
    eo_mpi_unlock();
    EO_TRY(eo_mpi_check(result, "MPI_Comm_idup", log));
    EO_TRY(eo_mpi_await(&request, limit_ns, "MPI_Comm_idup", log));
    eo_mpi_lock();
    (void)eo_mpi.Comm_set_errhandler(*out, eo_mpi.errors_return);
    eo_mpi_unlock();
    return EO_OK;
}
