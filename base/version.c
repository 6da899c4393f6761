/* SPDX-License-Identifier: MIT */
#include <evenodd/common.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)

const char *eo_version(void)
{
    return TEXT(EO_VERSION_MAJOR) "." TEXT(EO_VERSION_MINOR) "." TEXT(EO_VERSION_PATCH);
}
