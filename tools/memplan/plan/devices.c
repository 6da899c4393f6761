/* SPDX-License-Identifier: MIT
 *
 * Devices, and what of a GPU no plan sees. Both are figures of others, each with where it comes from: a measured figure of one's
 * own machine goes before them (--devices, --device-memory, --outside).
 */
#include "tools/memplan/plan/devices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/plain_text.h"
#include "tools/memplan/plan/plan.h"
#include "tools/memplan_devices.h"
#include "tools/shared/word_distance.h"

enum { DEVICES_MAX = 64, NAME_MAX_BYTES = 40, SOURCE_MAX_BYTES = 120 };

struct device {
    char name[NAME_MAX_BYTES], source[SOURCE_MAX_BYTES];
    struct tool_device_memory memory;
    struct tool_device_rates rates;
    bool has_rates;
};

static struct device devices[DEVICES_MAX];
static uint32_t device_count;

static const double share_least = 1e-6; /* other figures are at least 1 */

/* {"value": V, "source": S}; *out stays where there is none. False: it is no such figure. */
static bool take_figure(const json_t *row, const char *key, double *out, const char **source)
{
    const double least = strstr(key, "_share") ? share_least : 1;
    const json_t *figure = json_object_get(row, key), *value = json_object_get(figure, "value");
    if (!figure)
        return true;
    *out = json_number_value(value);
    *source = json_string_value(json_object_get(figure, "source"));
    return json_is_number(value) && *out >= least && *out < 1e19 && *source && strlen(*source) < SOURCE_MAX_BYTES;
}

static struct device *find(const char *name)
{
    for (uint32_t i = 0; name && i < device_count; i++)
        if (strcasecmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

static eo_status take_rates(struct device *d, const json_t *row, const char *path, struct tool_problem *problem)
{
    struct tool_device_rates *r = &d->rates;
    const struct { const char *key; double *value; } figures[] = {
        {"product_flops", &r->product_flops},      {"hbm_bytes_per_s", &r->memory_bytes},
        {"node_bytes_per_s", &r->node_bytes},      {"network_bytes_per_s", &r->network_bytes},
        {"host_bytes_per_s", &r->host_bytes},      {"product_share", &r->product_share},
        {"attention_share", &r->attention_share},  {"flash_share", &r->flash_share},
        {"float8_flops", &r->float8_flops},        {"float8_share", &r->float8_share},
        {"fp32_flops", &r->fp32_flops},
        {"host_memory_bytes_per_s", &r->host_memory_bytes}, {"disk_bytes_per_s", &r->disk_bytes}};
    enum { NEEDED = 8, ALL = sizeof(figures) / sizeof(figures[0]) }; /* the rest is of some runs alone */
    const char *keys[ALL + 5] = {"name", "like", "about", "memory_bytes"};
    char what[1024];
    for (size_t i = 0; i < ALL; i++)
        keys[4 + i] = figures[i].key;
    snprintf(what, sizeof(what), "%.900s: device %s", path, d->name);
    EO_TRY(tool_check_keys(row, keys, what, problem));
    uint32_t known = 0;
    const char *source;
    for (size_t i = 0; i < ALL; i++) {
        if (!take_figure(row, figures[i].key, figures[i].value, &source))
            return tool_problem_set(problem, EO_ERR_INVALID,
                                    "%s: device %s: '%s' has to be {\"value\": 1 or more, of shares up to 1, \"source\": text}",
                                    path, d->name, figures[i].key);
        known += i < NEEDED && *figures[i].value > 0;
    }
    d->has_rates = known == NEEDED;
    if (known > 0 && !d->has_rates)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: device %s has some rates, but not all of product_flops, "
                                "hbm_bytes_per_s, node_bytes_per_s, network_bytes_per_s, host_bytes_per_s, product_share, "
                                "attention_share and flash_share", path, d->name);
    if (r->product_share > 1 || r->attention_share > 1 || r->flash_share > 1 || r->float8_share > 1)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: device %s: a share is above 1", path, d->name);
    return EO_OK;
}

static eo_status take_device(struct device *d, const json_t *row, const char *path, struct tool_problem *problem)
{
    const char *name = json_string_value(json_object_get(row, "name")), *like = json_string_value(json_object_get(row, "like"));
    const char *source = NULL;
    double bytes = 0;
    if (!name || !name[0] || strlen(name) >= NAME_MAX_BYTES)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: a device has no \"name\", or one of more than %d letters", path,
                                NAME_MAX_BYTES - 1);
    const struct device *other = find(like);
    if (like && !other)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: device %s is like %.40s, which does not stand before it", path, name,
                                like);
    *d = other ? *other : (struct device){0};
    snprintf(d->name, sizeof(d->name), "%s", name);
    eo_text_clean(d->name);
    if (!take_figure(row, "memory_bytes", &bytes, &source) || (bytes <= 0 && !other))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s: device %s: 'memory_bytes' has to be {\"value\": 1 or more, \"source\": text}", path, name);
    if (bytes > 0) {
        d->memory.bytes = (uint64_t)bytes;
        snprintf(d->source, sizeof(d->source), "%s", source);
        eo_text_clean(d->source);
    }
    return take_rates(d, row, path, problem);
}

