/* SPDX-License-Identifier: MIT
 *
 * A rank is a process, on one host or several: the line of line.c once more. Start it by one of these:
 *
 *     evenodd-launch -n 2 ./processes
 *     mpirun -n 2 ./processes                          several hosts: --hostfile hosts -x MASTER_ADDR=... -x EVENODD_TOKEN_FILE=...
 *     srun --mpi=pmix --ntasks-per-node=4 ./processes  MASTER_ADDR and EVENODD_TOKEN_FILE are in its environment
 *     torchrun --no-python --nproc-per-node=2 ./processes    CPU ranks: one host only
 *
 * CPU ranks of several hosts reach each other by MPI, so mpirun of Open MPI or srun --mpi=pmix must start them.
 * The token is 64 hexadecimal digits: (umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >token)
 */
#include <evenodd/evenodd.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Where each launcher says it. `restart` counts the starts of one job: ranks of an earlier start must not meet new ones. */
static const struct launcher {
    const char *rank, *ranks, *local_rank, *local_ranks, *job, *restart;
} launchers[] = {
    {"EVENODD_RANK", "EVENODD_RANKS", "EVENODD_LOCAL_RANK", "EVENODD_LOCAL_RANKS", "EVENODD_JOB", "EVENODD_RESTART"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "PMIX_NAMESPACE", "EVENODD_RESTART"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};

struct place {
    uint32_t rank, ranks, local_rank, local_ranks;
    char job[200];
    const char *address, *port;
    bool has_token;
    unsigned char token[EO_TOKEN_BYTES];
};

/* The thread of the rendezvous uses the world, too. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static eo_world *world;

static void write_line(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", text);
}

static const eo_log log_to_stderr = {.write = write_line, .level = EO_LOG_WARN};

static const char *value_of(const char *name, const char *otherwise)
{
    const char *text = getenv(name);
    return text && text[0] ? text : otherwise;
}

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *text = value_of(name, NULL);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static bool read_token(struct place *place, const char *path)
{
    FILE *file = fopen(path, "r");
    bool is_whole = file != NULL;
    for (int i = 0; i < EO_TOKEN_BYTES && is_whole; i++) {
        unsigned int byte = 0;
        is_whole = fscanf(file, "%2x", &byte) == 1;
        place->token[i] = (unsigned char)byte;
    }
    if (file)
        fclose(file);
    if (!is_whole)
        fprintf(stderr, "%s does not hold 64 hexadecimal digits\n", path);
    place->has_token = is_whole;
    return is_whole;
}

static bool find_place(struct place *place)
{
    *place = (struct place){.ranks = 1, .local_ranks = 1};
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        const struct launcher *l = &launchers[i];
        if (!value_of(l->rank, NULL) || !value_of(l->ranks, NULL))
            continue;
        *place = (struct place){.rank = number_of(l->rank, 0), .ranks = number_of(l->ranks, 1),
                                .local_rank = number_of(l->local_rank, 0), .local_ranks = number_of(l->local_ranks, 1)};
        snprintf(place->job, sizeof(place->job), "%.100s.%.60s", value_of(l->job, ""), value_of(l->restart, ""));
        break;
    }
    const char *token = value_of("EVENODD_TOKEN_FILE", NULL);
    place->address = value_of("EVENODD_ADDRESS", value_of("MASTER_ADDR", NULL));
    place->port = value_of("EVENODD_PORT", "29517"); /* not MASTER_PORT: torchrun listens there itself */
    return !token || read_token(place, token);
}

/* By the thread of the rendezvous: another process is lost, or has given up. */
static void on_failed(void *user, const eo_rank_failure *failure)
{
    (void)user;
    fprintf(stderr, "%s\n", failure->text);
    alarm(2); /* ends this process even where a library below does not come back */
    pthread_mutex_lock(&mutex);
    eo_world_abort(world, failure->text); /* ends this rank's collective at once */
    pthread_mutex_unlock(&mutex);
}

