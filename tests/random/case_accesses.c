/* SPDX-License-Identifier: MIT */
#include "tests/random/case_accesses.h"

#include <string.h>

#include "base/check.h"

enum { ROWS_MAX = 4096 };

struct looking {
    const struct random_case *c;
    const eo_plan *plan;
    struct case_outcome *out;
    eo_plan_params params;
    eo_plan_row rows[ROWS_MAX];
    uint64_t unread[ROWS_MAX]; /* gradient buffers: passes whose gradients no operation has taken on */
    eo_list list;
    uint32_t next_pass;
    /* The operation at hand, and by row what it does. */
    eo_plan_operation o;
    bool reads[ROWS_MAX], writes[ROWS_MAX];
    uint32_t row_count, read_count, write_count;
};

static void must(struct looking *l, bool is_so, const char *what)
{
    if (!is_so && l->out->text[0] == '\0')
        snprintf(l->out->text, sizeof(l->out->text), "accesses: list %d, %s: %s", (int)l->list, l->o.name, what);
}

static bool trains(const struct random_case *c, uint32_t layer)
{
    return !c->layers[layer].frozen && c->layers[layer].frozen_parts != (1u << c->layers[layer].parameter_count) - 1;
}

/* How many rows of a category, whose names begin so, the operation reads (or writes). */
static uint32_t count_rows(const struct looking *l, const bool *touches, eo_category category, const char *begin)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < l->row_count; r++)
        count += touches[r] && (category == EO_CATEGORY_COUNT || l->rows[r].category == category) &&
                 strncmp(l->rows[r].name, begin, strlen(begin)) == 0;
    return count;
}

static uint32_t count_gradients(const struct looking *l, const bool *touches)
{
    return count_rows(l, touches, EO_CATEGORY_GRADIENT, "") + count_rows(l, touches, EO_CATEGORY_GRADIENT_BUFFER, "");
}

/* The n-th pass of a list, as model.h has them; false: there is none. */
static bool find_pass(const struct looking *l, uint32_t n, eo_operation_kind *kind, uint32_t *position, uint32_t *batch)
{
    const struct random_case *c = l->c;
    const bool forward = l->list == EO_LIST_FORWARD;
    const uint32_t batches = forward || l->list == EO_LIST_INPUTS ? 1 : l->params.micro_batches;
    for (*batch = 0; *batch < batches; ++*batch) {
        *kind = EO_OP_FORWARD;
        for (*position = 0; *position < c->position_count; ++*position)
            if ((forward || !c->positions[*position].forward_in_backward) && n-- == 0)
                return true;
        for (*position = c->position_count; !forward && (*position)-- > 0;) {
            *kind = EO_OP_RECOMPUTE;
            if (n-- == 0)
                return true;
            *kind = EO_OP_BACKWARD;
            if (n-- == 0)
                return true;
        }
    }
    return false;
}

/* A buffer of its own row: the first pass of its life writes it, the last one reads it. */
static void look_at_buffers(struct looking *l)
{
    const eo_pass pass = l->o.kind == EO_OP_BACKWARD    ? EO_PASS_BACKWARD
                         : l->o.kind == EO_OP_RECOMPUTE ? EO_PASS_RECOMPUTE
                                                        : EO_PASS_FORWARD;
    for (uint32_t b = 0; b < l->c->buffer_count && l->list != EO_LIST_FORWARD; b++) {
        const struct case_buffer *buffer = &l->c->buffers[b];
        const bool first = buffer->first.pass == pass && buffer->first.position == l->o.position;
        const bool last = buffer->last.pass == pass && buffer->last.position == l->o.position;
        char name[EO_NAME_MAX];
        snprintf(name, sizeof(name), "buffer%u", b);
        for (uint32_t r = 0; r < l->row_count && !buffer->persistent; r++)
            if (strcmp(l->rows[r].name, name) == 0)
                must(l, (!first || l->writes[r]) && (first || !last || l->reads[r]), "not of a buffer that begins or ends");
    }
}

static void look_at_pass(struct looking *l)
{
    eo_operation_kind kind;
    uint32_t position, batch;
    const bool found = find_pass(l, l->next_pass++, &kind, &position, &batch);
    must(l, found && kind == l->o.kind && position == l->o.position && batch == l->o.micro_batch, "out of the passes' order");
    must(l, l->o.stream == EO_STREAM_COMPUTE, "not on the compute stream");
    const struct case_position *p = &l->c->positions[l->o.position];
    const struct case_layer *layer = &l->c->layers[p->layer];
    const uint32_t weights = count_rows(l, l->reads, EO_CATEGORY_GATHER_BUFFER, "") +
                             count_rows(l, l->reads, EO_CATEGORY_COMPUTE_SHARD, "") +
                             count_rows(l, l->reads, EO_CATEGORY_MASTER, "");
    if (l->o.kind == EO_OP_FORWARD || !p->backward_without_weights)
        must(l, weights == 1u + (trains(l->c, p->layer) && layer->frozen_parts), "not of all weights");
    const bool gives = l->o.kind == EO_OP_BACKWARD && l->list != EO_LIST_INPUTS && trains(l->c, p->layer);
    must(l, count_gradients(l, l->writes) == gives, "not of its gradients");
    must(l, count_gradients(l, l->reads) == (gives && p->adds && !l->params.gradients_apart),
         "not of gradients that it adds to");
    for (uint32_t r = 0; r < l->row_count && gives; r++) {
        if (!l->writes[r] || l->rows[r].category != EO_CATEGORY_GRADIENT_BUFFER)
            continue;
        must(l, l->reads[r] || l->unread[r] == 0, "over gradients that nothing has taken on");
        l->unread[r]++;
    }
    look_at_buffers(l);
}

