/* SPDX-License-Identifier: MIT
 *
 * Goal: a program with its own MPI makes worlds of any of its ranks, several at once, and splits them; its communicators
 * stay its own.
 * Method: of 3 ranks, 0 and 2 make a world (in the other order), and all make one, over messages, over shared memory and
 * as evenodd chooses; places are compared with those told by hand. Public headers only. mpirun -n 3 world_mpi
 */
#include <evenodd/evenodd.h>
#include <mpi.h>
#include <stdio.h>

static int failures, case_count;

static void expect(bool holds, const char *what)
{
    if (!holds)
        printf("# %s does not hold\n", what);
    failures += !holds;
}

#define EXPECT(condition) expect(condition, #condition)

static void report(const char *name, int rank)
{
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s %d - %s\n", all == failures && all == 0 ? "ok" : "not ok", ++case_count, name);
    fflush(stdout);
}

static void worlds_over(const char *collectives, int rank)
{
    MPI_Comm pair;
    eo_world *world = NULL, *whole = NULL, *inner = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, 2 - rank, &pair); /* 2 comes first */
    EXPECT(eo_world_create_mpi(&whole, eo_world_mpi_params(.collectives = collectives)) == EO_OK);
    EXPECT(eo_world_create_mpi(&world, eo_world_mpi_params(.communicator = &pair, .collectives = collectives)) == EO_OK);
    if (world && whole) {
        EXPECT(eo_world_rank(whole) == (uint32_t)rank && eo_world_rank_count(whole) == 3);
        EXPECT(eo_world_rank_count(world) == (rank == 1 ? 1 : 2) && eo_world_rank(world) == (rank == 0 ? 1 : 0));
        EXPECT(eo_world_split(&inner, whole, rank == 2, 0) == EO_OK && inner);
        EXPECT(inner && eo_world_rank_count(inner) == (rank == 2 ? 1 : 2) && eo_world_rank(inner) == (rank == 1 ? 1 : 0));
    }
    eo_world_destroy(&inner);
    eo_world_destroy(&world);
    eo_world_destroy(&whole);
    MPI_Comm_free(&pair);
}

int main(int argc, char **argv)
{
    int rank, level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    worlds_over("mpi", rank);
    report("worlds of some ranks, of all, and inside another, over messages", rank);
    worlds_over("shared", rank);
    report("over shared memory", rank);
    worlds_over(NULL, rank);
    report("as evenodd chooses", rank);
    eo_world *world;
    EXPECT(eo_world_create_mpi(&world, eo_world_mpi_params(.collectives = "nccl")) == EO_ERR_INVALID && !world);
    EXPECT(eo_mpi_start(NULL) == EO_OK);
    eo_mpi_stop(); /* not ours to stop */
    report("MPI that the program has started is the program's to end", rank);
    if (rank == 0)
        puts("1..4");
    MPI_Finalize();
    return failures != 0;
}
