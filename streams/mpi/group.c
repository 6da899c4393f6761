/* SPDX-License-Identifier: MIT
 *
 * Groups over MPI, and how a failure goes round.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "streams/mpi/internal.h"

enum { TIMEOUT_MS_DEFAULT = 60000 };

/* -- failures ---------------------------------------------------------------------------------------------------- */

/* To all ranks of the root; small enough to go without a receiver. Under the lock of MPI. */
static void send_notices(struct eo_group *root)
{
    for (uint32_t r = 0; r < root->params.rank_count; r++)
        if (r != root->rank)
            (void)eo_mpi.Isend(&root->first, (int)sizeof(root->first), eo_mpi.byte, (int)r, EO_MPI_TAG_NOTICE,
                               root->comm, &root->outgoing_requests[r]);
}

eo_status eo_mpi_fail(struct eo_group *group, eo_status status, const char *format, ...)
{
    struct eo_group *root = group->root;
    eo_mpi_lock();
    const bool is_first = atomic_load(&root->failure) == EO_OK;
    if (is_first) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(root->first.text, sizeof(root->first.text), format, arguments);
        va_end(arguments);
        if (group != root)
            eo_comm_say_split(root->first.text, sizeof(root->first.text));
        root->first.status = status;
        atomic_store(&root->failure, status);
        send_notices(root);
    }
    eo_mpi_unlock();
    if (is_first) /* not under the lock: the callback may ask for the text */
        eo_log_write(&group->log, EO_LOG_ERROR, "%s", root->first.text);
    return eo_mpi_failure(group);
}

eo_status eo_mpi_look(struct eo_group *group)
{
    struct eo_group *root = group->root;
    int has_come = 0;
    if (eo_mpi_failure(root) == EO_OK && root->incoming_request != eo_mpi.request_null &&
        eo_mpi.Test(&root->incoming_request, &has_come, MPI_STATUS_IGNORE) == MPI_SUCCESS && has_come) {
        root->first = root->incoming;
        root->first.text[sizeof(root->first.text) - 1] = '\0';
        atomic_store(&root->failure, root->first.status < 0 ? root->first.status : EO_ERR_COMM);
    }
    return eo_mpi_failure(root);
}

void eo_mpi_group_abort(struct eo_group *group, uint32_t rank, const char *reason)
{
    (void)eo_mpi_fail(group->root, EO_ERR_COMM, "rank %u gave up: %s", rank, reason ? reason : "no reason given");
}

void eo_mpi_group_failure(struct eo_group *group, char *text, size_t bytes)
{
    eo_mpi_lock();
    snprintf(text, bytes, "%s", eo_mpi_look(group) < 0 ? group->root->first.text : "");
    eo_mpi_unlock();
}

/* -- making and ending ------------------------------------------------------------------------------------------- */

static eo_status make_group(struct eo_group **out, const struct eo_group_params *params, uint32_t rank,
                            struct eo_group *root)
{
    struct eo_group *group = calloc(1, sizeof(*group));
    MPI_Request *requests = calloc(params->rank_count, sizeof(*requests));
    if (!group || !requests) {
        free(group);
        free(requests);
        return EO_ERR_NO_MEMORY;
    }
    group->params = *params;
    group->params.join = NULL; /* the caller's, for the time of the call */
    if (params->timeout_ms == 0)
        group->params.timeout_ms = TIMEOUT_MS_DEFAULT;
    if (params->log)
        group->log = *params->log;
    group->params.log = &group->log;
    group->rank = rank;
    group->root = root ? root : group;
    group->references = 1;
    group->outgoing_requests = requests;
    group->comm = eo_mpi.comm_null;
    group->incoming_request = eo_mpi.request_null;
    for (uint32_t r = 0; r < params->rank_count; r++)
        requests[r] = eo_mpi.request_null;
    *out = group;
    return EO_OK;
}

