/* SPDX-License-Identifier: MIT
 *
 * Goal: tokens have the bytes that the tokenizers library's decoders give them.
 * Method: pieces whose bytes were read back in that library (0.23), each beside one that only looks like it.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/interchange/tokenizer.h"

struct expected {
    const char *piece, *text;
    bool is_added;
};

static void compare(const char *decoder, const struct expected *all, uint32_t count)
{
    char path[] = "/tmp/eo-tokenizer-XXXXXX", words[1024] = "", added[1024] = "";
    struct tool_problem problem = {""};
    struct tool_tokenizer tokenizer;
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    for (uint32_t i = 0; i < count; i++) {
        char *to = all[i].is_added ? added : words;
        snprintf(to + strlen(to), sizeof(words) - strlen(to),
                 all[i].is_added ? "%s{\"content\":\"%s\",\"id\":%u}" : "%s\"%s\":%u", *to ? "," : "", all[i].piece, i);
    }
    dprintf(file, "{\"decoder\":{\"type\":\"%s\"},\"model\":{\"vocab\":{%s}},\"added_tokens\":[%s]}", decoder, words, added);
    close(file);
    cr_assert_geq(tool_tokenizer_load(&tokenizer, "--tokenizer", path, &problem), 0, "%s", problem.text);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes;
        const char *text = tool_tokenizer_text(&tokenizer, i, &bytes);
        cr_expect(bytes == strlen(all[i].text) && memcmp(text, all[i].text, bytes) == 0, "'%s' is '%.*s', not '%s'", all[i].piece,
                  (int)bytes, text, all[i].text);
    }
    tool_tokenizer_fini(&tokenizer);
    unlink(path);
}

Test(tokenizer, letters_are_bytes_unless_one_is_outside_the_alphabet)
{
    static const struct expected all[] = {
        {"\u0120a", " a", false},
        {"\u00c3\u00a9", "\u00e9", false},
        {"na\u00efve \u65e5", "na\u00efve \u65e5", false},
        {"\u4e2d\u0120", "\u4e2d\u0120", false},
        {"<\u00e9>", "<\u00e9>", true},
    };
    compare("ByteLevel", all, sizeof(all) / sizeof(all[0]));
}

Test(tokenizer, spaces_and_bytes_of_sentencepiece)
{
    static const struct expected all[] = {
        {"\u2581the\u2581", " the ", false}, {"<0x41>", "A", false},      {"<0x4a>", "J", false},
        {"<0x A>", "<0x A>", false},         {"<0x-1>", "<0x-1>", false}, {"<0xAAA>", "<0xAAA>", false},
        {"\u2581\u2581", "  ", true},        {"<s>", "<s>", true},
    };
    compare("ByteFallback", all, sizeof(all) / sizeof(all[0]));
}
