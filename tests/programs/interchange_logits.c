/* SPDX-License-Identifier: MIT
 *
 * Logits of a model in files, for a test that compares them with another library's.
 * usage: interchange_logits PATH RANKS TOKEN...: a line for each position, its logits in the vocabulary's order
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/programs/interchange_ranks.h"
#include "tools/interchange/import.h"

struct job {
    struct tool_import import;
    int32_t *tokens;
    uint32_t token_count;
};

static void life(void *user, struct ranks_rank *rank)
{
    const struct job *job = user;
    const uint32_t vocabulary = rank->ranks->config.vocabulary;
    struct tool_problem problem;
    float *logits = calloc(vocabulary, sizeof(*logits));
    if (!logits || tool_import_load(&job->import, rank->runtime, &problem) < 0) {
        fprintf(stderr, "%s\n", logits ? problem.text : "no memory");
        exit(1);
    }
    for (uint32_t position = 0; position < job->token_count; position++) {
        if (eo_transformer_logits(rank->ranks->transformer, rank->runtime, rank->team, job->tokens, position, logits) < 0) {
            fprintf(stderr, "%s\n", eo_runtime_error(rank->runtime));
            exit(1);
        }
        for (uint32_t v = 0; rank->rank == 0 && v < vocabulary; v++)
            printf("%.9g%c", (double)logits[v], v + 1 < vocabulary ? ' ' : '\n');
    }
    free(logits);
}

int main(int argc, char **argv)
{
    static struct job job;
    struct tool_problem problem;
    struct ranks ranks;
    if (argc < 4) {
        fprintf(stderr, "usage: %s PATH RANKS TOKEN...\n", argv[0]);
        return 2;
    }
    if (tool_import_open(&job.import, argv[1], &problem) < 0) {
        fprintf(stderr, "%s\n", problem.text);
        return 2;
    }
    job.token_count = (uint32_t)argc - 3;
    job.tokens = calloc(job.token_count, sizeof(*job.tokens));
    for (uint32_t i = 0; job.tokens && i < job.token_count; i++)
        job.tokens[i] = atoi(argv[3 + i]);
    ranks_init(&ranks, &job.import.config, (uint32_t)atoi(argv[2]), EO_DTYPE_FP32, job.token_count);
    if (!job.tokens || tool_import_bind(&job.import, ranks_model(&ranks), &problem) < 0) {
        fprintf(stderr, "%s\n", job.tokens ? problem.text : "no memory");
        return 2;
    }
    ranks_run(&ranks, life, &job);
    ranks_fini(&ranks);
    tool_import_fini(&job.import);
    free(job.tokens);
    return 0;
}
