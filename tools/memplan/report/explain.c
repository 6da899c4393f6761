/* SPDX-License-Identifier: MIT
 *
 * Every row's formula with its numbers put in. Rows of one kind and size are one line. A formula is worked out here and
 * held against the row: what does not agree is shown as the planner's figure alone.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/memplan/plan/block_rows.h"
#include "tools/memplan/plan/layers.h"
#include "tools/memplan/report/report.h"

struct numbers {
    uint64_t b, s, tokens, e, r, h, q, kv, a, k, d, f, fe, used, experts, v, pieces, chunk, chunk_128, slots, w, g, narrow;
    bool has_narrow_state;
};

struct formula {
    const char *suffix, *text;
    uint64_t (*value)(const struct numbers *n);
};

#define VALUE(name, expression)                                                                                       \
    static uint64_t name(const struct numbers *n)                                                                     \
    {                                                                                                                 \
        return expression;                                                                                            \
    }
VALUE(stream_bytes, n->tokens * n->h * n->e)
VALUE(stats_bytes, n->tokens * 4)
VALUE(stats_centered_bytes, n->tokens * 2 * 4)
VALUE(qkv_bytes, n->tokens * (n->q + 2 * n->kv) * n->e)
VALUE(qk_bytes, n->tokens * (n->q + n->kv) * n->e)
VALUE(heads_bytes, n->tokens * n->q * n->e)
VALUE(lse_bytes, n->tokens * n->a * 4)
VALUE(hidden_bytes, n->tokens * 2 * n->f * n->e)
VALUE(activation_bytes, n->tokens * n->f * n->e)
VALUE(hidden_experts_bytes, n->tokens * n->used * 2 * n->fe * n->e)
VALUE(activation_experts_bytes, n->tokens * n->used * n->fe * n->e)
VALUE(router_bytes, n->tokens * n->experts * 4)
VALUE(choice_bytes, n->tokens * n->used * 8)
VALUE(expert_rows_bytes, n->tokens * n->used * n->h * n->e)
VALUE(head_norm_bytes, n->chunk * n->h * n->e)
VALUE(head_stats_bytes, n->chunk * 2 * 4)
VALUE(logits_bytes, n->chunk * ((n->v + 15) / 16 * 16) * n->e)
VALUE(losses_bytes, n->chunk * 4)
/* Of a GPU's kernels, where a chunk has 128 tokens or more. */
VALUE(head_norm_128_bytes, n->chunk_128 * n->h * n->e)
VALUE(head_stats_128_bytes, n->chunk_128 * 2 * 4)
VALUE(logits_64_bytes, n->chunk * ((n->v + 63) / 64 * 64) * n->e)
VALUE(logits_128_bytes, n->chunk_128 * ((n->v + 63) / 64 * 64) * n->e)
VALUE(losses_128_bytes, n->chunk_128 * 4)
VALUE(token_bytes, n->slots * n->tokens * 4)
VALUE(rope_bytes, n->s * n->d * 4)
VALUE(gathered_norm_bytes, n->w * 5 * 8)
VALUE(local_norm_bytes, 5 * 8 + 0 * n->w)

