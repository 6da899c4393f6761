/* SPDX-License-Identifier: MIT */
#include "tools/run/reports/trace_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shared/json_output.h"

eo_status tool_trace_take(const eo_runtime *runtime, struct tool_trace_text *out)
{
    FILE *stream = open_memstream(&out->text, &out->bytes);
    if (!stream)
        return EO_ERR_NO_MEMORY;
    eo_runtime_write_trace(runtime, tool_write_to_stream, stream);
    return fclose(stream) == 0 ? EO_OK : EO_ERR_NO_MEMORY;
}

/* Traces are our own: what stands in the brackets of traceEvents is taken as it is. */
eo_status tool_trace_merge(const struct tool_trace_text *texts, uint32_t count, char **out, struct tool_problem *problem)
{
    static const char begin[] = "\"traceEvents\":[";
    size_t bytes;
    *out = NULL;
    FILE *all = open_memstream(out, &bytes);
    eo_status status = all ? EO_OK : tool_problem_set(problem, EO_ERR_NO_MEMORY, "--trace: no memory for the events");
    bool is_first = true;
    if (all)
        fprintf(all, "{\"displayTimeUnit\":\"ms\",%s", begin);
    for (uint32_t r = 0; status >= 0 && r < count; r++) {
        const char *from = texts[r].text ? strstr(texts[r].text, begin) : NULL, *to = from ? strrchr(from, ']') : NULL;
        if (!to)
            status = tool_problem_set(problem, EO_ERR_INVALID, "--trace: the events of rank %u are not whole", r);
        else if (to - from > (ptrdiff_t)strlen(begin)) {
            from += strlen(begin);
            fprintf(all, "%s", is_first ? "" : ",");
            fwrite(from, 1, (size_t)(to - from), all);
            is_first = false;
        }
    }
    if (all && (fputs("]}", all) < 0 || fclose(all) != 0) && status >= 0)
        status = tool_problem_set(problem, EO_ERR_NO_MEMORY, "--trace: no memory for the events");
    if (status < 0) {
        free(*out);
        *out = NULL;
    }
    return status;
}
