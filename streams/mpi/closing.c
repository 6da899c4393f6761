/* SPDX-License-Identifier: MIT
 *
 * The end of communicators and groups. A closed one is given back to MPI when no message can come into it any more; one that
 * failed is kept until the process ends.
 */
#include <stdlib.h>

#include "base/check.h"
#include "streams/mpi/internal.h"

/* -- communicators ------------------------------------------------------------------------------------------------ */

static struct eo_comm *kept_comms; /* closed here; under the lock of MPI, for messages may still come into these */

void eo_mpi_comm_free(struct eo_comm *comm)
{
    free(comm->posts);
    free(comm->requests[0]);
    free(comm->requests[1]);
    free(comm->terms);
    free(comm->scratch[0]);
    free(comm->scratch[1]);
    free(comm);
}

void eo_mpi_comm_keep(struct eo_comm *comm)
{
    eo_mpi_lock();
    comm->next_kept = kept_comms;
    kept_comms = comm;
    eo_mpi_unlock();
}

/* Whether all ranks have closed, so that no message can come any more. Of one that still wanted something there may be
 * more: that one finds that this rank has closed. Under the lock of MPI. */
static bool has_ended(struct eo_comm *comm)
{
    int is_complete = 0;
    if (eo_mpi.Testall((int)(2 * eo_mpi_rank_count(comm)), comm->requests[0], &is_complete, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
        comm->is_stuck = true;
    for (uint32_t r = 0; r < eo_mpi_rank_count(comm) && is_complete; r++)
        if (r != comm->group->rank && comm->posts[r].kind != EO_MPI_CLOSED)
            comm->is_stuck = true;
    return is_complete && !comm->is_stuck;
}

uint32_t eo_mpi_comms_sweep(const struct eo_group *root)
{
    struct eo_comm *ended = NULL;
    uint32_t left = 0;
    eo_mpi_lock();
    for (struct eo_comm **place = &kept_comms; *place;) {
        struct eo_comm *comm = *place;
        const bool is_meant = !comm->is_stuck && (!root || comm->group->root == root) && eo_mpi_failure(comm->group) >= 0;
        if (!is_meant || !has_ended(comm)) {
            left += is_meant && !comm->is_stuck;
            place = &comm->next_kept;
            continue;
        }
        *place = comm->next_kept;
        comm->next_kept = ended;
        ended = comm;
        (void)eo_mpi.Comm_free(&comm->comm);
    }
    eo_mpi_unlock();
    while (ended) {
        struct eo_comm *comm = ended;
        struct eo_group *group = comm->group;
        ended = comm->next_kept;
        eo_mpi_comm_free(comm);
        eo_mpi_group_drop(group);
    }
    return left;
}

/* -- groups ------------------------------------------------------------------------------------------------------ */

static struct eo_group *kept_groups; /* under the lock of MPI; messages may still come into these */

/* Of a family that has failed nothing is given back to MPI: messages may be on their way into it, and what comes late
 * must not come into a communicator that is made next. The process is to end. */
void eo_mpi_group_drop(struct eo_group *group)
{
    if (!group || --group->references != 0)
        return;
    struct eo_group *root = group->root;
    const bool has_failed = eo_mpi_failure(group) < 0;
    eo_mpi_lock();
    if (group->incoming_request != eo_mpi.request_null) {
        (void)eo_mpi.Cancel(&group->incoming_request);
        (void)eo_mpi.Request_free(&group->incoming_request);
    }
    if (group->comm != eo_mpi.comm_null && !has_failed)
        (void)eo_mpi.Comm_free(&group->comm);
    if (has_failed) {
        group->next_kept = kept_groups;
        kept_groups = group;
    }
    eo_mpi_unlock();
    if (!has_failed) {
        free(group->outgoing_requests);
        free(group);
    }
    if (root != group)
        eo_mpi_group_drop(root);
}

/* The world ends: the others, as a rule, are about to close what this rank has closed. If not, it stays until MPI ends. */
void eo_mpi_group_release(struct eo_group *group)
{
    enum { LINGER_MS = 1000 };
    if (!group)
        return;
    const struct eo_group *root = group->root == group ? group : NULL; /* what is inside another ends with it */
    const uint64_t end_ns = eo_now_ns() + LINGER_MS * UINT64_C(1000000);
    eo_mpi_group_drop(group);
    for (uint32_t looks = 0; root && eo_mpi_comms_sweep(root) > 0 && eo_now_ns() < end_ns; looks++)
        eo_mpi_pause(looks);
}
