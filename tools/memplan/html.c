/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/page.h"
#include "tools/memplan_page.h"
#include "tools/shared/json_output.h"
#include "tools/shared/open_file.h"
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

/* What a page does by itself; a search has ended. */
static bool is_of_page(enum memplan_key key)
{
    static const enum memplan_key others[] = {KEY_MODEL, KEY_JSON, KEY_CSV, KEY_SVG, KEY_HTML, KEY_EXPLAIN, KEY_FIT};
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
    const bool searched = m->asked.fit != 0;
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

/* A file of JSON as it was read, without its blank space. */
static eo_status write_json_file(struct eo_json *json, const char *name, const char *path, struct tool_problem *problem)
{
    enum { BYTES_MAX = 1 << 20 };
    json_t *root;
    if (!path)
        return EO_OK;
    EO_TRY(tool_open_json(&root, BYTES_MAX, "--html", path, problem));
    char *text = json_dumps(root, JSON_COMPACT);
    if (text)
        eo_json_write(json, "%s: %s", name, text);
    free(text);
    json_decref(root);
    return text ? EO_OK : tool_problem_set(problem, EO_ERR_NO_MEMORY, "--html: %s: no memory", path);
}

static eo_status write_files(struct eo_json *json, const struct tool_reply *m, struct tool_problem *problem)
{
    char *config = NULL;
    size_t bytes = 0;
    if (m->config.from_file)
        EO_TRY(tool_model_config_read(m->config.source, &config, &bytes, problem));
    eo_json_write(json, "'config': %s", config);
    free(config);
    EO_TRY(write_json_file(json, "rates", m->asked.budget.rates_path, problem));
    return write_json_file(json, "devices", m->asked.devices_path, problem);
}

eo_status tool_page_html(FILE *out, const struct tool_reply *reply, struct tool_problem *problem)
{
    const char *text = memplan_html;
    struct eo_json json = {.write = write_to_page, .user = out};
    tool_page_to(out, &text, "id=\"asked\">null");
    fprintf(out, "id=\"asked\">");
    eo_json_write(&json, "{'words': [");
    write_words(&json, reply);
    eo_json_write(&json, "], 'files': {");
    EO_TRY(write_files(&json, reply, problem));
    eo_json_write(&json, "}}");
    tool_page_to(out, &text, NULL);
    return EO_OK;
}
