/* SPDX-License-Identifier: MIT */
#include "tools/interchange/tokenizer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/interchange/foreign.h"
#include "tools/shared/open_file.h"
#include "tools/shared/weights_hash.h"

enum {
    TOKENIZER_BYTES_MAX = 256 << 20,
    TOKENS_MAX = 1 << 22,
    PATH_BYTES_MAX = 4096,
    LETTERS = 324, /* code points below this stand for bytes, see byte_of_letter */
};

/* How pieces are written. */
enum spelling {
    SPELLING_UNKNOWN,
    SPELLING_BYTES,  /* a letter a byte: GPT-2's and Llama 3's, "ByteLevel" */
    SPELLING_SPACES, /* UTF-8, with U+2581 for a space and <0x0A> for a byte: SentencePiece's */
};

/* --- pieces to bytes ---------------------------------------------------------------------------------------------- */

/* GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the others are numbered from 256. -1: no letter of it. */
static int byte_of_letter(uint32_t letter)
{
    static int16_t bytes[LETTERS]; /* byte + 1 */
    if (!bytes['!']) {
        int next = 256;
        for (int b = 0; b < 256; b++) {
            const bool is_own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            bytes[is_own ? b : next++] = (int16_t)(b + 1);
        }
    }
    return letter < LETTERS ? bytes[letter] - 1 : -1;
}

/* jansson has checked that it is UTF-8. */
static uint32_t next_letter(const char **text)
{
    const unsigned char *at = (const unsigned char *)*text;
    const int more = at[0] < 0x80 ? 0 : at[0] < 0xe0 ? 1 : at[0] < 0xf0 ? 2 : 3;
    uint32_t letter = more ? at[0] & (0x3fu >> more) : at[0];
    for (int i = 1; i <= more; i++)
        letter = letter << 6 | (at[i] & 0x3fu);
    *text += 1 + more;
    return letter;
}

static uint32_t write_as_it_is(const char *piece, char *out)
{
    const size_t bytes = strlen(piece);
    memcpy(out, piece, bytes);
    return (uint32_t)bytes;
}

/* Never longer than the piece. One with any letter outside the alphabet is text. */
static uint32_t write_letters(const char *piece, char *out)
{
    uint32_t count = 0;
    for (const char *at = piece; *at;) {
        const int byte = byte_of_letter(next_letter(&at));
        if (byte < 0)
            return write_as_it_is(piece, out);
        out[count++] = (char)byte;
    }
    return count;
}

static uint32_t write_spaces(const char *piece, char *out)
{
    static const char space[] = "\xe2\x96\x81"; /* U+2581 */
    uint32_t count = 0;
    if (strncmp(piece, "<0x", 3) == 0 && strspn(piece + 3, "0123456789abcdefABCDEF") == 2 && strcmp(piece + 5, ">") == 0) {
        out[0] = (char)strtoul(piece + 3, NULL, 16);
        return 1;
    }
    while (*piece) {
        const bool is_space = strncmp(piece, space, 3) == 0;
        out[count++] = is_space ? ' ' : *piece;
        piece += is_space ? 3 : 1;
    }
    return count;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

/* "decoder", and where it is a sequence its parts. */
static enum spelling spelling_of(const json_t *decoder, int depth)
{
    const char *type = json_string_value(json_object_get(decoder, "type"));
    enum spelling found = SPELLING_UNKNOWN;
    size_t i;
    json_t *part;
    if (!type)
        return SPELLING_UNKNOWN;
    if (strcmp(type, "ByteLevel") == 0)
        return SPELLING_BYTES;
    if (strcmp(type, "Metaspace") == 0 || strcmp(type, "ByteFallback") == 0)
        return SPELLING_SPACES;
    if (strcmp(type, "Sequence") == 0 && depth == 0)
        json_array_foreach(json_object_get(decoder, "decoders"), i, part)
            if (found == SPELLING_UNKNOWN)
                found = spelling_of(part, depth + 1);
    return found;
}

struct piece {
    const char *text; /* NULL: no such token */
    bool is_added;    /* of SPELLING_BYTES: as it is written */
};

/* False: no number of a token. */
static bool add_piece(struct piece *pieces, json_int_t id, const char *text, bool is_added, uint32_t *count)
{
    if (id < 0 || id >= TOKENS_MAX || !text)
        return false;
    pieces[id] = (struct piece){text, is_added};
    if (*count <= (uint32_t)id)
        *count = (uint32_t)id + 1;
    return true;
}

static bool read_pieces(const json_t *root, struct piece *pieces, uint32_t *count)
{
    json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab"), *value;
    const char *text;
    size_t i;
    bool good = true;
    if (json_is_object(vocabulary))
        json_object_foreach(vocabulary, text, value)
            good = good && json_is_integer(value) && add_piece(pieces, json_integer_value(value), text, false, count);
    else if (json_is_array(vocabulary)) /* of a Unigram model: pairs of piece and score */
        json_array_foreach(vocabulary, i, value)
            good = good && add_piece(pieces, (json_int_t)i, json_string_value(json_array_get(value, 0)), false, count);
    else
        return false;
    json_array_foreach(json_object_get(root, "added_tokens"), i, value)
        good = good && json_is_integer(json_object_get(value, "id")) &&
               add_piece(pieces, json_integer_value(json_object_get(value, "id")),
                         json_string_value(json_object_get(value, "content")), true, count);
    return good && *count > 0;
}

static eo_status write_pieces(struct tool_tokenizer *tokenizer, const struct piece *pieces, uint32_t count,
                              enum spelling spelling)
{
    uint64_t room = 1;
    for (uint32_t i = 0; i < count; i++)
        room += pieces[i].text ? strlen(pieces[i].text) : 0;
    tokenizer->begins = room < UINT32_MAX ? malloc((count + 1) * sizeof(*tokenizer->begins)) : NULL;
    tokenizer->bytes = room < UINT32_MAX ? malloc(room) : NULL;
    if (!tokenizer->begins || !tokenizer->bytes)
        return EO_ERR_NO_MEMORY;
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const char *text = pieces[i].text ? pieces[i].text : "";
        char *out = tokenizer->bytes + used;
        tokenizer->begins[i] = used;
        used += spelling == SPELLING_SPACES ? write_spaces(text, out)
                : pieces[i].is_added        ? write_as_it_is(text, out)
                                            : write_letters(text, out);
    }
    tokenizer->begins[count] = used;
    tokenizer->count = count;
    return EO_OK;
}

