/* SPDX-License-Identifier: MIT
 *
 * A range of one parameter out of its file, in pieces: no more than a few hundred KiB are held beside what is asked for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/interchange/import.h"
#include "tools/shared/weights_hash.h"

/* A tile of a matrix that lies transposed: so many of its rows, which are our columns, and elements of each. */
enum { TILE_ROWS = 16, TILE_WIDTH = 4096, ROOM = TILE_ROWS * TILE_WIDTH };

struct room {
    float values[ROOM];
    char bytes[ROOM * sizeof(float)];
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static eo_status read_straight(const struct tool_import_tensor *tensor, const struct tool_import_file *file, struct room *room,
                               uint64_t offset, uint64_t count, float *values, struct tool_problem *problem)
{
    const uint32_t element_bytes = tool_element_bytes(tensor->element);
    if (tensor->element == TOOL_ELEMENT_F32)
        return tool_read_at(file->file, file->path, values, count * element_bytes, tensor->at + offset * element_bytes,
                            problem);
    for (uint64_t done = 0; done < count;) {
        const uint64_t part = least(count - done, ROOM);
        EO_TRY(tool_read_at(file->file, file->path, room->bytes, part * element_bytes,
                            tensor->at + (offset + done) * element_bytes, problem));
        tool_elements_decode(values + done, room->bytes, part, tensor->element);
        done += part;
    }
    return EO_OK;
}

/* Of our elements [row][column]: `width` rows and `height` columns, which are `height` rows of the file. */
struct tile {
    uint64_t row, width, column, height;
};

/* Of a tile, what lies in the range. */
static eo_status read_tile(const struct tool_import_tensor *tensor, const struct tool_import_file *file, struct room *room,
                           const struct tile *tile, uint64_t offset, uint64_t count, float *values, struct tool_problem *problem)
{
    const uint64_t element_bytes = tool_element_bytes(tensor->element), row_bytes = tile->width * element_bytes;
    for (uint64_t k = 0; k < tile->height; k++)
        EO_TRY(tool_read_at(file->file, file->path, room->bytes + k * row_bytes, row_bytes,
                            tensor->at + ((tile->column + k) * tensor->rows + tile->row) * element_bytes, problem));
    tool_elements_decode(room->values, room->bytes, tile->width * tile->height, tensor->element);
    for (uint64_t r = 0; r < tile->width; r++)
        for (uint64_t k = 0; k < tile->height; k++) {
            const uint64_t element = (tile->row + r) * tensor->columns + tile->column + k;
            if (element >= offset && element - offset < count)
                values[element - offset] = room->values[k * tile->width + r];
        }
    return EO_OK;
}

static eo_status read_transposed(const struct tool_import_tensor *tensor, const struct tool_import_file *file,
                                 struct room *room, uint64_t offset, uint64_t count, float *values,
                                 struct tool_problem *problem)
{
    const uint64_t first_row = offset / tensor->columns, end_row = (offset + count - 1) / tensor->columns + 1;
    for (uint64_t row = first_row; row < end_row; row += TILE_WIDTH)
        for (uint64_t column = 0; column < tensor->columns; column += TILE_ROWS) {
            const struct tile tile = {row, least(TILE_WIDTH, end_row - row), column, least(TILE_ROWS, tensor->columns - column)};
            EO_TRY(read_tile(tensor, file, room, &tile, offset, count, values, problem));
        }
    return EO_OK;
}

eo_status tool_import_read(const struct tool_import *import, uint32_t parameter, uint64_t offset, uint64_t count, float *values,
                           struct tool_problem *problem)
{
    const struct tool_import_tensor *tensor = &import->tensors[parameter];
    const struct tool_import_file *file = &import->files[tensor->file];
    if (count == 0)
        return EO_OK;
    struct room *room = malloc(sizeof(*room));
    if (!room)
        return tool_problem_set(problem, EO_ERR_NO_MEMORY, "%s: no memory for reading", file->path);
    const eo_status status = (tensor->transposed ? read_transposed : read_straight)(tensor, file, room, offset, count,
                                                                                   values, problem);
    free(room);
    for (uint64_t i = 0; status >= 0 && i < count; i++)
        if (!isfinite(values[i]))
            return tool_problem_set(problem, EO_ERR_INVALID, "%s: element %llu of '%s' is %g; the weights are damaged",
                                    file->path, (unsigned long long)(offset + i), tensor->name, (double)values[i]);
    return status;
}

/* Its shape, and a few bytes at both ends and in the middle. */
static eo_status add_fingerprint(const struct tool_import *import, const struct tool_import_tensor *tensor, uint64_t *hash,
                                 struct tool_problem *problem)
{
    char sample[64];
    const struct tool_import_file *file = &import->files[tensor->file];
    const uint64_t facts[] = {tensor->element, tensor->transposed, tensor->rows, tensor->columns};
    const uint64_t bytes = tensor->rows * tensor->columns * tool_element_bytes(tensor->element);
    const uint64_t part = least(bytes, sizeof(sample)), places[] = {0, (bytes - part) / 2, bytes - part};
    *hash = tool_hash_more(*hash, tensor->name, strlen(tensor->name));
    *hash = tool_hash_more(*hash, facts, sizeof(facts));
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        EO_TRY(tool_read_at(file->file, file->path, sample, part, tensor->at + places[i], problem));
        *hash = tool_hash_more(*hash, sample, part);
    }
    return EO_OK;
}

eo_status tool_import_fingerprint(const struct tool_import *import, uint64_t *out, struct tool_problem *problem)
{
    *out = TOOL_HASH_START;
    for (uint32_t k = 0; k < import->tensor_count; k++)
        if (!import->tensors[k].is_absent)
            EO_TRY(add_fingerprint(import, &import->tensors[k], out, problem));
    return EO_OK;
}
