/* SPDX-License-Identifier: MIT */
#include "tools/trace_merge.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(void *user, const char *text, size_t text_bytes)
{
    fwrite(text, 1, text_bytes, user);
}

eo_status eo_trace_take(const eo_runtime *runtime, struct eo_trace_text *out)
{
    FILE *stream = open_memstream(&out->text, &out->bytes);
    if (!stream)
        return EO_ERR_NO_MEMORY;
    eo_runtime_write_trace(runtime, append, stream);
    return fclose(stream) == 0 ? EO_OK : EO_ERR_NO_MEMORY;
}

eo_status eo_trace_merge(const struct eo_trace_text *texts, uint32_t count, char **out, struct eo_problem *problem)
{
    json_t *all = NULL, *events = NULL; /* the first rank's document takes in the others' events */
    *out = NULL;
    for (uint32_t r = 0; r < count; r++) {
        json_error_t error;
        json_t *one = texts[r].text ? json_loadb(texts[r].text, texts[r].bytes, 0, &error) : NULL;
        json_t *more = json_object_get(one, "traceEvents");
        if (!json_is_array(more)) {
            json_decref(one);
            json_decref(all);
            return eo_problem_set(problem, EO_ERR_INVALID, "--trace: the events of rank %u cannot be read: %s", r,
                                  one ? "no traceEvents" : error.text);
        }
        if (!all) {
            all = one;
            events = more;
        } else {
            json_array_extend(events, more);
            json_decref(one);
        }
    }
    if (all)
        *out = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(all);
    return *out ? EO_OK : eo_problem_set(problem, EO_ERR_NO_MEMORY, "--trace: no memory for the events");
}
