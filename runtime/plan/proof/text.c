/* SPDX-License-Identifier: MIT */
#include "runtime/plan/proof/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* The proof keeps words of its own: it shares nothing with the code that it checks. */
static const char *const kind_words[EO_OP_KIND_COUNT] = {
    [EO_OP_ALL_GATHER] = "all-gather",
    [EO_OP_FORWARD] = "forward",
    [EO_OP_RECOMPUTE] = "recompute",
    [EO_OP_BACKWARD] = "backward",
    [EO_OP_REDUCE_SCATTER] = "reduce-scatter",
    [EO_OP_ALL_REDUCE] = "all-reduce",
    [EO_OP_ACCUMULATE] = "accumulation",
    [EO_OP_NORM_PARTIAL] = "norm partial",
    [EO_OP_NORM_LOCAL] = "local norm",
    [EO_OP_NORM_GATHER] = "gather of norm partials",
    [EO_OP_NORM_SUM] = "norm sum",
    [EO_OP_UPDATE] = "optimizer update",
    [EO_OP_FETCH] = "fetch from disk",
    [EO_OP_EVICT] = "eviction to disk",
    [EO_OP_NARROW] = "narrowing",
    [EO_OP_WIDEN] = "widening",
    [EO_OP_DIRECTION] = "direction of Muon",
    [EO_OP_MATRIX_GATHER] = "gather of matrices",
    [EO_OP_ORTHOGONALIZE] = "orthogonalization",
    [EO_OP_MATRIX_SCATTER] = "scatter of matrices",
    [EO_OP_COPY_OUT] = "copy out",
    [EO_OP_COPY_IN] = "copy in",
};

static const char *const stream_words[EO_STREAM_COUNT] = {
    [EO_STREAM_COMPUTE] = "compute",
    [EO_STREAM_COMM] = "communication",
    [EO_STREAM_REDUCE] = "reduction",
    [EO_STREAM_COPY] = "copy",
    [EO_STREAM_EVICT] = "eviction",
};

struct name {
    char text[96];
};

/* Appends to text, which is cut where it ends. */
static void append(char *text, size_t bytes, size_t *used, const char *format, ...) EO_PRINTF(4, 5);
static void append(char *text, size_t bytes, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(text + *used, bytes - *used, format, arguments);
    va_end(arguments);
    const size_t room = bytes - *used - 1;
    *used += wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room;
}

static struct name operation_name(const struct eo_proof_params *params, const struct eo_operation *operation)
{
    struct name name = {{0}};
    if (params->namer != NULL) {
        params->namer(params->namer_user, operation, name.text, sizeof(name.text));
        return name;
    }
    size_t used = 0;
    const bool known = (uint32_t)operation->kind < EO_OP_KIND_COUNT;
    append(name.text, sizeof(name.text), &used, "%s", known ? kind_words[operation->kind] : "unknown operation");
    if (operation->position != EO_NONE)
        append(name.text, sizeof(name.text), &used, " of position %" PRIu32, operation->position);
    else if (operation->layer != EO_NONE)
        append(name.text, sizeof(name.text), &used, " of layer %" PRIu32, operation->layer);
    if (operation->micro_batch != EO_NONE)
        append(name.text, sizeof(name.text), &used, ", micro-batch %" PRIu32, operation->micro_batch);
    return name;
}

static struct name place_name(const struct eo_proof_params *params, struct eo_place place)
{
    if (place.operation == EO_NONE)
        return (struct name){"the checkpoint"};
    return operation_name(params, &params->schedule->lists[params->sequence[place.run]].operations[place.operation]);
}

static const char *row_name(const struct eo_proof_params *params, uint32_t row)
{
    const char *name = params->schedule->rows[row].name;
    return name != NULL ? name : "(a row without a name)";
}

static const char *mode_word(const struct eo_access *access)
{
    return access->mode == EO_READ ? "reads" : access->mode == EO_WRITE ? "overwrites" : "updates";
}

void eo_proof_text_race(const struct eo_proof_params *params, struct eo_place place, const struct eo_access *access,
                        struct eo_hazard *hazard, bool other_writes)
{
    const size_t bytes = sizeof(hazard->text);
    const struct eo_place other = {hazard->other_run, hazard->other_operation};
    const struct name name = place_name(params, place), other_name = place_name(params, other);
    const char *row = row_name(params, hazard->row), *other_row = row_name(params, hazard->other_row);
    size_t used = 0;

    if (place.run == other.run && place.operation == other.operation) {
        append(hazard->text, bytes, &used,
               "%s (run %" PRIu32 ") %s %s and %s %s at the same addresses: no wait can order the parts of one operation; give "
               "each row a place of its own",
               name.text, place.run, mode_word(access), row, other_writes ? "writes" : "reads", other_row);
        return;
    }
    append(hazard->text, bytes, &used, "%s (run %" PRIu32 ") %s %s while %s (run %" PRIu32 ") may still %s ",
           name.text, place.run, mode_word(access), row, other_name.text, other.run, other_writes ? "write" : "read");
    if (hazard->row == hazard->other_row)
        append(hazard->text, bytes, &used, "it");
    else
        append(hazard->text, bytes, &used, "%s at the same addresses", other_row);
    append(hazard->text, bytes, &used, ": %s (run %" PRIu32 ") needs a wait for %s", name.text, place.run,
           other_name.text);
    if (other.run != place.run)
        append(hazard->text, bytes, &used, " of run %" PRIu32, other.run);
}

