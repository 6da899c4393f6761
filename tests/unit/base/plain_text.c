/* SPDX-License-Identifier: MIT
 *
 * Texts for a terminal: what it would take for a command is '?', and all else stays. Texts that are too long for their place
 * keep both ends.
 */
#include "base/plain_text.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Test(plain_text, commands_of_a_terminal_are_taken_out)
{
    static const char *const texts[][2] = {
        {"", ""},
        {"plain \"text\" \\ %s", "plain \"text\" \\ %s"},
        {"gr\xc3\xb6\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xb6\xc3\x9f" "e \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x1b[31m\a\n\t\x7f", "?[31m????"},
        {"\xc2\x80 \xc2\x9b" "31m \xc2\x9f \xc2\xa0", "?? ??31m ?? \xc2\xa0"},
        {"\x9b" "31m \x9d \xff \xc3", "?31m ? ? ?"},
        {"\xc0\x9b \xed\xa0\x80 \xe2\x82 \xf4\x90\x80\x80", "?? ??? ?? ????"},
        {"\xe2\x80\xae \xe2\x81\xa6 \xe2\x80\x93", "??? ??? \xe2\x80\x93"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "%s", texts[i][0]);
        eo_text_clean(text);
        cr_expect_str_eq(text, texts[i][1]);
    }
}

static size_t format_into(char *text, size_t bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t length = eo_text_format(text, bytes, format, arguments);
    va_end(arguments);
    return length;
}

Test(plain_text, a_text_that_is_too_long_keeps_both_ends)
{
    char path[9000], text[512 + 1];
    memset(path, 'p', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    for (size_t bytes = 40; bytes < sizeof(text); bytes++) {
        text[bytes] = '#';
        const size_t length = format_into(text, bytes, "begin %s end", path);
        cr_assert(length == bytes - 1 && strlen(text) == length && text[bytes] == '#');
        cr_expect(strncmp(text, "begin p", 7) == 0 && strstr(text, "p ... p") && strcmp(text + length - 5, "p end") == 0);
    }
    cr_expect(format_into(text, 12, "%s %d", "0123456", 789) == 11);
    cr_expect_str_eq(text, "0123456 789");
    cr_expect(format_into(text, 11, "%s %d", "0123456", 789) == 10);
    cr_expect_str_eq(text, "01 ... 789");
    for (size_t bytes = 1; bytes < 12; bytes++)
        cr_expect(eo_text_fit(text, bytes, "0123456 789") == bytes - 1 && strlen(text) == bytes - 1);
}
