/* SPDX-License-Identifier: MIT
 *
 * Ids of special tokens in the config.json of an export. The weights know nothing of them: they are those of the config that
 * the model was made from; where that names none, or others than the model has, those of the tokenizer beside the tokens, and
 * for the end of a text the one of the token files.
 */
#include <string.h>

#include "tools/interchange/export/export.h"

enum { BOS, EOS, PAD, IDS, GPT2_WORDS = 50257 };
static const char *const id_names[IDS] = {"bos_token_id", "eos_token_id", "pad_token_id"};
static const char *const word_names[IDS] = {"bos_token", "eos_token", "pad_token"};

/* A number of the vocabulary, or a list of them. Negative ones are nothing, by some readers. */
static bool is_in(uint32_t vocabulary, const json_t *value)
{
    size_t i;
    const json_t *part;
    json_array_foreach(value, i, part) if (!is_in(vocabulary, part)) return false;
    return !json_is_integer(value) || json_integer_value(value) < (json_int_t)vocabulary;
}

bool tool_export_ids_fit(const json_t *config, uint32_t vocabulary)
{
    for (int i = 0; i < IDS; i++)
        if (!is_in(vocabulary, json_object_get(config, id_names[i])))
            return false;
    return true;
}

/* A token is a text, or an object with one. -1: the tokenizer has no such. */
static json_int_t id_of(const json_t *tokenizer, const json_t *token)
{
    const char *word = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
    const json_t *id = word ? json_object_get(json_object_get(json_object_get(tokenizer, "model"), "vocab"), word) : NULL;
    size_t i;
    const json_t *added;
    json_array_foreach(json_object_get(tokenizer, "added_tokens"), i, added)
    {
        const char *content = json_string_value(json_object_get(added, "content"));
        if (word && content && strcmp(content, word) == 0)
            id = json_object_get(added, "id");
    }
    return json_is_integer(id) ? json_integer_value(id) : -1;
}

/* Those that tokenizer_config.json names; others stay as they are. */
static void ids_of_tokenizer(json_int_t ids[IDS], const struct tool_export_model *model)
{
    char folder[4096];
    if (!tool_export_tokenizer_folder(folder, sizeof(folder), model->tokenizer))
        return;
    json_t *config = tool_export_open_companion(folder, "tokenizer_config.json"),
           *tokenizer = config ? tool_export_open_companion(folder, "tokenizer.json") : NULL;
    for (int i = 0; tokenizer && i < IDS; i++)
        ids[i] = id_of(tokenizer, json_object_get(config, word_names[i]));
    json_decref(config);
    json_decref(tokenizer);
}

/* In place of one that the config does not have; -1: none is known. */
static json_int_t id_for(int which, const json_int_t ids[IDS], const struct tool_export_model *model)
{
    const uint32_t vocabulary = model->config.vocabulary;
    if (ids[which] >= 0 && ids[which] < (json_int_t)vocabulary)
        return ids[which];
    if (which == EOS && model->end_of_text && *model->end_of_text < vocabulary)
        return *model->end_of_text;
    const bool is_published = model->config.family == EO_FAMILY_GPT2 && vocabulary == GPT2_WORDS;
    return is_published && which != PAD ? GPT2_WORDS - 1 : -1; /* <|endoftext|> */
}

void tool_export_ids(struct eo_json *json, const struct tool_export_model *model, const json_t *origin, bool names_pad)
{
    json_int_t ids[IDS] = {-1, -1, -1};
    bool taken[IDS];
    for (int i = 0; i < IDS; i++) {
        const json_t *value = json_object_get(origin, id_names[i]);
        taken[i] = value && !json_is_null(value) && is_in(model->config.vocabulary, value);
    }
    if (!taken[BOS] || !taken[EOS]) /* it is large */
        ids_of_tokenizer(ids, model);
    for (int i = 0; i < IDS; i++) {
        const json_t *value = json_object_get(origin, id_names[i]);
        const json_int_t id = taken[i] ? -1 : id_for(i, ids, model);
        if (!value && id < 0 && i == PAD && !names_pad)
            continue;
        eo_json_write(json, "%s:", id_names[i]);
        if (id >= 0)
            eo_json_write(json, "%" JSON_INTEGER_FORMAT, id);
        else
            tool_json_value(json, taken[i] ? value : NULL);
    }
}