void eo_proof_text_stale(const struct eo_proof_params *params, struct eo_place place, const struct eo_access *access,
                         struct eo_hazard *hazard, const struct eo_content *expected, const struct eo_content *found)
{
    const size_t bytes = sizeof(hazard->text);
    const struct name name = place_name(params, place);
    size_t used = 0;
    append(hazard->text, bytes, &used,
           "%s (run %" PRIu32 ") %s %s and needs version %" PRId64 " of subject %" PRIu32 " there, but finds ",
           name.text, place.run, mode_word(access), row_name(params, access->row), expected->version,
           expected->subject);
    if (found->row == EO_NONE) {
        append(hazard->text, bytes, &used, "nothing: no operation has written it yet");
        return;
    }
    append(hazard->text, bytes, &used, "version %" PRId64 " of subject %" PRIu32, found->version, found->subject);
    if (found->row != access->row)
        append(hazard->text, bytes, &used, " in %s at the same addresses", row_name(params, found->row));
    if (hazard->other_run == EO_NONE) {
        append(hazard->text, bytes, &used, ", as it was before the first run");
        return;
    }
    const struct eo_place writer = {hazard->other_run, hazard->other_operation};
    append(hazard->text, bytes, &used, ", left by %s (run %" PRIu32 ")", place_name(params, writer).text, writer.run);
}

void eo_proof_text_peer(const struct eo_proof_params *params, struct eo_place place, const struct eo_access *access,
                        struct eo_hazard *hazard)
{
    const struct eo_place other = {hazard->other_run, hazard->other_operation};
    size_t used = 0;
    append(hazard->text, sizeof(hazard->text), &used,
           "%s (run %" PRIu32 ") %s %s while a peer may still read it in %s (run %" PRIu32 "): a later collective of the same "
           "ranks must end before", place_name(params, place).text, place.run, mode_word(access),
           row_name(params, hazard->row), place_name(params, other).text, other.run);
}

void eo_proof_text_shared(const struct eo_proof_params *params, struct eo_hazard *hazard)
{
    size_t used = 0;
    append(hazard->text, sizeof(hazard->text), &used,
           "%s holds its content for the whole run, but shares addresses with %s: it needs a place of its own",
           row_name(params, hazard->row), row_name(params, hazard->other_row));
}

void eo_proof_text_life(const struct eo_proof_params *params, struct eo_place place, struct eo_hazard *hazard,
                        struct eo_place writer)
{
    const struct eo_place begin = {hazard->other_run, hazard->other_operation};
    size_t used = 0;
    append(hazard->text, sizeof(hazard->text), &used,
           "%s (run %" PRIu32 ") needs the trainer's buffer %s as the passes since %s (run %" PRIu32 ") left it, but %s (run "
           "%" PRIu32 ") has written %s at the same addresses: the buffer needs a place of its own until here",
           place_name(params, place).text, place.run, row_name(params, hazard->row), place_name(params, begin).text, begin.run,
           place_name(params, writer).text, writer.run, row_name(params, hazard->other_row));
}

void eo_proof_text_queue(const struct eo_proof_params *params, struct eo_place place, uint32_t items,
                         struct eo_hazard *hazard)
{
    const struct eo_operation *operation =
        &params->schedule->lists[params->sequence[place.run]].operations[place.operation];
    size_t used = 0;
    append(hazard->text, sizeof(hazard->text), &used,
           "when %s (run %" PRIu32 ") is issued, %" PRIu32 " operations of the %s stream may be under way, but its queue "
           "holds %" PRIu32, operation_name(params, operation).text, place.run, items, stream_words[operation->stream],
           params->schedule->queue_items[operation->stream]);
}

/* Any operation with this id, to name what is waited for. */
static const struct eo_operation *find_operation(const struct eo_schedule *schedule, uint32_t id)
{
    for (int list = 0; list < EO_LIST_COUNT; list++)
        for (uint32_t i = 0; i < schedule->lists[list].count; i++)
            if (schedule->lists[list].operations[i].id == id)
                return &schedule->lists[list].operations[i];
    return NULL;
}

void eo_proof_text_unknown_wait(const struct eo_proof_params *params, struct eo_place place, eo_stream_id stream,
                                struct eo_hazard *hazard)
{
    const size_t bytes = sizeof(hazard->text);
    const struct eo_operation *waits =
        &params->schedule->lists[params->sequence[place.run]].operations[place.operation];
    const struct eo_operation *awaited = find_operation(params->schedule, waits->wait[stream]);
    size_t used = 0;
    append(hazard->text, bytes, &used, "%s (run %" PRIu32 ") waits for ", operation_name(params, waits).text,
           place.run);
    if (awaited != NULL)
        append(hazard->text, bytes, &used, "%s", operation_name(params, awaited).text);
    else
        append(hazard->text, bytes, &used, "an operation with id %" PRIu32, waits->wait[stream]);
    append(hazard->text, bytes, &used, " of %s run on the %s stream, but no such record comes before it",
           waits->wait_previous_run[stream] ? "the previous" : "the same", stream_words[stream]);
}
