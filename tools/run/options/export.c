/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/export/export.h"
#include "tools/run/options/options.h"
#include "tools/shared/arguments.h"

enum { EXPORT_PATH = 0x300, EXPORT_DTYPE, EXPORT_FILE_BYTES, EXPORT_MERGED };

static const struct argp_option export_options[] = {
    {"export", EXPORT_PATH, "PATH", 0,
     "export the weights at the end: a Hugging Face folder (config.json, safetensors), or a GPT-2 checkpoint of llm.c if PATH "
     "ends in .bin", 4},
    {"export-dtype", EXPORT_DTYPE, "TYPE", 0, "element type of --export: fp32 or bf16 [fp32]", 4},
    {"export-file-bytes", EXPORT_FILE_BYTES, "N", 0,
     "largest file of --export: bytes, or with K, M, G [5G]", 4},
    {"export-merged", EXPORT_MERGED, NULL, 0, "with --lora: export the whole model, with the adapters added to its weights", 4},
    {0},
};

/* A whole number, and K, M or G (1024 each). */
static uint64_t parse_bytes(const struct argp_state *state, const char *name, const char *text)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    static const char units[] = "KMG";
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (!isdigit((unsigned char)text[0]) || end[unit ? 1 : 0] != '\0' || errno == ERANGE || number == 0 ||
        number > (UINT64_MAX >> 1) >> shift)
        argp_error(state, "--%s is '%s'; give a number of bytes, for example 2000000000 or 500M", name, text);
    return (uint64_t)number << shift;
}

static error_t parse_export_option(int key, char *text, struct argp_state *state)
{
    struct tool_export_settings *settings = state->input;
    if (key >= EXPORT_PATH && key <= EXPORT_MERGED)
        settings->given |= (uint64_t)1 << (key - EXPORT_PATH);
    switch (key) {
    case EXPORT_PATH: settings->path = text; return 0;
    case EXPORT_DTYPE:
        settings->dtype = tool_option_dtype(state, "export-dtype", text);
        return 0;
    case EXPORT_FILE_BYTES: settings->file_bytes = parse_bytes(state, "export-file-bytes", text); return 0;
    case EXPORT_MERGED: settings->merged = true; return 0;
    case ARGP_KEY_END:
        if (settings->given && !settings->path)
            argp_error(state, "--export-dtype, --export-file-bytes and --export-merged need --export; name a folder with it");
        if (settings->path && settings->path[0] == '\0')
            argp_error(state, "--export is empty; name a folder, or FILE.bin");
        if (settings->file_bytes == 0)
            settings->file_bytes = TOOL_EXPORT_FILE_BYTES;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp tool_export_argp = {.options = export_options, .parser = parse_export_option};
