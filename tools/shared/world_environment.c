/* SPDX-License-Identifier: MIT */
#include "tools/shared/world_environment.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS_MAX = 65536, PORT_FIRST = 20000, PORT_COUNT = 10000 };

/* How a launcher says it; the first whose `rank` and `count` are there is taken. Several may be: mpirun in a Slurm job. */
static const struct source {
    const char *launcher, *rank, *count, *local_rank, *local_count;
    const char *also;    /* has to be there too */
    const char *jobs[3]; /* what names the job, and its start */
} sources[] = {
    {"launch", "EVENODD_RANK", "EVENODD_RANKS", "EVENODD_LOCAL_RANK", "EVENODD_LOCAL_RANKS", NULL,
     {"EVENODD_JOB", "EVENODD_RESTART", NULL}},
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL}},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}},
    {"mpirun (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", {"PMI_ID", NULL, NULL}},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
    /* Without local ranks; after Slurm, whose srun --mpi=pmi2 sets these two besides its own. */
    {"mpirun (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, {"PMI_ID", NULL, NULL}},
};

static const char *value_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text && text[0] ? text : NULL;
}

static eo_status read_number(const char *name, uint32_t least, uint32_t most, uint32_t *out, struct tool_problem *problem)
{
    const char *text = value_of(name);
    char *end;
    if (!text)
        return EO_OK; /* keeps what stands in *out */
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || value < least || value > most)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s in the environment is '%.100s'; set it to a number from %u to %u",
                                name, text, least, most);
    *out = (uint32_t)value;
    return EO_OK;
}

/* "4(x2),3": how many tasks on the host with this number. 0: it does not say. */
static uint32_t tasks_of_host(const char *text, uint32_t host)
{
    while (text && *text) {
        char *end;
        const unsigned long tasks = strtoul(text, &end, 10);
        unsigned long times = 1;
        if (end == text || tasks > RANKS_MAX)
            return 0;
        if (end[0] == '(' && end[1] == 'x')
            times = strtoul(end + 2, &end, 10);
        if (host < times)
            return (uint32_t)tasks;
        host -= (uint32_t)times;
        text = *end == ')' ? end + 1 : end;
        text += *text == ',';
        if (times == 0)
            return 0;
    }
    return 0;
}

/* "node[003-007,9],other": node003. */
static void first_host(const char *list, char *out, size_t bytes)
{
    const size_t prefix = strcspn(list, "[,");
    size_t used = (size_t)snprintf(out, bytes, "%.*s", (int)prefix, list);
    if (list[prefix] == '[' && used < bytes) {
        const char *number = list + prefix + 1;
        const size_t digits = strcspn(number, "-,]");
        const char *rest = strchr(number, ']');
        used += (size_t)snprintf(out + used, bytes - used, "%.*s", (int)digits, number);
        if (rest && used < bytes)
            snprintf(out + used, bytes - used, "%.*s", (int)strcspn(rest + 1, ",["), rest + 1);
    }
}

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static eo_status find_address(struct tool_world_environment *e, struct tool_problem *problem)
{
    const char *address = value_of("EVENODD_ADDRESS"), *list = value_of("SLURM_STEP_NODELIST");
    const bool is_torchrun = strcmp(e->launcher, "torchrun") == 0;
    if (!address)
        address = value_of("MASTER_ADDR");
    if (address)
        snprintf(e->address, sizeof(e->address), "%s", address);
    else if (list)
        first_host(list, e->address, sizeof(e->address));
    uint32_t port = 0;
    EO_TRY(read_number("EVENODD_PORT", 1, 65535, &port, problem));
    if (port == 0) {
        EO_TRY(read_number("MASTER_PORT", 1, 65534, &port, problem));
        port += port && is_torchrun; /* its own store listens at MASTER_PORT */
    }
    if (port == 0)
        port = PORT_FIRST + hash_of(e->job) % PORT_COUNT;
    snprintf(e->port, sizeof(e->port), "%u", port);
    if (e->local_count < e->rank_count && !e->address[0])
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s started %u ranks, %u of them on this host, without the address of rank 0; set MASTER_ADDR "
                                "to an address of rank 0's host on all ranks (mpirun -x MASTER_ADDR)",
                                e->launcher, e->rank_count, e->local_count);
    return EO_OK;
}

/* ---- the token ---- */

static bool read_hex(const char *text, size_t length, unsigned char out[EO_TOKEN_BYTES])
{
    while (length && isspace((unsigned char)text[length - 1]))
        length--;
    if (length != 2 * EO_TOKEN_BYTES)
        return false;
    for (int i = 0; i < EO_TOKEN_BYTES; i++) {
        char *end;
        const char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        if (!isxdigit((unsigned char)digits[0]))
            return false;
        out[i] = (unsigned char)strtoul(digits, &end, 16);
        if (*end)
            return false;
    }
    return true;
}

