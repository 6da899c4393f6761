/* SPDX-License-Identifier: MIT */
#include "tools/planning/rates.h"

#include <stdio.h>
#include <string.h>

#include "tools/shared/open_file.h"
#include "tools/shared/word_distance.h"

static const struct {
    const char *name;
    size_t at;
} fields[] = {
    {"products_flops_per_s", offsetof(struct tool_rates, products_flops_per_s)},
    {"memory_bytes_per_s", offsetof(struct tool_rates, memory_bytes_per_s)},
    {"disk_bytes_per_s", offsetof(struct tool_rates, disk_bytes_per_s)},
    {"link_bytes_per_s", offsetof(struct tool_rates, link_bytes_per_s)},
    {"link_latency_s", offsetof(struct tool_rates, link_latency_s)},
    {"fp32_products_flops_per_s", offsetof(struct tool_rates, fp32_products_flops_per_s)},
    {"disk_cache_bytes", offsetof(struct tool_rates, disk_cache_bytes)},
};
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

/* In an object of its own, "tried": seconds, and the shape. */
static const struct {
    const char *name;
    size_t at;
} tried_fields[] = {
    {"block_forward_s", offsetof(struct tool_tried, block_forward_s)},
    {"block_backward_s", offsetof(struct tool_tried, block_backward_s)},
    {"block_recompute_s", offsetof(struct tool_tried, block_recompute_s)},
    {"head_s", offsetof(struct tool_tried, head_s)},
    {"embedding_forward_s", offsetof(struct tool_tried, embedding_forward_s)},
    {"embedding_backward_s", offsetof(struct tool_tried, embedding_backward_s)},
    {"update_s", offsetof(struct tool_tried, update_s)},
};
enum { TRIED_FIELDS = sizeof(tried_fields) / sizeof(tried_fields[0]) };

static double *tried_field_of(struct tool_tried *tried, size_t field)
{
    return (double *)(void *)((char *)tried + tried_fields[field].at);
}

static double *field_of(struct tool_rates *rates, size_t field)
{
    return (double *)(void *)((char *)rates + fields[field].at);
}

static bool is_field(size_t field, size_t at)
{
    return fields[field].at == at;
}

static bool is_latency(size_t field)
{
    return is_field(field, offsetof(struct tool_rates, link_latency_s));
}

/* No speed: the less of it the better, and may be 0. */
static bool is_cost(size_t field)
{
    return is_latency(field) || is_field(field, offsetof(struct tool_rates, disk_cache_bytes));
}

static bool may_lack_field(size_t field)
{
    return is_field(field, offsetof(struct tool_rates, disk_bytes_per_s)) ||
           is_field(field, offsetof(struct tool_rates, fp32_products_flops_per_s)) || is_cost(field);
}

/* What times can be divided by, and stay finite; bytes that a number of 64 bits holds many times. */
static bool is_rate(size_t field, double value)
{
    static const double speed_max = 1e21, latency_max = 3600, cache_max = 1e15;
    return is_cost(field) ? value >= 0 && value <= (is_latency(field) ? latency_max : cache_max)
                          : value >= 1 && value <= speed_max;
}

const char *tool_rates_lack(const struct tool_rates *rates)
{
    struct tool_rates copy = *rates;
    for (size_t f = 0; f < FIELDS; f++) {
        const double value = *field_of(&copy, f);
        if (!is_rate(f, value) && !(value == 0 && may_lack_field(f)))
            return fields[f].name;
    }
    return NULL;
}

static const char *parse_tried(const json_t *object, struct tool_tried *out)
{
    static const double longest_s = 3600;
    const char *shape = json_string_value(json_object_get(object, "shape"));
    if (!shape || !shape[0] || strlen(shape) >= sizeof(out->shape))
        return "tried: shape";
    strcpy(out->shape, shape);
    for (size_t f = 0; f < TRIED_FIELDS; f++) {
        const json_t *value = json_object_get(object, tried_fields[f].name);
        const double seconds = json_number_value(value);
        const bool may_lack = tried_fields[f].at == offsetof(struct tool_tried, block_recompute_s);
        if (!(json_is_number(value) || (may_lack && !value)) || !(seconds >= 0 && seconds <= longest_s))
            return tried_fields[f].name;
        *tried_field_of(out, f) = seconds;
    }
    return NULL;
}

const char *tool_rates_parse(const json_t *object, struct tool_rates *out)
{
    *out = (struct tool_rates){0};
    const json_t *tried = json_object_get(object, "tried");
    const char *bad = tried ? parse_tried(tried, &out->tried) : NULL;
    if (bad)
        return bad;
    for (size_t f = 0; f < FIELDS; f++) {
        const json_t *value = json_object_get(object, fields[f].name);
        if (value && !(json_is_number(value) && is_rate(f, json_number_value(value))))
            return fields[f].name;
        *field_of(out, f) = json_number_value(value);
    }
    return tool_rates_lack(out);
}