eo_status tool_devices_parse(const json_t *root, const char *path, struct tool_problem *problem)
{
    static const char *const keys[] = {"about", "devices", NULL};
    const json_t *rows = json_object_get(root, "devices");
    if (!json_is_array(rows) || json_array_size(rows) == 0)
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: has no list \"devices\"; tools/memplan/plan/devices.json shows the form",
                                path);
    EO_TRY(tool_check_keys(root, keys, path, problem));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        struct device d;
        EO_TRY(take_device(&d, json_array_get(rows, i), path, problem));
        struct device *at = find(d.name);
        if (!at && device_count == DEVICES_MAX)
            return tool_problem_set(problem, EO_ERR_INVALID, "%s: there are more than %d devices", path, DEVICES_MAX);
        at = at ? at : &devices[device_count++];
        *at = d;
        at->memory.name = at->name;
        at->memory.source = at->source;
    }
    return EO_OK;
}

static void read_built_in(void)
{
    struct tool_problem problem;
    if (device_count)
        return;
    json_t *root = json_loads(devices_json, 0, NULL);
    if (!root || tool_devices_parse(root, "devices.json", &problem) < 0) /* a test reads it */
        device_count = 0;
    json_decref(root);
}

const struct tool_device_memory *tool_device_memory_at(uint32_t index)
{
    read_built_in();
    return index < device_count ? &devices[index].memory : NULL;
}

const struct tool_device_memory *tool_device_memory_find(const char *name)
{
    read_built_in();
    const struct device *d = find(name);
    return d ? &d->memory : NULL;
}

const struct tool_device_rates *tool_device_rates_find(const char *device)
{
    read_built_in();
    const struct device *d = find(device);
    return d && d->has_rates ? &d->rates : NULL;
}

static const uint64_t context_bytes = (uint64_t)852 << 20; /* llm.c: 21,315 MiB of the device used, the rest allocated */
static const uint64_t nccl_bytes = (uint64_t)1485 << 20;   /* ml-engineering: 0.55 GiB before the first barrier, 2.00 after */
static const uint64_t workspace_bytes = (uint64_t)32 << 20; /* cuBLAS's own default on Hopper */

struct tool_outside tool_outside_default(const struct tool_memplan_settings *settings)
{
    if (!settings->on_gpu) /* as tools/train estimates: program, and 8 MiB a thread */
        return (struct tool_outside){.context_bytes = (uint64_t)32 << 20,
                                     .workspace_bytes = (uint64_t)settings->plan.threads * (8 << 20)};
    return (struct tool_outside){.context_bytes = context_bytes, .workspace_bytes = workspace_bytes,
                                 .nccl_bytes = settings->plan.ranks > 1 ? nccl_bytes : 0};
}

uint64_t tool_outside_bytes(const struct tool_outside *outside)
{
    return outside->context_bytes + outside->nccl_bytes + outside->workspace_bytes;
}

void tool_outside_text(const struct tool_memplan *memplan, char *text, size_t bytes)
{
    const struct tool_outside *o = &memplan->settings.outside;
    if (o->given)
        snprintf(text, bytes, "as given with --outside");
    else if (!memplan->settings.on_gpu)
        snprintf(text, bytes, "of the host: %llu MiB program, %llu MiB threads (estimate of tools/train)",
                 (unsigned long long)o->context_bytes >> 20, (unsigned long long)o->workspace_bytes >> 20);
    else
        snprintf(text, bytes, "%llu MiB context and libraries (llm.c's log: 21,315 MiB of the device used, less its own "
                 "allocations)%s, %llu MiB workspace of products (cuBLAS's default on Hopper)",
                 (unsigned long long)o->context_bytes >> 20,
                 o->nccl_bytes ? ", 1485 MiB NCCL (ml-engineering: 0.55 GiB before the first barrier, 2.00 after)" : "",
                 (unsigned long long)o->workspace_bytes >> 20);
}
