/* SPDX-License-Identifier: MIT */
#include "tools/planning/budget.h"

#include <stdio.h>
#include <string.h>

#include "tools/planning/budget_search.h"
#include "tools/planning/predict.h"

static bool is_on_gpu(const struct tool_plan_settings *settings)
{
    return strcmp(settings->device, "cpu") != 0;
}

eo_status tool_budget_evaluate(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                               const struct tool_rates *rates, bool draft, const eo_log *log, struct tool_budget_option *out)
{
    eo_transformer *transformer = NULL;
    eo_plan *plan = NULL;
    struct tool_plan_params params = tool_plan_params_of(settings, config, log);
    params.plan.draft = draft;
    *out = (struct tool_budget_option){.settings = *settings};
    EO_TRY(eo_transformer_create(&transformer, &params.transformer));
    eo_status status = eo_plan_create(&plan, eo_transformer_model(transformer), &params.plan);
    if (status >= 0) {
        eo_plan_summary summary;
        eo_plan_get_summary(plan, &summary);
        out->arena_bytes = summary.arena_bytes;
        out->disk_bytes = summary.space_bytes[EO_SPACE_DISK];
        if (is_on_gpu(settings)) {
            out->arena_bytes -= summary.space_bytes[EO_SPACE_HOST];
            out->host_bytes = out->disk_bytes + summary.space_bytes[EO_SPACE_HOST];
        } else if (out->disk_bytes > 0) {
            out->cache_bytes = (uint64_t)rates->disk_cache_bytes;
        }
        out->memory_bytes = out->arena_bytes + out->cache_bytes;
        if (draft)
            out->memory_bytes -= summary.arena_bytes - summary.lower_bound_bytes;
        status = tool_predict_step(plan, transformer, settings, config, rates, &out->step_s);
    }
    for (uint32_t i = 0; status >= 0 && i < eo_plan_operation_count(plan, EO_LIST_STEADY); i++) {
        eo_plan_operation o;
        status = eo_plan_get_operation(plan, EO_LIST_STEADY, i, &o);
        out->layer_count += status >= 0 && o.kind == EO_OP_UPDATE;
    }
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
    return status;
}

static void keep_first_error(void *user, eo_log_level level, const char *text)
{
    struct tool_problem *why = user;
    if (level == EO_LOG_ERROR && !why->text[0])
        snprintf(why->text, sizeof(why->text), "%s", text);
}

eo_status tool_budget_no_plan(const char *option, const struct tool_plan_settings *settings,
                              const eo_transformer_config *config, const struct tool_rates *rates, eo_status status,
                              struct tool_problem *problem)
{
    struct tool_problem why = {.text = ""};
    struct tool_budget_option unused;
    const eo_log log = {.write = keep_first_error, .user = &why, .level = EO_LOG_ERROR};
    if (tool_budget_evaluate(settings, config, rates, false, &log, &unused) >= 0)
        why.text[0] = '\0'; /* it was not these settings */
    return tool_problem_set(problem, status, "%s: no plan of this job can be made: %s", option,
                            why.text[0] ? why.text : eo_status_text(status));
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

eo_status tool_budget_find(const struct tool_plan_settings *settings, const eo_transformer_config *config,
                           const struct tool_budget_request *request, struct tool_budget_choice *out,
                           struct tool_problem *problem)
{
    *out = (struct tool_budget_choice){.found = false};
    struct tool_budget_search s = {.config = config, .request = request, .head_chunks = settings->head_chunks};
    s.offloads_layers = tool_budget_has_disk(&s) && settings->optimizer != EO_OPTIMIZER_MUON;
    const eo_status status = tool_budget_search(&s, settings, out);
    tool_budget_search_fini(&s);
    if (status == EO_ERR_NO_MEMORY)
        return tool_problem_set(problem, status, "--budget: no memory for the search");
    if (status < 0)
        return tool_budget_no_plan("--budget", settings, config, &request->rates, status, problem);
    if (out->found)
        return EO_OK;
    char text[TOOL_BUDGET_TEXT_MAX], cache[48] = "";
    tool_budget_text(&out->least, text, sizeof(text));
    if (out->least.cache_bytes)
        snprintf(cache, sizeof(cache), ", %.1f of them page cache", mib(out->least.cache_bytes));
    if (request->host_bytes)
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "--budget: %.1f MiB of a device and %.1f MiB of its host are too few; the least is %llu bytes "
                                "(%.1f MiB) of the device, with %llu (%.1f MiB) of the host: %s; a smaller --batch or --seq, or "
                                "more --ranks, takes less",
                                mib(request->bytes), mib(request->host_bytes), (unsigned long long)out->least.memory_bytes,
                                mib(out->least.memory_bytes), (unsigned long long)out->least.host_bytes,
                                mib(out->least.host_bytes), text);
    return tool_problem_set(
        problem, EO_ERR_INVALID,
        "--budget: %llu bytes a rank (%.1f MiB) are too few; the least is %llu (%.1f MiB%s): %s; a smaller "
        "--batch or --seq, more --ranks%s, takes less",
        (unsigned long long)request->bytes, mib(request->bytes), (unsigned long long)out->least.memory_bytes,
        mib(out->least.memory_bytes), cache, text,
        request->rates.disk_bytes_per_s > 0 ? "" : ", or a disk (disk_bytes_per_s of --rates; train's --offload-folder)");
}

