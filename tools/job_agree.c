/* SPDX-License-Identifier: MIT
 *
 * Ranks that are processes hold what they were started with against each other, before the first collective and before
 * anything is written. Compared are texts of JSON, so the first difference has a name.
 *
 *     options     that decide which calls the ranks make together, and what --init holds
 *     settings    what a run's results depend on (job_settings.c)
 *     plan
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/job_world.h"
#include "tools/weights_hash.h"

static void add_text(void *user, const char *text, size_t text_bytes)
{
    fwrite(text, 1, text_bytes, user);
}

/* ---- what was started with ---- */

/* A path as a value that the first difference can be told of: on one line, short, without the signs of JSON. What is lost by
 * that is in a hash. */
static json_t *path_value(const char *path)
{
    enum { SHOWN = 32 };
    char value[64];
    if (!path)
        return json_string("not given");
    const size_t length = strlen(path), cut = length > SHOWN ? length - SHOWN : 0;
    const int used = snprintf(value, sizeof(value), "%s%s", cut ? "..." : "", path + cut);
    for (char *c = value; *c; c++)
        if (!isgraph((unsigned char)*c) || strchr("\":,{}\\", *c))
            *c = '_';
    if (strcmp(value, path) != 0)
        snprintf(value + used, sizeof(value) - (size_t)used, " #%08" PRIx32,
                 (uint32_t)eo_hash_more(EO_HASH_START, path, length));
    return json_string(value);
}

/* NULL: no memory. */
static json_t *describe_options(const struct eo_job *job, const struct eo_job_world *world,
                                const struct eo_job_choices *choices, const char *init)
{
    const struct eo_options *o = job->options;
    const struct eo_checkpoint_options *c = choices->checkpoint;
    return json_pack("{s:b, s:s, s:s, s:s, s:b, s:b, s:I, s:s, s:I, s:o, s:o, s:I, s:I, s:b, s:b, s:I, s:o}",
        "--plan", o->plan_only, "--device", o->device, "--collectives", world->collectives ? world->collectives : "not given",
        "--memory", eo_memory_name(o->memory), "--graph", o->graph, "--implicit-prefetch", o->implicit_prefetch,
        "--reduce-inputs", (json_int_t)o->reduce_inputs, "--init (what it holds)", init,
        "--val-every", (json_int_t)job->val_every, "--val-tokens", path_value(o->val_tokens_path),
        "--checkpoint", path_value(c->folder), "--checkpoint-every", (json_int_t)c->every, "--keep", (json_int_t)c->keep,
        "--checkpoint-used", c->used, "--resume", c->resume, "--sample", (json_int_t)choices->sample_count,
        "--export", path_value(choices->export_path));
}

/* With a name before each value. NULL: no memory. */
static char *text_of(const struct eo_job *job, const struct eo_job_world *world, const struct eo_job_choices *choices,
                     const char *init)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory)
        return NULL;
    json_t *parts[] = {describe_options(job, world, choices, init), eo_job_settings(job)};
    bool good = true;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        good = good && parts[i] && json_dumpf(parts[i], memory, JSON_REAL_PRECISION(15)) == 0;
        json_decref(parts[i]);
        fputc('\n', memory);
    }
    eo_plan_write_json(job->plan, add_text, memory);
    if (fclose(memory) != 0 || !good) {
        free(text);
        return NULL;
    }
    return text;
}

enum { PIECE_BYTES = 1024 };

/* The other rank's text comes in pieces, until this rank's first difference has come. All ranks make the same calls. */
static void name_difference(struct eo_job_world *world, const char *mine, char *out, size_t bytes)
{
    const uint32_t count = world->environment.rank_count;
    const size_t length = strlen(mine);
    char (*all)[PIECE_BYTES] = calloc(count, PIECE_BYTES);
    bool done = false;
    snprintf(out, bytes, "the first difference could not be found");
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
            eo_job_world_difference(all[0], all[r], PIECE_BYTES, i, r, out, bytes);
        }
        bool over = true; /* all texts */
        for (uint32_t r = 0; r < count; r++)
            over = over && all[r][PIECE_BYTES - 1] == '\0';
        done = done || over;
    }
    free(all);
}

/* What each rank's --init holds, where it was given: hosts may have copies of their own. */
static eo_status init_text(const struct eo_job *job, char text[32], struct eo_problem *problem)
{
    uint64_t hash = 0;
    if (job->options->init_path && !job->options->plan_only)
        TOOLS_TRY(eo_import_fingerprint(&job->import, &hash, problem));
    snprintf(text, 32, job->options->init_path ? "%016" PRIx64 : "not given", hash);
    return EO_OK;
}

eo_status eo_job_world_agree(struct eo_job_world *world, const struct eo_job *job, const struct eo_job_choices *choices,
                             struct eo_problem *problem)
{
    const struct eo_world_environment *e = &world->environment;
    char init[32], difference[400];
    if (!world->rendezvous)
        return EO_OK;
    TOOLS_TRY(init_text(job, init, problem));
    char *mine = text_of(job, world, choices, init);
    if (!mine)
        return eo_problem_set(problem, EO_ERR_NO_MEMORY, "no memory for the text of options and plan");
    const uint64_t fingerprint = eo_hash_more(EO_HASH_START, mine, strlen(mine));
    uint64_t *all = calloc(e->rank_count, sizeof(*all));
    eo_status status = all ? eo_rendezvous_all_gather(world->rendezvous, &fingerprint, sizeof(fingerprint), all)
                           : EO_ERR_NO_MEMORY;
    bool differs = false;
    for (uint32_t r = 0; status >= 0 && r < e->rank_count; r++)
        differs = differs || all[r] != all[0];
    free(all);
    if (status < 0) {
        status = eo_problem_set(problem, status, "the ranks could not compare their plans: %s", eo_status_text(status));
    } else if (differs) {
        name_difference(world, mine, difference, sizeof(difference));
        status = eo_problem_set(problem, EO_ERR_INVALID, "the ranks were started differently: %s; start all with the same "
                                "model, data and options", difference);
    }
    free(mine);
    return status;
}