static eo_status train(eo_runtime *rt, double *squares) /* fits y = 3 x - 1 */
{
    const eo_view *view;
    eo_step_report report;
    for (int step = 0; step < 300; step++) {
        const float x = (float)(step % 7 - 3) + 0.5f * (float)eo_runtime_rank(rt);
        EO_TRY(eo_step_begin(rt));
        EO_TRY(eo_forward_begin(rt, 0, &view));
        const float *w = view->weights[0], error = w[0] * x + w[1] - (3 * x - 1);
        EO_TRY(eo_forward_end(rt, 0));
        EO_TRY(eo_backward_begin(rt, 0, &view));
        EO_TRY(eo_gradients_begin(rt, 0, &view));
        float *gradient = view->gradients[0];
        gradient[0] = error * eo_loss_scale(rt) * x, gradient[1] = error * eo_loss_scale(rt);
        EO_TRY(eo_backward_end(rt, 0));
        EO_TRY(eo_step_end(rt, eo_step_params(.learning_rate = 0.05f, .values = {error * error}), &report));
    }
    *squares = report.values[0];
    return EO_OK;
}

static eo_status run(eo_world *own, double *squares)
{
    eo_model *model = NULL;
    eo_plan *plan = NULL;
    eo_runtime *rt = NULL;
    eo_status status = eo_model_create(&model, eo_model_params(.name = "a line", .log = &log_to_stderr));
    if (status >= 0)
        status = eo_model_add_layer(model, eo_layer_params(.name = "line"), NULL);
    if (status >= 0)
        status = eo_model_add_parameter(model, eo_parameter_params(.name = "w", .dim_count = 1, .dims = {2}), NULL);
    if (status >= 0)
        status = eo_model_add_position(model, eo_position_params(.layer = 0), NULL);
    if (status >= 0)
        status = eo_plan_create(&plan, model, eo_plan_params(.rank_count = eo_world_rank_count(own), .log = &log_to_stderr));
    if (status >= 0)
        status = eo_runtime_create(&rt, eo_runtime_params(.plan = plan, .world = own, .log = &log_to_stderr));
    if (status >= 0)
        status = train(rt, squares);
    eo_runtime_destroy(&rt);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return status;
}

int main(int argc, char **argv) /* [COLLECTIVES] */
{
    struct place place;
    eo_rendezvous *rendezvous = NULL;
    eo_world *joined = NULL;
    double squares = 0;
    if (!find_place(&place))
        return EXIT_FAILURE;
    eo_status status = eo_rendezvous_create(
        &rendezvous, eo_rendezvous_params(.rank = place.rank, .rank_count = place.ranks, .local_rank = place.local_rank,
                                          .local_count = place.local_ranks, .address = place.address, .port = place.port,
                                          .token = place.has_token ? place.token : NULL, .job = place.job,
                                          .failed = on_failed, .log = &log_to_stderr));
    if (status >= 0)
        status = eo_world_create_joined(&joined, eo_world_join_params(.rendezvous = rendezvous, .log = &log_to_stderr,
                                                                      .collectives = argc > 1 ? argv[1] : NULL));
    pthread_mutex_lock(&mutex);
    world = joined;
    pthread_mutex_unlock(&mutex);
    if (status >= 0)
        status = run(joined, &squares);
    if (status < 0) { /* the other processes learn of it from the rendezvous, and abort their worlds */
        eo_rendezvous_fail(rendezvous, status, eo_status_text(status));
        eo_world_abort(joined, eo_status_text(status));
    }
    pthread_mutex_lock(&mutex);
    world = NULL;
    pthread_mutex_unlock(&mutex);
    eo_world_destroy(&joined);
    eo_rendezvous_destroy(&rendezvous); /* after success it waits for all ranks */
    if (status < 0)
        _exit(EXIT_FAILURE); /* no eo_mpi_stop after a failure: it could wait for ever */
    eo_mpi_stop(); /* if the world was over MPI; mpirun reports a process without it as failed */
    if (place.rank == 0)
        printf("sum of squared errors: %g\n", squares);
    return EXIT_SUCCESS;
}
