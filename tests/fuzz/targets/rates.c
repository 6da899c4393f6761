/* SPDX-License-Identifier: MIT
 *
 * Measured rates, of --rates. What is taken has speeds that predictions can divide by, and reads the same when it is written.
 */
#include <math.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/planning/rates.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

enum { TEXT_BYTES = 160 };

static void write_rates(struct eo_json *json, const void *rates)
{
    tool_rates_write(json, rates);
}

static void use_rates(const struct tool_rates *rates)
{
    struct tool_rates slower = *rates, again;
    char text[TEXT_BYTES];
    FUZZ_HOLDS(tool_rates_lack(rates) == NULL && tool_rates_fp32_products(rates) > 0);
    FUZZ_HOLDS(isfinite(1e18 / rates->products_flops_per_s) && isfinite(1e18 / rates->memory_bytes_per_s) &&
               isfinite(1e18 / rates->link_bytes_per_s) && isfinite(1e6 * rates->link_latency_s) &&
               rates->disk_cache_bytes >= 0 && rates->disk_cache_bytes < 0x1p60);
    tool_rates_slower(&slower, rates);
    FUZZ_HOLDS(memcmp(&slower, rates, sizeof(slower)) == 0);
    for (size_t bytes = 1; bytes <= sizeof(text); bytes++) {
        tool_rates_text(rates, bytes % 2, text, bytes);
        FUZZ_HOLDS(strlen(text) < bytes);
    }
    char *written = tool_json_text(0, write_rates, rates);
    FUZZ_HOLDS(written != NULL);
    json_t *root = json_loads(written, 0, NULL);
    FUZZ_HOLDS(root != NULL && tool_rates_parse(root, &again) == NULL);
    json_decref(root);
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tool_rates rates;
    struct tool_problem problem = {""};
    if (fuzz_taken(tool_rates_read(fuzz_file("rates.json", data, bytes), &rates, &problem), problem.text))
        use_rates(&rates);
    return 0;
}
