/* SPDX-License-Identifier: MIT */
#include "tools/shared/page.h"

#include <string.h>

void tool_page_to(FILE *out, const char **text, const char *place)
{
    const char *at = place ? strstr(*text, place) : *text + strlen(*text);
    fwrite(*text, 1, (size_t)(at - *text), out);
    *text = at + (place ? strlen(place) : 0);
}

void tool_put_escaped(FILE *out, const char *text)
{
    for (; text && *text; text++)
        if (strchr("<>&\"", *text))
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
}
