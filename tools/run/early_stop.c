/* SPDX-License-Identifier: MIT */
#include "tools/run/early_stop.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tool_early_stop_see(struct tool_early_stop *early, uint64_t step, double loss)
{
    early->seen_step = step;
    early->since_lowest++;
    if (!isfinite(loss) || (early->lowest_step && loss >= early->lowest_loss))
        return;
    early->lowest_loss = loss;
    early->lowest_step = step;
    early->since_lowest = 0;
}

bool tool_early_stop_lacks(const struct tool_early_stop *early, uint64_t every, uint64_t step)
{
    return every && step && step % every == 0 && early->seen_step < step && !tool_early_stop_is_due(early);
}

bool tool_early_stop_is_due(const struct tool_early_stop *early)
{
    return early->patience && early->since_lowest >= early->patience;
}

uint32_t tool_early_stop_write(const struct tool_early_stop *early, char *settings, uint32_t bytes, uint32_t bytes_max)
{
    if (!early->seen_step || bytes == 0 || bytes + TOOL_EARLY_STOP_BYTES_MAX > bytes_max)
        return bytes;
    const uint32_t end = bytes - 1; /* the last brace */
    return end + (uint32_t)snprintf(settings + end, TOOL_EARLY_STOP_BYTES_MAX,
                                    ", \"validation\": {\"seen_step\": %" PRIu64 ", \"lowest_step\": %" PRIu64
                                    ", \"lowest_loss\": %.17g, \"since_lowest\": %" PRIu64 ", \"data\": \"%016" PRIx64 "\"}}",
                                    early->seen_step, early->lowest_step, early->lowest_loss, early->since_lowest, early->data);
}

bool tool_early_stop_read(struct tool_early_stop *early, const json_t *settings)
{
    json_int_t seen, step, since;
    double loss;
    const char *text = "0"; /* of checkpoints of before */
    json_t *validation = json_object_get(settings, "validation");
    if (!validation ||
        json_unpack(validation, "{s:I, s:I, s:F, s:I, s?s}", "seen_step", &seen, "lowest_step", &step, "lowest_loss", &loss,
                    "since_lowest", &since, "data", &text) != 0 ||
        seen < 0 || step < 0 || since < 0)
        return true;
    const uint64_t data = strtoull(text, NULL, 16);
    early->seen_step = (uint64_t)seen;
    if (data && early->data && data != early->data)
        return false;
    early->data = early->data ? early->data : data;
    early->lowest_step = (uint64_t)step;
    early->lowest_loss = loss;
    early->since_lowest = (uint64_t)since;
    return true;
}
