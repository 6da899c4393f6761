/* SPDX-License-Identifier: MIT
 *
 * Ranks that are processes hold what they were started with against each other, before the first collective and before
 * anything is written. Compared are texts of JSON, so the first difference has a name.
 *
 *     options     that decide which calls the ranks make together, and what --init holds
 *     settings    what a run's results depend on (tools/run/options/settings.c)
 *     plan
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run/checkpoint/checkpoint.h"
#include "tools/run/ranks/world.h"
#include "tools/shared/json_output.h"
#include "tools/shared/weights_hash.h"

/* ---- what was started with ---- */

/* A path as a value that the first difference can be told of: on one line, short, without the signs of JSON. What is lost by
 * that is in a hash. */
static const char *path_value(const char *path, char value[64])
{
    enum { SHOWN = 32 };
    if (!path)
        return "not given";
    const size_t length = strlen(path), cut = length > SHOWN ? length - SHOWN : 0;
    const int used = snprintf(value, 64, "%s%s", cut ? "..." : "", path + cut);
    for (char *c = value; *c; c++)
        if (!isgraph((unsigned char)*c) || strchr("\":,{}\\", *c))
            *c = '_';
    if (strcmp(value, path) != 0)
        snprintf(value + used, 64 - (size_t)used, " #%08" PRIx32, (uint32_t)tool_hash_more(TOOL_HASH_START, path, length));
    return value;
}

struct start {
    const struct tool_job *job;
    const struct tool_job_world *world;
    const struct tool_job_choices *choices;
    const char *init;
};

/* With a name before each value. */
static void write_start(struct eo_json *json, const void *user)
{
    const struct start *start = user;
    const struct tool_options *o = start->job->options;
    const struct tool_checkpoint_options *c = start->choices->checkpoint;
    char tokens[64], folder[64], export_path[64];
    eo_json_write(
        json,
        "{'--plan': %i, '--device': %s, '--collectives': %s, '--memory': %s, '--graph': %i,"
        "'--implicit-prefetch': %i, '--reduce-inputs': %u, '--dynamic-offload': %i, '--init (its content)': %s, '--val-every': "
        "%" PRIu64 ", '--patience': %" PRIu64 ", '--val-tokens': %s, '--checkpoint': %s, '--checkpoint-every': %" PRIu64
        ", '--keep': %u, '--checkpoint-used': %i, '--checkpoint-in-place': %i, '--resume': %i, '--sample': %u, '--export': %s, "
        "'--export-merged': %i, '--hash': %s}",
        o->plan_only, o->plan.device, start->world->collectives ? start->world->collectives : "not given",
        tool_memory_name(o->memory), o->plan.graph, o->implicit_prefetch, o->reduce_inputs, o->dynamic_offload, start->init,
        start->job->val_every, start->job->early_stop.patience, path_value(o->val_tokens_path, tokens),
        path_value(c->folder, folder), c->every, c->keep, c->used, c->in_place, c->resume,
        start->choices->sample_count, path_value(start->choices->export_path, export_path), start->choices->merged,
        start->choices->no_hash ? "off" : "on");
    tool_job_settings(json, start->job);
    eo_json_write(json, "{'data held back (samples)': %016" PRIx64 "}", tool_job_held_back_hash(start->job));
    eo_plan_write_json(start->job->plan, json->write, json->user);
}

enum { PIECE_BYTES = 1024 };

/* The other rank's text comes in pieces, until this rank's first difference has come. All ranks make the same calls. */
static void name_difference(struct tool_job_world *world, const char *mine, char *out, size_t bytes)
{
    const uint32_t count = world->environment.rank_count;
    const size_t length = strlen(mine);
    char (*all)[PIECE_BYTES] = calloc(count, PIECE_BYTES);
    bool done = false;
    snprintf(out, bytes, "the difference could not be located");
    for (size_t at = 0; all && !done; at += PIECE_BYTES / 2) {
        char piece[PIECE_BYTES] = {0};
        const size_t left = at < length ? length - at : 0;
        memcpy(piece, mine + (at < length ? at : length), left < PIECE_BYTES ? left : PIECE_BYTES);
        if (eo_rendezvous_all_gather(world->rendezvous, piece, PIECE_BYTES, all) < 0)
            break;
        for (uint32_t r = 1; r < count && !done; r++) {
            /* The windows overlap, so that half of one lies before the difference: its name does. */
            size_t i = at == 0 ? 0 : PIECE_BYTES / 2;
            while (i < PIECE_BYTES && all[0][i] == all[r][i])
                i++;
            if (i == PIECE_BYTES)
                continue;
            done = true;
            tool_job_world_difference(all[0], all[r], PIECE_BYTES, i, r, out, bytes);
        }
        bool over = true; /* all texts */
        for (uint32_t r = 0; r < count; r++)
            over = over && all[r][PIECE_BYTES - 1] == '\0';
        done = done || over;
    }
    free(all);
}

/* What each rank's --init holds, where it was given: hosts may have copies of their own. */
static eo_status init_text(const struct tool_job *job, char text[32], struct tool_problem *problem)
{
    uint64_t hash = 0;
    if (job->options->init_path && !job->options->plan_only)
        EO_TRY(tool_import_fingerprint(&job->import, &hash, problem));
    snprintf(text, 32, job->options->init_path ? "%016" PRIx64 : "not given", hash);
    return EO_OK;
}

eo_status tool_job_world_agree(struct tool_job_world *world, const struct tool_job *job, const struct tool_job_choices *choices,
                               struct tool_problem *problem)
{
    const struct tool_world_environment *e = &world->environment;
    char init[32], difference[400];
    if (!world->rendezvous)
        return EO_OK;
    EO_TRY(init_text(job, init, problem));
    char *mine = tool_json_text(0, write_start, &(struct start){job, world, choices, init});
    if (!mine)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "no memory for the text of options and plan");
    const uint64_t fingerprint = tool_hash_more(TOOL_HASH_START, mine, strlen(mine));
    uint64_t *all = calloc(e->rank_count, sizeof(*all));
    eo_status status = all ? eo_rendezvous_all_gather(world->rendezvous, &fingerprint, sizeof(fingerprint), all)
                           : EO_ERR_NO_MEMORY;
    bool differs = false;
    for (uint32_t r = 0; status >= 0 && r < e->rank_count; r++)
        differs = differs || all[r] != all[0];
    free(all);
    if (status < 0) {
        status = tool_problem_set(problem, status, "the ranks could not compare their plans: %s", eo_status_text(status));
    } else if (differs) {
        name_difference(world, mine, difference, sizeof(difference));
        status = tool_problem_set(problem, EO_ERR_INVALID,
                                  "the ranks were started differently: %s; start all with the same "
                                  "model, data and options",
                                  difference);
    }
    free(mine);
    return status;
}
