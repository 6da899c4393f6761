/* SPDX-License-Identifier: MIT
 *
 * Goal: a forked child of a rank (a data loader, say) keeps nobody from learning that the rank is lost, nor the job from
 * starting again; its destructors leave what is the rank's alone. Nor does the rendezvous' own thread destroy itself.
 * Method: ranks are processes with a rendezvous, and leave sleeping children behind; a rank with one of each object forks a
 * child that destroys all of them.
 */
#include <evenodd/evenodd.h>
#if EO_TEST_LAYERS
#include <evenodd/layers.h>
#endif

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap/tap.h"

/* Signs of life are of no use here: who learns of a loss in time was told by the end of a connection. */
enum { SILENCE_MS = 60000, JOIN_MS = 20000, PATIENCE_S = 20, STATUS_TOLD = 3 };

static char job[64], log_text[4000];

static void keep_log(void *user, eo_log_level level, const char *text)
{
    const size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", text);
}

static const eo_log log_kept = {.write = keep_log, .level = EO_LOG_WARN};

static void on_failed(void *user, const eo_rank_failure *failure)
{
    _exit(failure->lost && failure->rank == 1 - *(uint32_t *)user ? STATUS_TOLD : 1);
}

static eo_rendezvous *meet(uint32_t rank, void (*failed)(void *user, const eo_rank_failure *failure), void *user)
{
    eo_rendezvous *rv = NULL;
    if (eo_rendezvous_create(&rv, eo_rendezvous_params(.rank = rank, .rank_count = 2, .local_rank = rank, .local_count = 2,
                                                       .job = job, .timeout_ms = JOIN_MS, .silence_ms = SILENCE_MS,
                                                       .failed = failed, .user = user, .log = &log_kept)) < 0)
        _exit(2);
    return rv;
}

static void sleep_for_ever(void)
{
    for (;;)
        pause();
}

/* Its child's number goes to `tell`. */
static void lost_rank(uint32_t rank, int tell)
{
    (void)meet(rank, NULL, NULL);
    const pid_t child = fork();
    if (child == 0)
        sleep_for_ever();
    if (write(tell, &child, sizeof(child)) != sizeof(child))
        _exit(2);
    sleep_for_ever();
}

static void other_rank(uint32_t rank)
{
    alarm(PATIENCE_S);
    (void)meet(rank, on_failed, &rank);
    sleep_for_ever();
}

static pid_t start(void (*body)(uint32_t rank, int tell), uint32_t rank, int tell)
{
    const pid_t pid = fork();
    if (pid == 0) {
        body(rank, tell);
        _exit(0);
    }
    return pid;
}

static void other_rank_of(uint32_t rank, int tell)
{
    (void)tell;
    other_rank(rank);
}

static void meets_again(uint32_t rank, int tell)
{
    (void)tell;
    alarm(PATIENCE_S);
    eo_rendezvous *rv = meet(rank, NULL, NULL);
    eo_rendezvous_destroy(&rv);
}

static bool ended_with(pid_t pid, int wanted)
{
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == wanted;
}

static void rank_with_a_child(uint32_t victim)
{
    int told[2];
    pid_t child = 0;
    snprintf(job, sizeof(job), "forked %d %u", (int)getpid(), victim);
    if (pipe(told) != 0)
        exit(1);
    const pid_t other = start(other_rank_of, 1 - victim, -1), lost = start(lost_rank, victim, told[1]);
    CHECK_THAT(read(told[0], &child, sizeof(child)) == sizeof(child));
    usleep(100000);
    (void)kill(lost, SIGKILL);
    (void)waitpid(lost, NULL, 0);
    CHECK_THAT(ended_with(other, STATUS_TOLD));
    const pid_t first = start(meets_again, 0, -1), second = start(meets_again, 1, -1);
    const bool first_ended = ended_with(first, 0); /* both are waited for */
    CHECK_THAT(ended_with(second, 0) && first_ended);
    if (child > 0)
        (void)kill(child, SIGKILL);
    close(told[0]);
    close(told[1]);
}

/* -- a child that destroys -----------------------------------------------------------------------------------------*/

static char folder[] = "/tmp/forked-XXXXXX";

static eo_plan *small_plan(void)
{
    eo_model *model = NULL;
    eo_plan *plan = NULL;
    uint32_t layer;
    if (eo_model_create(&model, eo_model_params(.name = "small")) < 0 ||
        eo_model_add_layer(model, eo_layer_params(.name = "layer"), &layer) < 0 ||
        eo_model_add_parameter(model, eo_parameter_params(.layer = layer, .name = "weight", .dims = {64}, .dim_count = 1),
                               NULL) < 0 ||
        eo_model_add_position(model, eo_position_params(.layer = layer), NULL) < 0 ||
        eo_plan_create(&plan, model, eo_plan_params(.rank_count = 1)) < 0)
        exit(1);
    eo_model_destroy(&model);
    return plan;
}

struct objects {
    eo_plan *plan;
    eo_world *world;
    eo_rendezvous *rendezvous;
    eo_flight_recorder *recorder;
    eo_runtime *runtime;
    eo_saver *saver;
};

static void destroy_all(struct objects *o)
{
    eo_saver_destroy(&o->saver);
    eo_runtime_destroy(&o->runtime);
    eo_flight_recorder_destroy(&o->recorder);
    eo_world_destroy(&o->world);
    eo_rendezvous_destroy(&o->rendezvous);
    eo_plan_destroy(&o->plan);
}

