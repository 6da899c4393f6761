/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "tools/memplan/page.h"
#include "tools/memplan_page.h"
#include "tools/shared/json_output.h"
#include "tools/shared/page.h"

/* Into an element of a page: there "</script" would end it. */
static void write_to_page(void *file, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '<')
            fputs("\\u003c", file);
        else
            fputc(text[i], file);
}

/* What a page does by itself, or cannot do. */
static bool is_of_page(enum memplan_key key)
{
    static const enum memplan_key others[] = {KEY_MODEL, KEY_JSON,    KEY_CSV,   KEY_SVG,   KEY_HTML,
                                              KEY_EXPLAIN, KEY_FIT, KEY_BUDGET, KEY_RATES, KEY_MAY_CHANGE_BITS};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (others[i] == key)
            return false;
    return true;
}

/* What tool_plan_settings_words says. */
static bool is_of_search(enum memplan_key key)
{
    const bool is_run = key >= KEY_WORLD && key <= KEY_GRAPH && key != KEY_NODE && key != KEY_GATHER;
    return is_run || key == KEY_GLOBAL_BATCH;
}

static void write_word(struct eo_json *json, enum memplan_key key, const char *value)
{
    char name[64];
    snprintf(name, sizeof(name), "--%s", tool_memplan_option_name(key));
    eo_json_write(json, "%s", name);
    if (value)
        eo_json_write(json, "%s", value);
}

/* Of a search the settings that it found, else those that were given: what is open stays open. */
static void write_words(struct eo_json *json, const struct tool_reply *m)
{
    const bool searched = m->asked.fit || m->asked.budget.request.bytes;
    write_word(json, KEY_MODEL, m->config.source);
    for (uint32_t i = 0; i < m->asked.word_count; i++) {
        const struct tool_asked_word *word = &m->asked.words[i];
        const bool is_found = searched && m->plan.plan && is_of_search(word->key);
        if (is_of_page(word->key) && !is_found)
            write_word(json, word->key, word->value);
    }
    if (!searched || !m->plan.plan)
        return;
    char text[TOOL_PLAN_WORDS_MAX], *rest = text;
    tool_plan_settings_words(&m->plan.settings.plan, text);
    for (const char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        eo_json_write(json, "%s", word);
}

void tool_page_html(FILE *out, const struct tool_reply *reply, const char *config)
{
    const char *text = memplan_html;
    struct eo_json json = {.write = write_to_page, .user = out};
    tool_page_to(out, &text, "id=\"asked\">null");
    fprintf(out, "id=\"asked\">");
    eo_json_write(&json, "{'words': [");
    write_words(&json, reply);
    eo_json_write(&json, "], 'config': %s}", config);
    tool_page_to(out, &text, NULL);
}