eo_status eo_mpi_group_create(struct eo_group **out, const struct eo_group_params *params)
{
    const struct eo_group_join *join = params->join;
    *out = NULL;
    EO_REQUIRE(params->log, join, "mpi: ranks are processes, and join one by one");
    struct eo_group_place place;
    const MPI_Comm *communicator = join->communicator;
    EO_TRY(eo_mpi_process_ops.place(communicator, &place, params->log));
    EO_REQUIRE(params->log, place.rank == join->rank && place.rank_count == params->rank_count,
               "mpi: its communicator has rank %u of %u, the world rank %u of %u; start the program with mpirun",
               place.rank, place.rank_count, join->rank, params->rank_count);
    EO_REQUIRE(params->log, !(params->fabric_gigabytes_per_s > 0), "mpi: a simulated link works only for ranks of one machine");
    struct eo_group *group;
    EO_TRY(make_group(&group, params, join->rank, NULL));
    eo_status status =
        eo_mpi_duplicate(&group->comm, communicator ? *communicator : eo_mpi.world, eo_mpi_join_limit_ns(group), &group->log);
    if (status >= 0) {
        eo_mpi_lock();
        const int result = eo_mpi.Irecv(&group->incoming, (int)sizeof(group->incoming), eo_mpi.byte, MPI_ANY_SOURCE,
                                        EO_MPI_TAG_NOTICE, group->comm, &group->incoming_request);
        eo_mpi_unlock();
        status = eo_mpi_check(result, "MPI_Irecv", &group->log);
    }
    if (status < 0) {
        eo_mpi_group_release(group);
        return status;
    }
    *out = group;
    return EO_OK;
}

/* -- splitting --------------------------------------------------------------------------------------------------- */

/* MPI_Comm_split has no form with a deadline: first all come together in one that has. */
static eo_status split_comm(MPI_Comm *out, struct eo_group *parent, uint32_t color, uint32_t key)
{
    MPI_Comm together;
    EO_TRY(eo_mpi_duplicate(&together, parent->comm, eo_mpi_join_limit_ns(parent), &parent->log));
    eo_mpi_lock();
    (void)eo_mpi.Comm_free(&together);
    const int result = eo_mpi.Comm_split(parent->comm, color == EO_GROUP_NO_COLOR ? MPI_UNDEFINED : (int)color, (int)key,
                                         out);
    if (result == MPI_SUCCESS && *out != eo_mpi.comm_null)
        (void)eo_mpi.Comm_set_errhandler(*out, eo_mpi.errors_return);
    eo_mpi_unlock();
    return eo_mpi_check(result, "MPI_Comm_split", &parent->log);
}

eo_status eo_mpi_group_split(struct eo_group **out, struct eo_group_place *place, struct eo_group *parent,
                             uint32_t rank, uint32_t color, uint32_t key)
{
    *out = NULL;
    *place = (struct eo_group_place){0};
    EO_REQUIRE(&parent->log, rank == parent->rank, "split: rank %u is not the rank of this process, %u", rank,
               parent->rank);
    EO_REQUIRE(&parent->log, (color <= INT32_MAX || color == EO_GROUP_NO_COLOR) && key <= INT32_MAX,
               "split: color %u, key %u; MPI takes numbers up to %d", color, key, INT32_MAX);
    MPI_Comm comm;
    EO_TRY(eo_mpi_failure(parent));
    const eo_status split = split_comm(&comm, parent, color, key);
    if (split < 0)
        return eo_mpi_fail(parent, split, "rank %u: cannot split the group: not all ranks came within %u ms", rank,
                           parent->params.timeout_ms);
    if (comm == eo_mpi.comm_null)
        return EO_OK;
    struct eo_group_place found;
    struct eo_group_params params = parent->params;
    struct eo_group *group = NULL;
    eo_status status = eo_mpi_process_ops.place(&comm, &found, &parent->log);
    params.rank_count = found.rank_count;
    if (status >= 0)
        status = make_group(&group, &params, found.rank, parent->root);
    if (status < 0)
        return eo_mpi_fail(parent, status, "rank %u: no group inside the group: %s", rank, eo_status_text(status));
    group->comm = comm;
    parent->root->references++; /* the new group's own */
    *place = found;
    *out = group;
    return EO_OK;
}