/* Symbols are put in by put_numbers; what stands side by side is multiplied. */
static const struct formula formulas[] = {
    {"head.input", "b s h e", stream_bytes},
    {"head.norm", "ceil(b s / pieces) h e", head_norm_bytes},
    {"head.norm_stats", "ceil(b s / pieces) 2 4", head_stats_bytes},
    {"head.logits", "ceil(b s / pieces) roundup16(V) e", logits_bytes},
    {"head.losses", "ceil(b s / pieces) 4", losses_bytes},
    {"head.norm", "roundup128(b s / pieces) h e", head_norm_128_bytes},
    {"head.norm_stats", "roundup128(b s / pieces) 2 4", head_stats_128_bytes},
    {"head.logits", "ceil(b s / pieces) roundup64(V) e", logits_64_bytes},
    {"head.logits", "roundup128(b s / pieces) roundup64(V) e", logits_128_bytes},
    {"head.losses", "roundup128(b s / pieces) 4", losses_128_bytes},
    {"stream.gradient", "b s h e", stream_bytes},
    {"tokens", "slots b s 4", token_bytes},
    {"targets", "slots b s 4", token_bytes},
    {"rope_table", "s d 4", rope_bytes},
    {"norm.gathered", "W 5 8", gathered_norm_bytes},
    {"norm.local", "5 8", local_norm_bytes},
    {".input", "b s h e", stream_bytes},
    {".norm", "b s h e", stream_bytes},
    {".norm_stats", "b s 4", stats_bytes},
    {".norm_stats", "b s 2 4", stats_centered_bytes},
    {".qkv", "b s (a d + 2 k d) e", qkv_bytes},
    {".qk_before_norm", "b s (a d + k d) e", qk_bytes},
    {".qkv_before_norm", "b s (a d + 2 k d) e", qkv_bytes},
    {".heads", "b s a d e", heads_bytes},
    {".log_sum_exp", "b s a 4", lse_bytes},
    {".hidden", "b s f e", activation_bytes},
    {".hidden", "b s 2 f e", hidden_bytes},
    {".hidden", "b s K 2 F e", hidden_experts_bytes},
    {".activation", "b s f e", activation_bytes},
    {".activation", "b s K F e", activation_experts_bytes},
    {".router_logits", "b s E 4", router_bytes},
    {".router_choice", "b s K 8", choice_bytes},
    {".expert_inputs", "b s K h e", expert_rows_bytes},
    {".expert_outputs", "b s K h e", expert_rows_bytes},
};

static bool symbol_value(const struct numbers *n, const char *word, size_t length, uint64_t *value)
{
    const struct {
        const char *name;
        uint64_t value;
    } symbols[] = {{"b", n->b}, {"s", n->s}, {"e", n->e}, {"h", n->h}, {"a", n->a}, {"k", n->k}, {"d", n->d}, {"f", n->f},
                   {"F", n->fe}, {"K", n->used}, {"E", n->experts}, {"V", n->v}, {"W", n->w}, {"pieces", n->pieces},
                   {"slots", n->slots}};
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        if (strlen(symbols[i].name) == length && strncmp(symbols[i].name, word, length) == 0) {
            *value = symbols[i].value;
            return true;
        }
    return false;
}

