/* SPDX-License-Identifier: MIT */
#include "tools/headtohead/variants.h"

#include <stdio.h>
#include <string.h>

#include "tools/run/options/options.h"

int tool_variants_of_memory(struct tool_variant variants[TOOL_VARIANTS_MAX], bool on_gpu)
{
    const int count = on_gpu ? EO_MEMORY_DYNAMIC_CACHING + 1 : EO_MEMORY_DYNAMIC_CACHING;
    for (int mode = 0; mode < count; mode++) {
        variants[mode] = (struct tool_variant){.memory = (eo_memory)mode};
        snprintf(variants[mode].name, sizeof(variants[mode].name), "%s", tool_memory_name((eo_memory)mode));
    }
    return count;
}

/* A word, or the beginning of one up to its colon; what stands behind that is the value, unless it is given here. */
static const struct word {
    const char *word, *option, *value;
} words[] = {
    {"zero3", "--strategy", "zero3"},
    {"zero2", "--strategy", "zero2"},
    {"zero1", "--strategy", "zero1"},
    {"ddp", "--strategy", "ddp"},
    {"one-unit", "--granularity", "size:1000000GiB"},
    {"block", "--granularity", "block"},
    {"half", "--granularity", "half"},
    {"no-recompute", "--recompute", "none"},
    {"fp32", "--dtype", "fp32"},
    {"bf16", "--dtype", "bf16"},
    {"hsdp:", "--strategy", NULL},
    {"blocks:", "--granularity", NULL},
    {"auto-wrap:", "--granularity", NULL},
    {"recompute:", "--recompute", NULL},
};
enum { WORD_COUNT = sizeof(words) / sizeof(words[0]) };

/* Options that take the whole word have it as value, FSDP's name of size: is auto-wrap:. */
static void set_value(struct tool_variant *variant, const struct word *word)
{
    const char *behind = variant->name + strlen(word->word);
    variant->option = word->option;
    if (word->value)
        snprintf(variant->value, sizeof(variant->value), "%s", word->value);
    else if (strcmp(word->word, "recompute:") == 0)
        snprintf(variant->value, sizeof(variant->value), "%s", behind);
    else
        snprintf(variant->value, sizeof(variant->value), "%.16s%.24s", strcmp(word->word, "auto-wrap:") == 0 ? "size:" : word->word,
                 behind);
}

static bool parse_one(struct tool_variant *variant)
{
    if (tool_memory_parse(variant->name, &variant->memory))
        return true;
    for (int w = 0; w < WORD_COUNT; w++) {
        const bool is_open = words[w].value == NULL;
        const size_t length = strlen(words[w].word);
        if (is_open ? strncmp(variant->name, words[w].word, length) == 0 && variant->name[length]
                    : strcmp(variant->name, words[w].word) == 0) {
            set_value(variant, &words[w]);
            return true;
        }
    }
    return false;
}

int tool_variants_parse(struct tool_variant variants[TOOL_VARIANTS_MAX], const char *text, char *why, size_t why_bytes)
{
    int count = 0;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        if (count == TOOL_VARIANTS_MAX) {
            snprintf(why, why_bytes, "has more than %d variants", TOOL_VARIANTS_MAX);
            return 0;
        }
        struct tool_variant *variant = &variants[count++];
        *variant = (struct tool_variant){.memory = EO_MEMORY_STATIC};
        snprintf(variant->name, sizeof(variant->name), "%.*s", length < sizeof(variant->name) ? (int)length : 0, at);
        if (!parse_one(variant)) {
            snprintf(why, why_bytes,
                     "'%.*s' is no variant; there are zero3, zero2, zero1, ddp, hsdp:S, one-unit, auto-wrap:BYTES, block, half, "
                     "blocks:N, no-recompute, recompute:WHAT, fp32, bf16, static, dynamic:malloc and dynamic:pool",
                     (int)(length < 40 ? length : 40), at);
            return 0;
        }
        for (int i = 0; i < count - 1; i++)
            if (strcmp(variants[i].name, variant->name) == 0) {
                snprintf(why, why_bytes, "names %s twice", variant->name);
                return 0;
            }
        at += length;
        if (!*at)
            break;
    }
    if (count < 2)
        snprintf(why, why_bytes, "has one variant; give at least two");
    return count < 2 ? 0 : count;
}