/* A checkpoint of a later train may have more; in a file it is a mistake. */
static eo_status check_rate_keys(const json_t *object, const char *path, struct tool_problem *problem)
{
    const char *known[FIELDS + 3] = {"tried", "about"}, *of_tried[TRIED_FIELDS + 2] = {"shape"};
    char what[1024];
    for (size_t f = 0; f < FIELDS; f++)
        known[2 + f] = fields[f].name;
    for (size_t f = 0; f < TRIED_FIELDS; f++)
        of_tried[1 + f] = tried_fields[f].name;
    snprintf(what, sizeof(what), "--rates %.900s", path);
    EO_TRY(tool_check_keys(object, known, what, problem));
    snprintf(what, sizeof(what), "--rates %.900s: tried", path);
    return tool_check_keys(json_object_get(object, "tried"), of_tried, what, problem);
}

eo_status tool_rates_read(const char *path, struct tool_rates *out, struct tool_problem *problem)
{
    enum { BYTES_MAX = 65536 };
    json_t *root;
    EO_TRY(tool_open_json(&root, BYTES_MAX, "--rates", path, problem));
    const char *lacks = tool_rates_parse(root, out);
    const eo_status status = check_rate_keys(root, path, problem);
    json_decref(root);
    if (status < 0) /* what is missing may be there by another name */
        return status;
    if (lacks)
        return tool_problem_set(problem, EO_ERR_INVALID, 
                                "--rates %s: '%s' is missing, or no number from 1 to 1e21 (latency: 0 to 3600, cache: 0 to "
                                "1e15)",
                                path, lacks);
    return EO_OK;
}

void tool_rates_write(struct eo_json *json, const struct tool_rates *rates)
{
    struct tool_rates copy = *rates;
    eo_json_write(json, "{");
    for (size_t f = 0; f < FIELDS; f++)
        if (*field_of(&copy, f) > 0)
            eo_json_write(json, "%s: %g", fields[f].name, *field_of(&copy, f));
    if (rates->tried.shape[0]) {
        eo_json_write(json, "'tried': {'shape': %s", rates->tried.shape);
        for (size_t f = 0; f < TRIED_FIELDS; f++)
            eo_json_write(json, "%s: %g", tried_fields[f].name, *tried_field_of(&copy.tried, f));
        eo_json_write(json, "}");
    }
    eo_json_write(json, "}");
}

double tool_rates_fp32_products(const struct tool_rates *rates)
{
    return rates->fp32_products_flops_per_s > 0 ? rates->fp32_products_flops_per_s : rates->products_flops_per_s;
}

void tool_rates_slower(struct tool_rates *rates, const struct tool_rates *other)
{
    struct tool_rates copy = *other;
    for (size_t f = 0; f < FIELDS; f++)
        if (is_cost(f) ? *field_of(&copy, f) > *field_of(rates, f) : *field_of(&copy, f) < *field_of(rates, f))
            *field_of(rates, f) = *field_of(&copy, f);
    if (strcmp(rates->tried.shape, copy.tried.shape) != 0)
        rates->tried = (struct tool_tried){0};
    for (size_t f = 0; rates->tried.shape[0] && f < TRIED_FIELDS; f++)
        if (*tried_field_of(&copy.tried, f) > *tried_field_of(&rates->tried, f))
            *tried_field_of(&rates->tried, f) = *tried_field_of(&copy.tried, f);
}

void tool_rates_text(const struct tool_rates *r, bool on_gpu, char *text, size_t bytes)
{
    char disk[80] = "";
    snprintf(disk, sizeof(disk), on_gpu ? "nothing offloaded" : "no disk");
    if (r->disk_bytes_per_s > 0 && on_gpu)
        snprintf(disk, sizeof(disk), "copies from and to the host %.1f GB/s", r->disk_bytes_per_s * 1e-9);
    else if (r->disk_bytes_per_s > 0 && r->disk_cache_bytes > 0)
        snprintf(disk, sizeof(disk), "disk %.2f GB/s by %.1f MiB of page cache", r->disk_bytes_per_s * 1e-9,
                 r->disk_cache_bytes / (1 << 20));
    else if (r->disk_bytes_per_s > 0)
        snprintf(disk, sizeof(disk), "disk %.2f GB/s", r->disk_bytes_per_s * 1e-9);
    snprintf(text, bytes, "products %.0f GFLOP/s, memory %.1f GB/s, %s, link %.1f GB/s", r->products_flops_per_s * 1e-9,
             r->memory_bytes_per_s * 1e-9, disk, r->link_bytes_per_s * 1e-9);
    if (r->link_latency_s > 0 && strlen(text) + 24 < bytes)
        snprintf(text + strlen(text), bytes - strlen(text), " and %.0f us", r->link_latency_s * 1e6);
    if (r->tried.shape[0] && strlen(text) + 100 < bytes)
        snprintf(text + strlen(text), bytes - strlen(text),
                 "; tried out: a block %.3g + %.3g us a token (%.3g again), the head %.3g", r->tried.block_forward_s * 1e6,
                 r->tried.block_backward_s * 1e6, r->tried.block_recompute_s * 1e6, r->tried.head_s * 1e6);
    if (r->fp32_products_flops_per_s > 0 && strlen(text) + 40 < bytes)
        snprintf(text + strlen(text), bytes - strlen(text), ", products in fp32 %.0f GFLOP/s", r->fp32_products_flops_per_s * 1e-9);
}