void tool_budget_take(struct tool_plan_settings *settings, const struct tool_plan_settings *chosen)
{
    settings->recompute = chosen->recompute;
    settings->recompute_blocks = chosen->recompute_blocks;
    settings->gather_slots = chosen->gather_slots;
    settings->gradient_slots = chosen->gradient_slots;
    settings->offload_layers = chosen->offload_layers;
    settings->offload_slots = chosen->offload_slots;
    settings->offload_gradients = chosen->offload_gradients;
    settings->late_updates = chosen->late_updates;
    settings->offload_activations = chosen->offload_activations;
    settings->head_chunks = chosen->head_chunks;
}

void tool_budget_print(FILE *out, const char *indent, const struct tool_budget_choice *choice,
                       const struct tool_budget_request *request)
{
    char text[TOOL_BUDGET_TEXT_MAX];
    tool_budget_text(&choice->chosen, text, sizeof(text));
    fprintf(out, "%sbudget: %.1f MiB a rank: %s; %.1f MiB", indent, mib(request->bytes), text, mib(choice->chosen.arena_bytes));
    if (choice->chosen.cache_bytes)
        fprintf(out, " and %.1f MiB of page cache", mib(choice->chosen.cache_bytes));
    if (request->host_bytes)
        fprintf(out, " and %.1f of %.1f MiB of the host", mib(choice->chosen.host_bytes), mib(request->host_bytes));
    fprintf(out, ", predicted %.3f s a step\n", choice->chosen.step_s);
    for (uint32_t i = 0; i < choice->next_count; i++) {
        tool_budget_text(&choice->next[i], text, sizeof(text));
        fprintf(out, "%s  %.1f MiB would give %.3f s: %s\n", indent, mib(choice->next[i].memory_bytes), choice->next[i].step_s,
                text);
    }
}

void tool_budget_text(const struct tool_budget_option *option, char *text, size_t bytes)
{
    const struct tool_plan_settings *s = &option->settings;
    char recompute[32];
    tool_recompute_text(s, recompute, sizeof(recompute));
    int used = snprintf(text, bytes, "recompute %s, slots %u,%u", recompute, s->gather_slots, s->gradient_slots);
    if (s->offload_layers && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", %u of %u layers %s%s by %u buffer%s",
                         s->offload_layers < option->layer_count ? s->offload_layers : option->layer_count, option->layer_count,
                         is_on_gpu(s) ? "in host memory" : "on disk", s->offload_gradients ? " with gradients" : "", s->offload_slots, tool_plural(s->offload_slots));
    if (s->late_updates && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", updated late");
    if (s->offload_activations == UINT32_MAX && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", activations of all blocks %s", is_on_gpu(s) ? "in host memory" : "on disk");
    else if (s->offload_activations && used > 0 && (size_t)used < bytes)
        used += snprintf(text + used, bytes - (size_t)used, ", activations of %u block%s %s",
                         s->offload_activations, tool_plural(s->offload_activations), is_on_gpu(s) ? "in host memory" : "on disk");
    if (option->changes_bits && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, ", head in %u piece%s", s->head_chunks, tool_plural(s->head_chunks));
}