static eo_status read_token_file(struct tool_world_environment *e, const char *path, struct tool_problem *problem)
{
    char text[4 * EO_TOKEN_BYTES];
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return tool_problem_set(problem, EO_ERR_IO, "EVENODD_TOKEN_FILE %s: %s", path, strerror(error));
    }
    const ssize_t bytes = S_ISREG(info.st_mode) ? read(fd, text, sizeof(text) - 1) : -1;
    close(fd);
    if (info.st_mode & (S_IRWXG | S_IRWXO))
        return tool_problem_set(problem, EO_ERR_INVALID, "EVENODD_TOKEN_FILE %s is readable by others; chmod 600 it", path);
    if (bytes < 0 || !read_hex(text, (size_t)bytes, e->token))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "EVENODD_TOKEN_FILE %s does not hold 64 hexadecimal digits; write one "
                                "with: (umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' >%s)",
                                path, path);
    e->has_token = true;
    return EO_OK;
}

static eo_status find_token(struct tool_world_environment *e, struct tool_problem *problem)
{
    const char *token = value_of("EVENODD_TOKEN"), *path = value_of("EVENODD_TOKEN_FILE");
    if (!token)
        return path ? read_token_file(e, path, problem) : EO_OK;
    if (!read_hex(token, strlen(token), e->token))
        return tool_problem_set(problem, EO_ERR_INVALID, "EVENODD_TOKEN in the environment is not 64 hexadecimal digits");
    e->has_token = true;
    return EO_OK;
}

/* ---- all of it ---- */

static const struct source *find_source(void)
{
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        if (value_of(sources[i].rank) && value_of(sources[i].count) && (!sources[i].also || value_of(sources[i].also)))
            return &sources[i];
    return NULL;
}

/* Each would train alone, and nobody would see it. In a job of Slurm the batch script itself has what names a rank. */
static eo_status look_for_half(struct tool_problem *problem)
{
    const char *count = value_of("WORLD_SIZE");
    if (!value_of("RANK") || !count || strcmp(count, "1") == 0)
        return EO_OK;
    return tool_problem_set(problem, EO_ERR_INVALID,
                            "RANK and WORLD_SIZE are in the environment, as from torchrun, but MASTER_ADDR is not: set it to "
                            "an address of rank 0's host, or unset these to run alone");
}

eo_status tool_world_environment_read(struct tool_world_environment *e, struct tool_problem *problem)
{
    *e = (struct tool_world_environment){.rank_count = 1, .local_count = 1};
    const struct source *source = find_source();
    if (!source)
        return look_for_half(problem);
    EO_TRY(read_number(source->count, 1, RANKS_MAX, &e->rank_count, problem));
    if (e->rank_count == 1) {
        e->is_alone = true;
        return read_number("EVENODD_RESTART", 0, UINT32_MAX, &e->restart, problem);
    }
    EO_TRY(read_number(source->rank, 0, e->rank_count - 1, &e->rank, problem));
    if (source->local_count)
        EO_TRY(read_number(source->local_count, 1, e->rank_count, &e->local_count, problem));
    else {
        uint32_t host = 0;
        EO_TRY(read_number("SLURM_NODEID", 0, RANKS_MAX, &host, problem));
        const uint32_t tasks = tasks_of_host(value_of("SLURM_STEP_TASKS_PER_NODE"), host);
        if (tasks > e->rank_count)
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "SLURM_STEP_TASKS_PER_NODE in the environment is '%.100s': %u tasks on this host, but %s "
                                    "counts %u in all",
                                    value_of("SLURM_STEP_TASKS_PER_NODE"), tasks, source->count, e->rank_count);
        e->local_count = tasks ? tasks : 1;
    }
    if (e->local_count > 1)
        EO_TRY(read_number(source->local_rank, 0, e->local_count - 1, &e->local_rank, problem));
    EO_TRY(read_number("EVENODD_RESTART", 0, UINT32_MAX, &e->restart, problem));
    e->launcher = source->launcher;
    e->has_mpi = value_of("PMIX_RANK") != NULL || value_of("OMPI_COMM_WORLD_RANK") != NULL;
    for (size_t i = 0; i < 3 && source->jobs[i]; i++) {
        const char *text = value_of(source->jobs[i]);
        snprintf(e->job + strlen(e->job), sizeof(e->job) - strlen(e->job), "%s%.60s", i ? "." : "", text ? text : "");
    }
    EO_TRY(find_address(e, problem));
    return find_token(e, problem);
}
