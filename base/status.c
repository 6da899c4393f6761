/* SPDX-License-Identifier: MIT */
#include <evenodd/status.h>

const char *eo_status_text(eo_status status)
{
    switch (status) {
#define X(name, code, text)                                                                                           \
    case EO_##name:                                                                                                   \
        return text;
        EO_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}