static eo_status read_tokens(struct tool_tokenizer *tokenizer, const json_t *root, const char *option, const char *path,
                             struct tool_problem *problem)
{
    uint32_t count = 0;
    const enum spelling spelling = spelling_of(json_object_get(root, "decoder"), 0);
    if (!json_is_object(json_object_get(root, "model")))
        return tool_problem_set(problem, EO_ERR_INVALID,
                                "%s %s: has no \"model\"; it is no tokenizer.json of the tokenizers library", option, path);
    if (spelling == SPELLING_UNKNOWN)
        return tool_problem_set(problem, EO_ERR_UNSUPPORTED,
                                "%s %s: its decoder is neither ByteLevel nor Metaspace or ByteFallback, so samples cannot be "
                                "shown as text; leave it out to see numbers",
                                option, path);
    struct piece *pieces = calloc(TOKENS_MAX, sizeof(*pieces)); /* the kernel gives memory for what is touched */
    if (!pieces)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s %s: no memory", option, path);
    eo_status status = EO_ERR_INVALID;
    if (read_pieces(root, pieces, &count))
        status = write_pieces(tokenizer, pieces, count, spelling);
    free(pieces);
    if (status == EO_ERR_INVALID)
        tool_problem_set(problem, status, "%s %s: \"vocab\" or \"added_tokens\" gives a token no text or no number from 0 to %d",
                         option, path, TOKENS_MAX - 1);
    else if (status < 0)
        tool_problem_set(problem, status, "%s %s: no memory", option, path);
    return status;
}

static eo_status hash_file(uint64_t *out, const char *option, const char *path, struct tool_problem *problem)
{
    FILE *file;
    unsigned char bytes[1 << 16];
    *out = TOOL_HASH_START;
    EO_TRY(tool_open_stream(&file, option, path, problem));
    for (size_t count; (count = fread(bytes, 1, sizeof(bytes), file)) > 0;)
        *out = tool_hash_more(*out, bytes, count);
    const bool good = !ferror(file);
    fclose(file);
    return good ? EO_OK : tool_problem_set(problem, EO_ERR_IO, "%s %s: cannot be read", option, path);
}

eo_status tool_tokenizer_load(struct tool_tokenizer *tokenizer, const char *option, const char *path,
                              struct tool_problem *problem)
{
    char file[PATH_BYTES_MAX];
    struct stat info;
    json_t *root;
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    *tokenizer = (struct tool_tokenizer){0};
    if (snprintf(file, sizeof(file), "%s%s", path, is_folder ? "/tokenizer.json" : "") >= (int)sizeof(file))
        return tool_problem_set(problem, EO_ERR_INVALID, "%s: a path of %zu bytes; give another", option, strlen(path));
    eo_status status = tool_open_json(&root, TOKENIZER_BYTES_MAX, option, file, problem); /* knows how many bytes are too many */
    if (status < 0 && tool_foreign_is_pointer(file))
        status = tool_problem_set(problem, EO_ERR_INVALID,
                                  "%s %s: is a pointer of Git LFS, not the file: get it with git lfs pull", option, file);
    if (status >= 0) {
        status = read_tokens(tokenizer, root, option, file, problem);
        json_decref(root);
    }
    if (status < 0)
        tool_tokenizer_fini(tokenizer);
    struct tool_problem unread; /* told above */
    const bool is_too_large = stat(file, &info) == 0 && info.st_size > TOKENIZER_BYTES_MAX; /* no token file is of such a one */
    const eo_status hashed = is_too_large ? EO_OK : hash_file(&tokenizer->hash, option, file, status < 0 ? &unread : problem);
    if (hashed < 0)
        tool_tokenizer_fini(tokenizer);
    return status < 0 ? status : hashed;
}

const char *tool_tokenizer_text(const struct tool_tokenizer *tokenizer, uint32_t token, uint32_t *bytes)
{
    *bytes = token < tokenizer->count ? tokenizer->begins[token + 1] - tokenizer->begins[token] : 0;
    return *bytes ? tokenizer->bytes + tokenizer->begins[token] : "";
}

void tool_tokenizer_fini(struct tool_tokenizer *tokenizer)
{
    free(tokenizer->begins);
    free(tokenizer->bytes);
    *tokenizer = (struct tool_tokenizer){0};
}