/* What the kind of a runtime's own operation must touch. */
static void look_at_own(struct looking *l)
{
    const bool pairs = l->read_count > 0 && l->read_count == l->write_count;
    uint32_t trained = 0;
    for (uint32_t k = 0; k < l->c->layer_count; k++)
        trained += trains(l->c, k);
    for (uint32_t r = 0; r < l->row_count; r++)
        l->unread[r] = l->reads[r] ? 0 : l->unread[r];
    switch ((int)l->o.kind) {
    case EO_OP_ALL_GATHER:
    case EO_OP_NARROW:
    case EO_OP_WIDEN:
    case EO_OP_NORM_GATHER:
    case EO_OP_MATRIX_GATHER:
    case EO_OP_EVICT:
        must(l, pairs, "rows read and written are not pairs");
        break;
    case EO_OP_FETCH:
        must(l, pairs || (l->read_count == 2 && count_gradients(l, l->reads) == 1), "not of what it fetches");
        break;
    case EO_OP_REDUCE_SCATTER:
    case EO_OP_ALL_REDUCE:
        must(l, pairs && count_gradients(l, l->writes) == l->write_count, "not of its gradients");
        break;
    case EO_OP_ACCUMULATE:
        must(l,
             count_rows(l, l->reads, EO_CATEGORY_GRADIENT_BUFFER, "") == 1 &&
                 count_rows(l, l->writes, EO_CATEGORY_GRADIENT, "") == 1,
             "not of its gradients");
        break;
    case EO_OP_NORM_PARTIAL:
        must(l, count_gradients(l, l->reads) == 1 && count_rows(l, l->writes, EO_CATEGORY_OTHER, "norm.") == 1,
             "not of its norm");
        break;
    case EO_OP_NORM_LOCAL:
        must(l, count_rows(l, l->reads, EO_CATEGORY_OTHER, "norm.layer") == trained, "not of all layers");
        must(l,
             count_rows(l, l->reads, EO_CATEGORY_OTHER, "step.values") == 1 &&
                 count_rows(l, l->writes, EO_CATEGORY_OTHER, "norm.local") == 1,
             "not of the step's sums");
        break;
    case EO_OP_NORM_SUM:
        must(l,
             count_rows(l, l->reads, EO_CATEGORY_OTHER, "norm.gathered") == 1 &&
                 count_rows(l, l->writes, EO_CATEGORY_OTHER, "norm.result") == 1,
             "not of the norm");
        break;
    case EO_OP_DIRECTION:
    case EO_OP_UPDATE:
        must(l,
             count_rows(l, l->reads, EO_CATEGORY_OTHER, "norm.result") == 1 &&
                 count_rows(l, l->reads, EO_CATEGORY_OTHER, "step.scalars") == 1,
             "not of the norm and the step's numbers");
        must(l, count_gradients(l, l->reads) == 1 || count_rows(l, l->reads, EO_CATEGORY_OPTIMIZER, "offload.slot") == 1,
             "not of its gradient");
        must(l, count_rows(l, l->writes, EO_CATEGORY_COUNT, l->o.kind == EO_OP_UPDATE ? "weights." : "muon.") > 0,
             "not of what it makes");
        break;
    default:
        must(l, l->read_count > 0 && l->write_count > 0, "of nothing");
    }
}

static void look_at_operation(struct looking *l, uint32_t index)
{
    eo_plan_access access;
    memset(l->reads, 0, l->row_count);
    memset(l->writes, 0, l->row_count);
    l->read_count = l->write_count = 0;
    if (eo_plan_get_operation(l->plan, l->list, index, &l->o) < 0)
        eo_fatal("operation %u is not there", index);
    for (uint32_t a = 0; eo_plan_get_access(l->plan, l->list, index, a, &access) >= 0; a++) {
        l->reads[access.row] |= access.reads;
        l->writes[access.row] |= access.writes;
        l->read_count += access.reads;
        l->write_count += access.writes;
    }
    if (l->o.kind == EO_OP_FORWARD || l->o.kind == EO_OP_RECOMPUTE || l->o.kind == EO_OP_BACKWARD)
        look_at_pass(l);
    else
        look_at_own(l);
}

void case_accesses(const struct random_case *c, const eo_plan *plan, struct case_outcome *out)
{
    static struct looking l;
    eo_plan_summary summary;
    eo_plan_get_summary(plan, &summary);
    l = (struct looking){.c = c, .plan = plan, .out = out, .params = summary.params, .row_count = summary.row_count};
    EO_ASSERT(l.row_count <= ROWS_MAX);
    for (uint32_t r = 0; r < l.row_count; r++)
        if (eo_plan_get_row(plan, r, &l.rows[r]) < 0)
            eo_fatal("row %u is not there", r);
    for (int list = 0; list < EO_LIST_COUNT && out->text[0] == '\0'; list++) {
        eo_operation_kind kind;
        uint32_t position, batch;
        const uint32_t count = eo_plan_operation_count(plan, (eo_list)list);
        l.list = (eo_list)list;
        l.next_pass = 0;
        for (uint32_t i = 0; i < count && out->text[0] == '\0'; i++)
            look_at_operation(&l, i);
        must(&l, count == 0 || list == EO_LIST_UPDATES || !find_pass(&l, l.next_pass, &kind, &position, &batch),
             "the last one, but passes are missing");
    }
}