/* "b s (a + k) 4" to "1 x 4096 x (32 + 8) x 4". */
static void put_numbers(const struct numbers *n, const char *formula, char *text, size_t bytes)
{
    size_t used = 0;
    bool operand = false; /* stands before */
    for (const char *c = formula; *c && used + 32 < bytes;) {
        if (*c == ' ') {
            c++;
            continue;
        }
        size_t length = strspn(c, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
        const bool opens = *c == '(' || (length && c[length] == '('); /* a bracket, or a function's name */
        if (operand && (opens || length))
            used += (size_t)snprintf(text + used, bytes - used, " x ");
        if (length) {
            uint64_t value;
            if (!opens && symbol_value(n, c, length, &value))
                used += (size_t)snprintf(text + used, bytes - used, "%" PRIu64, value);
            else
                used += (size_t)snprintf(text + used, bytes - used, "%.*s", (int)length, c);
            operand = !opens;
        } else {
            length = 1;
            used += (size_t)snprintf(text + used, bytes - used, *c == '(' || *c == ')' ? "%c" : " %c ", *c);
            operand = *c == ')';
        }
        c += length;
    }
    text[used] = '\0';
}

/* "block.*.attention.q_low" of a described model: the first block with a row of this name and size. */
static bool row_formula(const struct numbers *n, const struct tool_model_config *c, const char *name, uint64_t bytes, char *text,
                        size_t text_bytes)
{
    const char *half = strncmp(name, "block.*.", 8) == 0 ? name + 8 : NULL;
    const bool in_mlp = half && strncmp(half, "mlp.", 4) == 0;
    if (!half || (!in_mlp && strncmp(half, "attention.", 10) != 0))
        return false;
    for (uint32_t i = 0; i < c->layer_count; i++) {
        struct tool_block_row rows[TOOL_BLOCK_ROWS_MAX];
        for (uint32_t k = tool_block_rows(c, i, false, rows); k > 0; k--) {
            const struct tool_block_row *r = &rows[k - 1];
            const uint64_t each = r->bytes ? r->bytes : n->e;
            if (r->in_mlp != in_mlp || strcmp(r->name, half + (in_mlp ? 4 : 10)) != 0 || n->tokens * r->width * each != bytes)
                continue;
            snprintf(text, text_bytes, "b s N %s = %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64 ", N = %s",
                     r->bytes ? "4" : "e", n->b, n->s, r->width, each, r->words);
            return true;
        }
    }
    return false;
}

static void formula_of(const struct numbers *n, const struct tool_model_config *config, const char *name, eo_category category, uint64_t bytes, char *text,
                       size_t text_bytes)
{
    char plain[EO_NAME_MAX * 2], numbers[160];
    snprintf(plain, sizeof(plain), "%s", name);
    char *again = strstr(plain, ".again");
    if (again)
        *again = '\0';
    for (size_t i = 0; i < sizeof(formulas) / sizeof(formulas[0]); i++) {
        const size_t a = strlen(plain), b = strlen(formulas[i].suffix);
        if (a < b || strcmp(plain + a - b, formulas[i].suffix) != 0 || formulas[i].value(n) != bytes)
            continue;
        put_numbers(n, formulas[i].text, numbers, sizeof(numbers));
        snprintf(text, text_bytes, "%s = %s", formulas[i].text, numbers);
        return;
    }
    if (row_formula(n, config, plain, bytes, text, text_bytes))
        return;
    const char *adapters = strstr(plain, ".adapters");
    if (adapters && strcmp(adapters, ".adapters") == 0 && bytes % (n->tokens * n->e) == 0) {
        snprintf(text, text_bytes, "b s R e, R = %" PRIu64 ", the ranks of its adapters", bytes / n->tokens / n->e);
        return;
    }
    const char *ranks = n->g == n->w ? "W" : "G"; /* of a group */
    if (strncmp(plain, "weights.float8.", 15) == 0) {
        snprintf(text, text_bytes, "N: a byte for each element of a matrix, 2 for others, scales; of the rank with most");
        return;
    }
    if (strncmp(plain, "weights.mxfp8.", 14) == 0) {
        snprintf(text, text_bytes, "N: 33 bytes for 32 elements of a matrix, e for others; of the rank with most");
        return;
    }
    if (n->narrow && bytes == n->g * n->narrow && category == EO_CATEGORY_GATHER_BUFFER) {
        snprintf(text, text_bytes, "%s N = %" PRIu64 " x %" PRIu64 ", of the largest layer in it", ranks, n->g, n->narrow);
        return;
    }
    if (strncmp(plain, "state", 5) == 0 && bytes % 260 == 0 && n->has_narrow_state) {
        snprintf(text, text_bytes, "S + S / 64 = %" PRIu64 " + %" PRIu64, bytes / 260 * 256, bytes / 260 * 4);
        return;
    }
    if (strncmp(plain, "offload.slot", 12) == 0 || strncmp(plain, "gradient.offload", 16) == 0) {
        snprintf(text, text_bytes, "what the largest layer in it has on disk, and 4096");
        return;
    }
    if (strncmp(plain, "disk.", 5) == 0 && category <= EO_CATEGORY_OPTIMIZER) {
        snprintf(text, text_bytes, "%s in multiples of 4096",
                 category == EO_CATEGORY_GRADIENT ? "4 S"
                 : n->e == 2                      ? "low halves 2 S and the optimizer's arrays, each"
                                                  : "the optimizer's arrays, each");
        return;
    }
    const bool is_sum = strncmp(plain, "sum.", 4) == 0; /* zero1's: whole */
    const uint64_t element_bytes = category == EO_CATEGORY_GATHER_BUFFER || category == EO_CATEGORY_COMPUTE_SHARD ? n->e
                                   : category == EO_CATEGORY_GRADIENT_BUFFER                                      ? n->r
                                   : category == EO_CATEGORY_MASTER                                               ? n->e
                                                                                                                  : 4;
    text[0] = '\0';
    if (is_sum)
        snprintf(text, text_bytes, "%s S 4 = %" PRIu64 " x %" PRIu64 " x 4", ranks, n->g, bytes / 4 / n->g);
    else if (category == EO_CATEGORY_GATHER_BUFFER || category == EO_CATEGORY_GRADIENT_BUFFER)
        snprintf(text, text_bytes, "%s S %s = %" PRIu64 " x %" PRIu64 " x %" PRIu64 "%s", ranks,
                 category == EO_CATEGORY_GATHER_BUFFER ? "e" : "r", n->g, bytes / element_bytes / n->g, element_bytes,
                 strstr(plain, ".slot") ? ", of the largest layer in it" : "");
    else if (category <= EO_CATEGORY_OPTIMIZER)
        snprintf(text, text_bytes, "%" PRIu64 " S = %" PRIu64 " x %" PRIu64, element_bytes, element_bytes,
                 bytes / element_bytes);
    else if (strstr(plain, "scratch"))
        snprintf(text, text_bytes, "inner gradients, and its kernels' needs");
    else
        snprintf(text, text_bytes, "%s", strncmp(plain, "norm.", 5) == 0 && bytes == 8 ? "8, a sum of squares"
                                                                                       : "of the runtime itself");
}

/* "block.7.mlp.norm" to "block.*.mlp.norm". */
static void pattern_of(const char *name, char *pattern, size_t bytes)
{
    size_t used = 0;
    for (const char *c = name; *c && used + 2 < bytes;) {
        if (c > name && c[-1] == '.' && *c >= '0' && *c <= '9') {
            pattern[used++] = '*';
            while (*c >= '0' && *c <= '9')
                c++;
        } else {
            pattern[used++] = *c++;
        }
    }
    pattern[used] = '\0';
}

struct group {
    char pattern[EO_NAME_MAX * 2];
    eo_category category;
    uint64_t bytes, count;
};

static void print_numbers(FILE *out, const struct tool_memplan_view *view, const struct numbers *n)
{
    const struct tool_model_config *c = view->config;
    const struct tool_plan_settings *s = &view->memplan->settings.plan;
    fprintf(out,
            "\n  explained: b s = %u x %u = %" PRIu64 ", e = %" PRIu64 " bytes (%s), h = %u, a = %u, k = %u, d = %u, "
            "f = %u, V = %u, W = %u, pieces = %u\n",
            s->batch, s->seq, n->tokens, n->e, eo_dtype_name(s->dtype), c->width, c->head_count, c->kv_head_count,
            c->head_size, c->mlp_width, c->vocabulary, s->ranks, s->head_chunks);
    if (c->expert_count)
        fprintf(out, "    experts E = %u, per token K = %u, width of an expert F = %u\n", c->expert_count, c->experts_per_token,
                c->expert_width);
}

static void print_shards(FILE *out, const struct tool_memplan_view *view)
{
    const eo_plan_params *p = &view->memplan->summary.params;
    uint32_t count;
    struct tool_layer_line *lines = tool_layer_lines(view->memplan, &count);
    const bool narrow = p->optimizer == EO_OPTIMIZER_ADAMW8BIT; /* blocks of state begin with parameters and shards */
    const uint64_t align = narrow && p->align_bytes < 512 ? 256 : p->align_bytes / 2; /* of the smallest type: all are cut alike */
    if (p->shard_group != p->rank_count)
        fprintf(out, "    a copy lies in groups of G = %u of the W ranks: in the formulas of weights and their state below, W "
                "is G\n",
                p->shard_group);
    fprintf(out,
            "    a shard is S = roundup(n, W A) / W elements, A = %" PRIu64 " (%u bytes in bf16); parameters of a layer lie "
            "on %d elements%s, so n is at least their sum%s; a GPU's kernels want the head's words in multiples of 64\n",
            align, (uint32_t)align * 2, narrow ? 256 : 16, p->float8_frozen ? ", those in mxfp8 on 32" : "",
            view->memplan->settings.plan.fp32_norms ? ", with norms in fp32 twice" : "");
    uint64_t sum = 0, frozen = 0;
    for (uint32_t i = 0, j; lines && i < count; i = j) {
        const struct tool_layer_line *line = &lines[i];
        for (j = i + 1; j < count && line->elements == lines[j].elements && line->more_elements == lines[j].more_elements &&
                        line->is_part == lines[j].is_part;
             j++) {
        }
        const uint64_t shard = line->padded_elements / line->ranks;
        *(line->is_frozen ? &frozen : &sum) += (j - i) * shard;
        fprintf(out, "      %-20s %u x S = roundup(%" PRIu64 ", %" PRIu64 ") / %u = %" PRIu64 "\n", line->name, j - i,
                line->elements + line->more_elements, align * line->ranks, line->ranks, shard);
    }
    free(lines);
    const eo_plan_summary *s = &view->memplan->summary;
    char state[48];
    if (narrow)
        snprintf(state, sizeof(state), "%u x (S + S / 64)%s", p->optimizer_states, p->ema ? " + 4 S" : "");
    else if (p->optimizer == EO_OPTIMIZER_MUON)
        snprintf(state, sizeof(state), "4 S, without matrices 8 S%s", p->ema ? ", + 4 S" : "");
    else
        snprintf(state, sizeof(state), "%u x 4 S", p->optimizer_states + p->ema);
    if (frozen)
        fprintf(out, "      sum of S of frozen weights = %" PRIu64 ": %u S each%s, no gradients and no optimizer state\n", frozen,
                (uint32_t)eo_dtype_bytes(p->dtype), p->float8_frozen ? ", those in mxfp8 33/32 S" : "");
    fprintf(out,
            "      sum of S%s = %" PRIu64 ": master%s %" PRIu64 ", gradients 4 S%s %" PRIu64 ", optimizer%s %s %" PRIu64 "%s\n",
            frozen ? " of trained weights" : "", sum,
            p->dtype == EO_DTYPE_BF16 ? " 2 S (low halves; compute uses the high ones)" : " 4 S",
            p->dtype == EO_DTYPE_BF16 ? s->category_bytes[EO_CATEGORY_MASTER] : 4 * sum,
            s->category_bytes[EO_CATEGORY_GRADIENT] > 4 * sum && !p->offload_gradients ? " and their whole sums" : "",
            s->category_bytes[EO_CATEGORY_GRADIENT], p->ema ? " and average" : "", state,
            s->category_bytes[EO_CATEGORY_OPTIMIZER], p->offload_layers ? " (of offloaded layers their slots)" : "");
}

struct placed {
    uint64_t address;
    uint32_t row;
};

static int compare_addresses(const void *a_placed, const void *b_placed)
{
    const struct placed *a = a_placed, *b = b_placed;
    return a->address != b->address ? (a->address > b->address) - (a->address < b->address) : (a->row > b->row) - (a->row < b->row);
}

static bool is_live(const struct tool_live_span *span, uint32_t point)
{
    return span->first <= span->last ? point >= span->first && point <= span->last
                                     : point >= span->first || point <= span->last;
}

/* Rows that are live at the peak, by address; their number. */
static uint32_t rows_at_peak(const struct tool_memplan_view *view, struct placed *rows)
{
    const struct tool_lifetimes *t = view->lifetimes;
    eo_plan_row row;
    uint32_t count = 0;
    for (uint32_t r = 0; r < view->shown->summary.row_count; r++)
        if (eo_plan_get_row(view->shown->plan, r, &row) >= 0 && row.always_live)
            rows[count++] = (struct placed){t->address[r], r};
    for (uint32_t i = 0; i < t->span_count; i++)
        if (is_live(&t->spans[i], t->peak_point))
            rows[count++] = (struct placed){t->address[t->spans[i].row], t->spans[i].row};
    qsort(rows, count, sizeof(*rows), compare_addresses);
    return count;
}

/* Where the arena is larger than what is live: the largest hole at the peak, and who stands beside it. */
void tool_report_hole(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_lifetimes *t = view->lifetimes;
    const eo_plan_summary *s = &view->shown->summary;
    if (!t || s->arena_bytes == s->lower_bound_bytes)
        return;
    struct placed *rows = malloc(((uint64_t)s->row_count + t->span_count + 1) * sizeof(*rows));
    if (!rows)
        return;
    const uint32_t count = rows_at_peak(view, rows);
    uint64_t end = 0, best = 0;
    char before[EO_NAME_MAX] = "the beginning", left[EO_NAME_MAX] = "", right[EO_NAME_MAX] = "";
    for (uint32_t i = 0; i <= count; i++) {
        eo_plan_row row = {0};
        if (i < count && eo_plan_get_row(view->shown->plan, rows[i].row, &row) < 0)
            continue;
        const uint64_t address = i < count ? rows[i].address : s->arena_bytes;
        if (address > end && address - end > best) {
            best = address - end;
            snprintf(left, sizeof(left), "%s", before);
            snprintf(right, sizeof(right), "%s", i < count ? row.name : "the end");
        }
        end = address + row.bytes > end ? address + row.bytes : end;
        snprintf(before, sizeof(before), "%s", row.name);
    }
    free(rows);
    if (best)
        fprintf(out, "    at the peak the largest hole, %" PRIu64 " bytes, lies between %s and %s\n", best,
                left, right);
}

static bool is_narrow(const char *name)
{
    return strncmp(name, "weights.float8.", 15) == 0 || strncmp(name, "weights.mxfp8.", 14) == 0;
}

void tool_report_explain(FILE *out, const struct tool_memplan_view *view)
{
    const struct tool_memplan *m = view->memplan;
    const struct tool_model_config *c = view->config;
    const struct tool_plan_settings *s = &m->settings.plan;
    struct numbers n = {
        .b = s->batch, .s = s->seq, .tokens = (uint64_t)s->batch * s->seq, .e = eo_dtype_bytes(s->dtype),
        .r = eo_dtype_bytes(s->reduce_dtype), .h = c->width, .q = (uint64_t)c->head_count * c->head_size,
        .kv = (uint64_t)c->kv_head_count * c->head_size, .a = c->head_count, .k = c->kv_head_count, .d = c->head_size,
        .f = c->mlp_width, .fe = c->expert_width, .used = c->experts_per_token, .experts = c->expert_count,
        .v = c->vocabulary, .pieces = s->head_chunks, .slots = s->graph ? s->micro_batches : 1, .w = s->ranks,
        .g = view->memplan->summary.params.shard_group,
        .has_narrow_state = s->optimizer == EO_OPTIMIZER_ADAMW8BIT};
    for (uint32_t r = 0; r < m->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) >= 0 && is_narrow(row.name) && row.bytes > n.narrow)
            n.narrow = row.bytes;
    }
    n.chunk = (n.tokens + s->head_chunks - 1) / s->head_chunks;
    n.chunk_128 = (n.chunk + 127) / 128 * 128;
    print_numbers(out, view, &n);
    print_shards(out, view);
    struct group *groups = calloc(m->summary.row_count + 1, sizeof(*groups));
    uint32_t count = 0;
    for (uint32_t r = 0; groups && r < m->summary.row_count; r++) {
        eo_plan_row row;
        if (eo_plan_get_row(m->plan, r, &row) < 0)
            continue;
        struct group group = {.category = row.category, .bytes = row.bytes, .count = 1};
        pattern_of(row.name, group.pattern, sizeof(group.pattern));
        uint32_t g = 0;
        while (g < count && (groups[g].bytes != group.bytes || groups[g].category != group.category ||
                             strcmp(groups[g].pattern, group.pattern) != 0))
            g++;
        if (g < count)
            groups[g].count++;
        else
            groups[count++] = group;
    }
    for (uint32_t g = 0; g < count; g++) {
        char text[320];
        formula_of(&n, c, groups[g].pattern, groups[g].category, groups[g].bytes, text, sizeof(text));
        fprintf(out, "    %-40s %6" PRIu64 " x %14" PRIu64 "  %-22s %s\n", groups[g].pattern, groups[g].count, groups[g].bytes,
                eo_category_name(groups[g].category), text);
    }
    free(groups);
    tool_report_hole(out, view);
}
