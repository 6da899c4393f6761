/* SPDX-License-Identifier: MIT
 *
 * Goal: a program with its own MPI makes worlds of any of its ranks, several at once, and splits them; its communicators
 * stay its own.
 * Method: of 3 ranks, 0 and 2 make a world (in the other order), and all make one, over messages, over shared memory and
 * as evenodd chooses; places are compared with those told by hand. evenodd's public headers only. mpirun -n 3 world_mpi
 */
#include <evenodd/evenodd.h>
#include <mpi.h>
#include <time.h>

#include "tests/tap/tap.h"

static void report(const char *name)
{
    uint32_t own = atomic_exchange(tap_notes(), 0), all = 0;
    MPI_Allreduce(&own, &all, 1, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
    tap(all == 0, "%s", name);
}

static void worlds_over(const char *collectives, int rank)
{
    MPI_Comm pair;
    eo_world *world = NULL, *whole = NULL, *inner = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, 2 - rank, &pair); /* 2 comes first */
    CHECK_THAT(eo_world_create_mpi(&whole, eo_world_mpi_params(.collectives = collectives)) == EO_OK);
    CHECK_THAT(eo_world_create_mpi(&world, eo_world_mpi_params(.communicator = &pair, .collectives = collectives)) == EO_OK);
    if (world && whole) {
        CHECK_THAT(eo_world_rank(whole) == (uint32_t)rank && eo_world_rank_count(whole) == 3);
        CHECK_THAT(eo_world_rank_count(world) == (rank == 1 ? 1 : 2) && eo_world_rank(world) == (rank == 0 ? 1 : 0));
        CHECK_THAT(eo_world_split(&inner, whole, rank == 2, 0) == EO_OK && inner);
        CHECK_THAT(inner && eo_world_rank_count(inner) == (rank == 2 ? 1 : 2) && eo_world_rank(inner) == (rank == 1 ? 1 : 0));
    }
    eo_world_destroy(&inner);
    eo_world_destroy(&world);
    eo_world_destroy(&whole);
    MPI_Comm_free(&pair);
}

static eo_plan *make_plan(uint32_t rank_count)
{
    eo_model *model = NULL;
    eo_plan *plan = NULL;
    CHECK_THAT(eo_model_create(&model, eo_model_params(.name = "line")) == EO_OK);
    CHECK_THAT(eo_model_add_layer(model, eo_layer_params(.name = "line"), NULL) == EO_OK);
    CHECK_THAT(eo_model_add_parameter(model, eo_parameter_params(.name = "w", .dim_count = 1, .dims = {100}), NULL) == EO_OK);
    CHECK_THAT(eo_model_add_position(model, eo_position_params(.layer = 0), NULL) == EO_OK);
    CHECK_THAT(eo_plan_create(&plan, model, eo_plan_params(.rank_count = rank_count)) == EO_OK);
    eo_model_destroy(&model);
    return plan;
}

/* All have a runtime; the last destroys it long after the others' deadline, and then another is made on the same world. */
static void destroyed_late(int rank)
{
    enum { TIMEOUT_MS = 1000, LATE_MS = 2500 };
    eo_plan *plan = make_plan(3);
    eo_world *world = NULL;
    eo_runtime *rt = NULL;
    char why[256] = "";
    CHECK_THAT(eo_world_create_mpi(&world, eo_world_mpi_params(.collectives = "mpi", .timeout_ms = TIMEOUT_MS)) == EO_OK);
    for (int round = 0; round < 2; round++) {
        double value = rank;
        CHECK_THAT(eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = world)) == EO_OK);
        CHECK_THAT(eo_sum(rt, &value, 1) == EO_OK && value == 3);
        if (round == 0 && rank == 2)
            nanosleep(&(const struct timespec){LATE_MS / 1000, LATE_MS % 1000 * 1000000}, NULL);
        const double begin = MPI_Wtime();
        eo_runtime_destroy(&rt);
        CHECK_THAT((MPI_Wtime() - begin) * 1000 < TIMEOUT_MS / 2.0);
        eo_world_failure(world, why, sizeof(why));
        CHECK_THAT(why[0] == '\0');
        MPI_Barrier(MPI_COMM_WORLD);
    }
    eo_world_destroy(&world);
    eo_plan_destroy(&plan);
}

int main(int argc, char **argv)
{
    int rank, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    tap_program.is_silent = rank != 0;
    worlds_over("mpi", rank);
    report("worlds of some ranks, of all, and inside another, over messages");
    worlds_over("shared", rank);
    report("over shared memory");
    worlds_over(NULL, rank);
    report("as evenodd chooses");
    eo_world *world;
    CHECK_THAT(eo_world_create_mpi(&world, eo_world_mpi_params(.collectives = "nccl")) == EO_ERR_INVALID && !world);
    CHECK_THAT(eo_mpi_start(NULL) == EO_OK);
    eo_mpi_stop(); /* not ours to stop */
    report("MPI that the program has started is the program's to end");
    destroyed_late(rank);
    report("a runtime is destroyed without waiting for the others, and the last of them finds nothing wrong");
    const int status = tap_end();
    MPI_Finalize();
    return status;
}
