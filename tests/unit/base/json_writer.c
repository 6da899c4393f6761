/* SPDX-License-Identifier: MIT
 *
 * JSON by templates: what a template says is written, in each style, and whatever a value is, the text stays JSON.
 */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Of a locale, which machines lack: the header takes this function for snprintf. */
static const char *decimal_sign = ".";

static int print_localised(char *to, size_t bytes, const char *format, ...)
{
    char text[400];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    char *point = strpbrk(format, "gf") ? strchr(text, '.') : NULL;
    return point ? snprintf(to, bytes, "%.*s%s%s", (int)(point - text), text, decimal_sign, point + 1)
                 : snprintf(to, bytes, "%s", text);
}
#define snprintf print_localised
#include "base/json_writer.h"
#undef snprintf
#include "tests/unit/written.h"

#define EXPECT_JSON(style, wanted, ...)                                               \
    do {                                                                              \
        struct written out = {.used = 0};                                             \
        struct eo_json json = {.write = take_written, .user = &out, .indent = style}; \
        eo_json_write(&json, __VA_ARGS__);                                            \
        cr_expect_str_eq(out.text, wanted);                                           \
    } while (0)

/* Goal: structure comes of the template, commas and spaces of the writer. */
Test(json_writer, a_template_is_its_own_picture)
{
    EXPECT_JSON(0, "{\"a\":1,\"b\":[true,null,-2.5],\"c\":{},\"d\":[]}", "{'a': 1 'b':[true, null -2.5], 'c': {}, 'd': []}");
    EXPECT_JSON(2, "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x, {y}: z\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}",
                "{'a': [1, {'b': 'x, {y}: z'}], 'c': {}, 'd': []}");
    EXPECT_JSON(0, "{\"rows\":[\n1,\n2\n]}", "{'rows': [\n1, \n2 \n]}");
}

/* Goal: a document may come in pieces, cut at any value. */
Test(json_writer, pieces_make_one_document)
{
    struct written out = {.used = 0};
    struct eo_json json = {.write = take_written, .user = &out};
    eo_json_write(&json, "{'rows':");
    eo_json_write(&json, "[");
    for (int i = 0; i < 3; i++)
        eo_json_write(&json, "{'i': %d}", i);
    eo_json_write(&json, "]");
    eo_json_write(&json, "%s: {%s:", "key", "inner");
    eo_json_write(&json, "%u}}", 7u);
    cr_expect_str_eq(out.text, "{\"rows\":[{\"i\":0},{\"i\":1},{\"i\":2}],\"key\":{\"inner\":7}}");
}

Test(json_writer, numbers_are_those_of_json)
{
    EXPECT_JSON(0, "[-2147483648,4294967295,-9223372036854775808,18446744073709551615,42]",
                "[%d, %u, %" PRId64 ", %" PRIu64 ", %zu]", INT32_MIN, UINT32_MAX, INT64_MIN, UINT64_MAX, (size_t)42);
    EXPECT_JSON(0, "[\"000000000000beef\",true,false]", "[%016" PRIx64 ", %i, %i]", (uint64_t)0xbeef, 3, 0);
    EXPECT_JSON(0, "[0.0,1.0,-1.5,1e-5,1e100,0.1,0.30000000000000004]", "[%g, %g, %g, %.7g, %g, %g, %g]", 0.0, 1.0, -1.5, 1e-5,
                1e100, 0.1, 0.1 + 0.2);
    EXPECT_JSON(0, "[0.1,2.000,1e20,123457.0]", "[%.12g, %.3f, %.3g, %.6g]", 0.1, 2.0, 1e20, 123456.7);
    EXPECT_JSON(0, "[null,null,null]", "[%g, %g, %.3f]", (double)NAN, (double)INFINITY, -(double)INFINITY);
}

/* Goal: a locale's decimal sign is a point in JSON. Method: a comma, and U+066B, as in ps_AF. */
Test(json_writer, numbers_are_those_of_json_in_any_locale)
{
    static const char *const signs[] = {",", "\xd9\xab"};
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        decimal_sign = signs[i];
        EXPECT_JSON(0, "[-2.5,0.125,1.0,1e20,1.2676506002282294e30,2.000,null]", "[%g, %g, %g, %g, %g, %.3f, %g]", -2.5, 0.125, 1.0,
                    1e20, 1.2676506002282294e30, 2.0, (double)INFINITY);
    }
}

/* Goal: names come from users; a reader of JSON takes what is written. */
Test(json_writer, texts_are_escaped)
{
    const char *volatile nothing = NULL; /* from the eyes of the compiler, which warns */
    EXPECT_JSON(0, "[\"a \\\"b\\\" \\\\ c\\u000a\\u0001\\u007f\",\"\",null]", "[%s, %s, %s]", "a \"b\" \\ c\n\x01\x7f", "",
                nothing);
    EXPECT_JSON(0,
                "[\"gr\xc3\xb6\xc3\x9f"
                "e \xf0\x9f\x98\x80 bad\\ufffd \\ufffd\"]",
                "[%s]",
                "gr\xc3\xb6\xc3\x9f"
                "e \xf0\x9f\x98\x80 bad\xff \xc3");
    EXPECT_JSON(0, "[\"long \\ufffd\\ufffd surrogate \\ufffd\\ufffd\\ufffd '%s'\"]", "[%s]",
                "long \xc0\xaf surrogate \xed\xa0\x80 '%s'");
}
