/* SPDX-License-Identifier: MIT
 *
 * Texts for a terminal: what it would take for a command is '?', and all else stays.
 */
#include "base/plain_text.h"

#include <criterion/criterion.h>
#include <stdio.h>

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
