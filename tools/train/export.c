/* SPDX-License-Identifier: MIT
 *
 * The weights at the end: the model, its adapters alone, or the model with them merged in.
 */
#include "tools/train/train.h"

#include <stdlib.h>

#include "tools/interchange/adapters.h"
#include "tools/run/ranks/gather.h"

static struct tool_export_model export_model(const struct train *train)
{
    const struct tool_job *job = &train->job;
    const eo_transformer_params *params = eo_transformer_get_params(job->transformer);
    return (struct tool_export_model){
        .model =
            train->adapters ? train->adapters : eo_transformer_model(train->unadapted ? train->unadapted : job->transformer),
        .config = params->config,
        .origin = job->import.model_config ? job->import.model_config : job->model_config,
        .lora = params->lora.rank ? &params->lora : NULL,
        .merged = train->settings.export.merged,
        .base = train->base_path[0] ? train->base_path : NULL,
        .tokenizer = job->options->tokenizer_path,
        .needs_tokenizer = job->options->tokens_paths != NULL,
        .end_of_text = tool_data_end_of_text(&job->data)};
}

/* What an export with adapters has to describe: them alone, or the model without them. */
eo_status tool_train_describe_adapters(struct train *train, struct tool_problem *problem)
{
    const struct tool_job *job = &train->job;
    eo_transformer_params params = *eo_transformer_get_params(job->transformer);
    if (!train->settings.export.path || !params.lora.rank)
        return EO_OK;
    params.lora = (eo_lora){.rank = 0};
    const eo_status status = train->settings.export.merged
                                 ? eo_transformer_create(&train->unadapted, &params)
                                 : tool_adapters_model(&train->adapters, eo_transformer_model(job->transformer));
    if (job->options->init_path && !realpath(job->options->init_path, train->base_path))
        train->base_path[0] = '\0';
    return status < 0 ? tool_problem_set(problem, status, "--export %s: %s", train->settings.export.path, eo_status_text(status))
                      : EO_OK;
}

static eo_status sum_over_ranks(void *rank, double *value)
{
    return tool_job_sum(rank, value);
}

eo_status tool_train_export(struct train *train, struct tool_job_rank *rank)
{
    struct tool_problem problem;
    const struct tool_export_model model = export_model(train);
    const struct tool_export_meeting meeting = {sum_over_ranks, rank};
    const eo_status status =
        tool_export_weights(&train->settings.export, &model, rank->runtime, rank->rank == 0, &meeting, &problem);
    if (status >= 0 || rank->rank != 0 || status == EO_ERR_COMM || status == EO_ERR_TIMEOUT)
        return status;
    train->export_problem = problem;
    return EO_OK;
}

eo_status tool_train_check_export(const struct train *train, struct tool_problem *problem)
{
    const struct tool_export_model model = export_model(train);
    return tool_export_check(&train->settings.export, &model, problem);
}