static void child_destroys(void)
{
    char recorded[64];
    double sum = 1;
    struct objects o = {.plan = small_plan()};
    eo_saver *second = NULL;
    eo_flight_log *flight = NULL;
    snprintf(recorded, sizeof(recorded), "%s/flight", folder);
    CHECK_IS(eo_rendezvous_create(&o.rendezvous, eo_rendezvous_params(.rank_count = 1)), EO_OK);
    CHECK_IS(eo_world_create_joined(&o.world, eo_world_join_params(.rendezvous = o.rendezvous)), EO_OK);
    CHECK_IS(eo_flight_recorder_create(&o.recorder, eo_flight_recorder_params(.path = recorded, .rank_count = 1)), EO_OK);
    CHECK_IS(eo_runtime_create(&o.runtime, eo_runtime_params(.plan = o.plan, .world = o.world, .recorder = o.recorder)), EO_OK);
    CHECK_IS(eo_saver_create(&o.saver, eo_saver_params(.runtime = o.runtime, .folder = folder)), EO_OK);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        destroy_all(&o);
        _exit(o.saver || o.runtime || o.recorder || o.world || o.rendezvous);
    }
    CHECK_THAT(ended_with(child, 0));
    CHECK_IS(eo_saver_create(&second, eo_saver_params(.runtime = o.runtime, .folder = folder)), EO_ERR_INVALID);
    CHECK_THAT(eo_flight_log_open(&flight, recorded, NULL) == EO_OK && !eo_flight_log_info(flight).finished);
    eo_flight_log_close(&flight);
    CHECK_THAT(eo_sum(o.runtime, &sum, 1) == EO_OK && sum == 1);
    CHECK_THAT(eo_saver_begin(o.saver, NULL, 0) == EO_OK && eo_saver_wait(o.saver, NULL) == EO_OK);
    destroy_all(&o);
}

/* -- the rendezvous' own thread ------------------------------------------------------------------------------------*/

static int tried[2];

static void destroy_within(void *user, const eo_rank_failure *failure)
{
    eo_rendezvous **rv = user;
    (void)failure;
    eo_rendezvous_destroy(rv);
    const char is_left = *rv != NULL;
    if (write(tried[1], &is_left, 1) != 1)
        _exit(1);
}

static void destroys_within(uint32_t rank, int tell)
{
    static eo_rendezvous *rv;
    char is_left = 0;
    (void)tell;
    alarm(PATIENCE_S);
    if (pipe(tried) != 0)
        _exit(1);
    rv = meet(rank, destroy_within, &rv);
    unsigned char mine = 1, all[2]; /* the other one has its handle, too, when this one fails */
    if (eo_rendezvous_all_gather(rv, &mine, 1, all) < 0)
        _exit(1);
    eo_rendezvous_fail(rv, EO_ERR_IO, "the test ends it");
    const bool was_told = read(tried[0], &is_left, 1) == 1 && is_left;
    eo_rendezvous_destroy(&rv);
    _exit(was_told && !rv && strstr(log_text, "eo_rendezvous_destroy within `failed`") ? 0 : 1);
}

#if EO_TEST_LAYERS
/* -- signals -------------------------------------------------------------------------------------------------------*/

static unsigned long long blocked_by(const char *thread)
{
    char path[300], line[300];
    unsigned long long mask = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file) && sscanf(line, "SigBlk: %llx", &mask) != 1)
        ;
    if (file)
        fclose(file);
    return mask;
}

static void signals_are_the_trainers(void)
{
    const unsigned long long term = 1ull << (SIGTERM - 1), fault = 1ull << (SIGSEGV - 1);
    char self[32];
    int others = 0;
    eo_team *team = NULL;
    eo_rendezvous *rv = NULL;
    CHECK_IS(eo_rendezvous_create(&rv, eo_rendezvous_params(.rank_count = 1, .log = &log_kept)), EO_OK);
    CHECK_IS(eo_team_create(&team, 3), EO_OK);
    snprintf(self, sizeof(self), "%d", (int)getpid());
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, self) == 0)
            continue;
        unsigned long long mask = blocked_by(entry->d_name);
        for (int i = 0; i < 500 && mask & fault; i++) { /* the C library blocks all until a thread begins */
            usleep(10000);
            mask = blocked_by(entry->d_name);
        }
        CHECK(mask & term && !(mask & fault), "a thread blocks %llx", mask);
        others++;
    }
    if (threads)
        closedir(threads);
    CHECK(others == 4, "%d threads", others); /* the rendezvous' two, and two of the team */
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        eo_team_destroy(&team);
        _exit(team != NULL);
    }
    CHECK_THAT(ended_with(child, 0));
    eo_team_destroy(&team);
    eo_rendezvous_destroy(&rv);
}

#endif

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (uint32_t victim = 0; victim < 2; victim++)
        rank_with_a_child(victim);
    tap_case("a rank is lost: its living child neither hides it from the others, nor holds the job's name");
    child_destroys();
    tap_case("a child destroys a rank's objects: it ends, and the rank has lock, file and threads as before");
    snprintf(job, sizeof(job), "within %d", (int)getpid());
    const pid_t first = start(destroys_within, 0, -1), second = start(destroys_within, 1, -1);
    const bool first_ended = ended_with(first, 0); /* both are waited for */
    CHECK_THAT(ended_with(second, 0) && first_ended);
    tap_case("destroy within `failed` is refused, and then made outside of it");
#if EO_TEST_LAYERS
    signals_are_the_trainers();
    tap_case("threads of rendezvous and team take no signals of the process, only those of their own faults");
#else
    tap_skip("threads of rendezvous and team take no signals of the process", "built without layers");
#endif
    char command[64];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        return 1;
    return tap_end();
}
