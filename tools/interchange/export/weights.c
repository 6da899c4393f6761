/* SPDX-License-Identifier: MIT
 *
 * The weights of a runtime into an export. One rank writes, which takes as long as its disk takes; the others wait for it,
 * and no deadline is to mistake that for a loss. So a thread writes, and all ranks meet again and again until it has
 * ended.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "tools/interchange/adapters.h"

enum { MEETING_NS = 100000000 }; /* from one to the next, so that no rank waits for long */

struct putting {
    const struct tool_export_settings *settings;
    const struct tool_export_model *model;
    const struct tool_export_meeting *meeting;
    struct tool_export export;
    bool writes; /* not another rank */
    eo_status status, met; /* of writing; of the first meeting that failed */
    struct tool_problem *problem;
    uint32_t parameter;
    const eo_parameter_info *info; /* of the parameter */
    const float *values;
    struct tool_merge merge;
    void (*work)(struct putting *p);
    sem_t is_done;
};

static void work_begin(struct putting *p)
{
    p->status = tool_export_begin(&p->export, p->settings, p->model, p->problem);
}

static void work_put(struct putting *p)
{
    float *merged = p->model->merged ? tool_merge_into(&p->merge, p->info, p->values) : NULL;
    tool_export_put(&p->export, p->parameter, merged ? merged : p->values);
    if (p->merge.failed && p->export.status >= 0)
        p->export.status = tool_problem_set(&p->export.problem, EO_ERR_NO_MEMORY, "--export %s: no memory to merge adapters",
                                            p->settings->path);
    free(merged);
}

static void work_end(struct putting *p)
{
    p->status = tool_export_end(&p->export, p->problem);
}

static void *write_main(void *arg)
{
    struct putting *p = arg;
    p->work(p);
    sem_post(&p->is_done);
    return NULL;
}

static bool ends_soon(struct putting *p)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end); /* the wall clock may be set back, and the others would wait for as long */
    end.tv_nsec += MEETING_NS;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return sem_clockwait(&p->is_done, CLOCK_MONOTONIC, &end) == 0;
}

/* All ranks come here, for the same work. */
static void write_together(struct putting *p, void (*work)(struct putting *))
{
    pthread_t thread;
    bool has_thread = false;
    if (p->writes && p->status >= 0) {
        p->work = work;
        sem_init(&p->is_done, 0, 0);
        has_thread = p->meeting && pthread_create(&thread, NULL, write_main, p) == 0;
        if (!has_thread)
            work(p);
    }
    bool busy_here = has_thread;
    for (double busy = 1; p->meeting && p->met >= 0 && busy > 0;) {
        busy = busy_here = busy_here && !ends_soon(p);
        p->met = p->meeting->sum(p->meeting->user, &busy);
    }
    if (has_thread)
        pthread_join(thread, NULL);
}

static eo_status put_parameter(void *user, const eo_parameter_info *parameter, const float *values)
{
    struct putting *p = user;
    if (p->model->merged && p->writes && tool_is_adapter(parameter->name))
        tool_merge_keep(&p->merge, parameter, values);
    if (eo_model_find_parameter(p->model->model, parameter->name, &p->parameter) < 0)
        return EO_OK;
    p->values = values;
    p->info = parameter;
    write_together(p, work_put);
    return EO_OK;
}

eo_status tool_export_weights(const struct tool_export_settings *settings, const struct tool_export_model *model,
                              eo_runtime *runtime, bool writes, const struct tool_export_meeting *meeting,
                              struct tool_problem *problem)
{
    struct putting p = {.settings = settings, .model = model, .meeting = meeting, .writes = writes, .problem = problem,
                        .merge = {.lora = model->lora}};
    write_together(&p, work_begin);
    const eo_status visited = eo_weights_visit(runtime, put_parameter, &p);
    tool_merge_fini(&p.merge);
    if (visited >= 0 && p.met >= 0) {
        write_together(&p, work_end);
        return p.met < 0 ? tool_problem_set(problem, p.met, "--export %s: %s", settings->path, eo_status_text(p.met))
                         : p.status;
    }
    if (writes && p.status >= 0)
        tool_export_drop(&p.export);
    return visited < 0 ? tool_problem_set(problem, visited, "--export %s: %s", settings->path, eo_runtime_error(runtime))
                       : tool_problem_set(problem, p.met, "--export %s: %s", settings->path, eo_status_text(p.met));
}
