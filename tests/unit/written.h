/* SPDX-License-Identifier: MIT
 *
 * What an eo_write_fn was given, as one text.
 */
#ifndef EO_TESTS_UNIT_WRITTEN_H
#define EO_TESTS_UNIT_WRITTEN_H

#include <criterion/criterion.h>
#include <string.h>

struct written {
    char text[1 << 19];
    size_t used;
};

static inline void take_written(void *user, const char *text, size_t bytes)
{
    struct written *out = user;
    cr_assert_lt(out->used + bytes, sizeof(out->text));
    memcpy(out->text + out->used, text, bytes);
    out->text[out->used += bytes] = '\0';
}

#endif
