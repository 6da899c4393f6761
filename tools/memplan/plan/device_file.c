/* SPDX-License-Identifier: MIT */
#include "tools/memplan/plan/devices.h"
#include "tools/shared/open_file.h"

enum { DEVICES_BYTES_MAX = 1 << 20 };

eo_status tool_devices_read(const char *path, struct tool_problem *problem)
{
    json_t *root = NULL;
    (void)tool_device_memory_at(0); /* its rows replace those of the table */
    EO_TRY(tool_open_json(&root, DEVICES_BYTES_MAX, "--devices", path, problem));
    const eo_status status = tool_devices_parse(root, path, problem);
    json_decref(root);
    return status;
}
