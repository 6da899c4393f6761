/* SPDX-License-Identifier: MIT
 *
 * usage: conformance_device [cpu|cuda]
 */
#include <stdio.h>

#include "device_table.h"
#include "ranks.h"

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    if (!test_device_table(name)) {
        printf("1..0 # SKIP there is no device %s here\n", name);
        return 0;
    }
    return test_finish();
}
