/* SPDX-License-Identifier: MIT
 *
 * usage: conformance_device [cpu|cuda]
 */
#include <stdio.h>

#include "tests/conformance/device/table.h"
#include "tests/conformance/ranks.h"

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    if (!test_device_table(name))
        return tap_skip_all("there is no device %s here", name);
    return tap_end();
}
