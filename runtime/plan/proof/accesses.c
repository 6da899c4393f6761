/* SPDX-License-Identifier: MIT
 *
 * What an access finds in the segments of its row, and what it leaves there; lifetimes of a trainer's buffers as accesses of
 * their first and last passes.
 */
#include "runtime/plan/proof/shadow.h"

#include "base/check.h"

static bool happens_before(const struct proof *proof, uint32_t number, eo_stream_id stream)
{
    return number <= proof->now.done[EO_SCOPE_ALONE][stream];
}

static struct eo_content content_named(const struct proof *proof, const struct eo_access *access)
{
    const int64_t step = proof->step, micro_batches = proof->schedule->micro_batches;
    const int64_t micro_batch = proof->operation->micro_batch == EO_NONE ? 0 : proof->operation->micro_batch;
    int64_t version = access->version_offset;
    if (access->version_kind == EO_VERSION_STEP)
        version += step;
    else if (access->version_kind == EO_VERSION_MICRO_BATCH)
        version += (step * micro_batches + micro_batch) * (access->version_scale == 0 ? 1 : access->version_scale);
    else
        EO_ASSERT(access->version_kind == EO_VERSION_FIXED);
    return (struct eo_content){access->row, access->subject, version};
}

void eo_proof_look(struct proof *proof, const struct eo_access *access)
{
    const eo_stream_id stream = proof->operation->stream;
    struct eo_content expected = content_named(proof, access);
    expected.version -= access->mode == EO_UPDATE;
    bool stale_seen = false;
    const uint32_t end = proof->row_end[access->row];
    for (uint32_t i = proof->row_begin[access->row]; i < end && !proof->stopped; i++) {
        struct segment *segment = &proof->segments[i];
        if (!happens_before(proof, segment->writer, segment->writer_stream))
            eo_proof_report_race(proof, access, segment->writer, segment->content.row, true);
        if (!stale_seen && !proof->stopped &&
            (segment->content.row != expected.row || segment->content.subject != expected.subject ||
             segment->content.version != expected.version)) {
            stale_seen = true; /* once an access, not once a segment */
            eo_proof_report_stale(proof, access, &expected, segment);
        }
        const bool again = segment->reader[stream] == proof->number && segment->reader_row[stream] != access->row;
        segment->reader[stream] = proof->number;
        segment->reader_row[stream] = again ? SEVERAL_ROWS : access->row;
        if (proof->operation->peers_read && proof->operation->scope != EO_SCOPE_ALONE) {
            segment->shown[stream] = proof->number;
            segment->shown_to[stream] |= proof->operation->scope;
        }
    }
}

void eo_proof_leave(struct proof *proof, const struct eo_access *access)
{
    const struct eo_content content = content_named(proof, access);
    const uint32_t end = proof->row_end[access->row];
    for (uint32_t i = proof->row_begin[access->row]; i < end && !proof->stopped; i++) {
        struct segment *segment = &proof->segments[i];
        /* One operation may touch a row more than once, but not write where it touches another row: nothing orders
         * the parts of an operation. */
        const bool other_row = segment->writer == proof->number && segment->content.row != access->row;
        if (other_row || !happens_before(proof, segment->writer, segment->writer_stream))
            eo_proof_report_race(proof, access, segment->writer, segment->content.row, true);
        for (int s = 0; s < EO_STREAM_COUNT && !proof->stopped; s++) {
            const uint32_t reader = segment->reader[s], row = segment->reader_row[s];
            if ((reader == proof->number && row != access->row) || !happens_before(proof, reader, (eo_stream_id)s))
                eo_proof_report_race(proof, access, reader, row, false);
            segment->reader[s] = 0; /* what follows this write follows its readers too */
            if (!proof->stopped && segment->shown[s] > proof->now.done[segment->shown_to[s]][s])
                eo_proof_report_peer(proof, access, segment->shown[s]);
            segment->shown[s] = segment->shown_to[s] = 0;
        }
        segment->writer = proof->number;
        segment->writer_stream = proof->operation->stream;
        segment->content = content;
    }
}

/* The trainer writes its buffer, unless the list says so of this pass already. */
static void begin_life(struct proof *proof, uint32_t row)
{
    const struct eo_access access = {
        .row = row, .subject = EO_NONE, .mode = EO_WRITE, .version_kind = EO_VERSION_FIXED, .version_scale = 1};
    proof->begun[row] = proof->number;
    for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row]; i++) {
        if (proof->segments[i].writer == proof->number && proof->segments[i].content.row == row)
            continue;
        eo_proof_leave(proof, &access);
        return;
    }
}

/* The last pass finds the buffer as the passes of its life left it; later writers come after it. */
static void end_life(struct proof *proof, uint32_t row)
{
    const struct eo_access access = {.row = row, .mode = EO_READ};
    const eo_stream_id stream = proof->operation->stream;
    for (uint32_t i = proof->row_begin[row]; i < proof->row_end[row] && !proof->stopped; i++) {
        struct segment *segment = &proof->segments[i];
        if (!happens_before(proof, segment->writer, segment->writer_stream))
            eo_proof_report_race(proof, &access, segment->writer, segment->content.row, true);
        const bool again = segment->reader[stream] == proof->number && segment->reader_row[stream] != row;
        segment->reader[stream] = proof->number;
        segment->reader_row[stream] = again ? SEVERAL_ROWS : row;
        if (proof->stopped || segment->content.row == row)
            continue;
        eo_proof_report_life(proof, row, segment);
        return; /* once a life, not once a segment */
    }
}

void eo_proof_follow_lives(struct proof *proof, bool ends)
{
    static const eo_pass passes[EO_OP_KIND_COUNT] = {[EO_OP_FORWARD] = EO_PASS_FORWARD,
                                                     [EO_OP_RECOMPUTE] = EO_PASS_RECOMPUTE,
                                                     [EO_OP_BACKWARD] = EO_PASS_BACKWARD};
    const struct eo_operation *operation = proof->operation;
    const struct eo_proof_lives *lives = &proof->lives;
    const bool is_pass = operation->kind == EO_OP_FORWARD || operation->kind == EO_OP_RECOMPUTE ||
                         operation->kind == EO_OP_BACKWARD;
    if (!is_pass || operation->position == EO_NONE)
        return;
    const bool forward = proof->params->sequence[proof->run] == EO_LIST_FORWARD;
    const struct eo_proof_agenda *agenda = forward ? ends ? &lives->forward_ends : &lives->forward_begins
                                           : ends  ? &lives->step_ends
                                                   : &lives->step_begins;
    const uint32_t key = forward ? operation->position
                                 : eo_proof_moment(lives->position_count, passes[operation->kind], operation->position);
    for (uint32_t i = agenda->begin[key]; i < agenda->begin[key + 1] && !proof->stopped; i++) {
        if (ends)
            end_life(proof, agenda->rows[i]);
        else
            begin_life(proof, agenda->rows[i]);
    }
}
