/* SPDX-License-Identifier: MIT
 *
 * A file of devices, of memplan --devices: a part a file, each read behind those before it. What is taken stands in the table, with
 * memory and with rates that predictions can divide by.
 */
#include "tests/fuzz/fuzz.h"
#include "tools/memplan/plan/devices.c" /* so that it can forget what an input brought */

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

static void check_table(void)
{
    const struct tool_device_memory *memory;
    for (uint32_t i = 0; (memory = tool_device_memory_at(i)) != NULL; i++) {
        FUZZ_HOLDS(memory->name[0] && memory->bytes > 0 && strlen(memory->source) > 0);
        FUZZ_HOLDS(tool_device_memory_find(memory->name) == memory);
        const struct tool_device_rates *r = tool_device_rates_find(memory->name);
        FUZZ_HOLDS(!r || (isfinite(1e18 / (r->product_flops * r->product_share)) && r->product_share <= 1));
        FUZZ_HOLDS(!r || (isfinite(1e18 / r->memory_bytes) && isfinite(1e18 / r->node_bytes) && isfinite(1e18 / r->network_bytes)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_part rest = {data, bytes}, part;
    struct tool_problem problem = {""};
    while (fuzz_next_part(&rest, &part))
        (void)fuzz_taken(tool_devices_read(fuzz_file("devices.json", part.data, part.bytes), &problem), problem.text);
    check_table();
    device_count = 0;
    return 0;
}
