/* SPDX-License-Identifier: MIT
 *
 * The head of a checkpoint's file: made from a plan or from another head.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hashing.h"
#include "runtime/checkpoint/format.h"
#include "runtime/plan/optimizers.h"

/* -- what a rank saves ---------------------------------------------------------------------------------------------*/

struct checkpoint_range eo_checkpoint_state_range(const struct eo_plan *plan, uint32_t layer, uint32_t rank)
{
    eo_shard_range own;
    const eo_status status = eo_plan_shard_range(plan, layer, rank, &own);
    EO_ASSERT(status == EO_OK);
    return (struct checkpoint_range){own.offset, own.count};
}

struct checkpoint_range eo_checkpoint_own_range(const struct eo_plan *plan, uint32_t layer, uint32_t rank)
{
    eo_shard_range own;
    const eo_status status = eo_plan_shard_range(plan, layer, rank, &own);
    EO_ASSERT(status == EO_OK);
    return (struct checkpoint_range){own.offset, own.replica == 0 ? own.count : 0};
}

/* -- sizes and places ----------------------------------------------------------------------------------------------*/

/* Weights and their average are fp32, whatever the optimizer. */
static eo_optimizer form_of(const struct checkpoint_head *head, uint32_t array)
{
    const bool is_state = array > 0 && !(head->has_ema && array == head->optimizer_states);
    return is_state ? (eo_optimizer)head->optimizer : EO_OPTIMIZER_ADAMW;
}

uint64_t eo_checkpoint_words(const struct checkpoint_head *head, uint32_t array, uint64_t count)
{
    return eo_plan_state_words(form_of(head, array), count);
}

uint32_t eo_checkpoint_block(const struct checkpoint_head *head, uint32_t array)
{
    return eo_plan_optimizer(form_of(head, array))->block_elements;
}

bool eo_checkpoint_head_bytes(const struct checkpoint_head *head, uint64_t *out)
{
    /* Counts of 32 bits and records of at most 240 bytes: the sum cannot wrap. */
    const uint64_t bytes = sizeof(*head) + head->layer_count * (uint64_t)sizeof(struct checkpoint_layer) +
                           head->parameter_count * (uint64_t)sizeof(struct checkpoint_parameter) +
                           head->section_count * (uint64_t)sizeof(struct checkpoint_section) +
                           (head->chunk_count + (uint64_t)head->group_count) * sizeof(uint64_t);
    *out = eo_align_up(bytes, CHECKPOINT_ALIGN);
    return *out <= CHECKPOINT_HEAD_MAX;
}

void eo_checkpoint_set_tables(struct checkpoint_tables *tables, struct checkpoint_head *head)
{
    tables->head = head;
    tables->layers = (struct checkpoint_layer *)(head + 1);
    tables->parameters = (struct checkpoint_parameter *)(tables->layers + head->layer_count);
    tables->sections = (struct checkpoint_section *)(tables->parameters + head->parameter_count);
    tables->chunk_hashes = (uint64_t *)(tables->sections + head->section_count);
    tables->frozen = (uint64_t *)((char *)head + head->head_bytes) - head->group_count;
}

void eo_checkpoint_free_tables(struct checkpoint_tables *tables)
{
    free(tables->head);
    *tables = (struct checkpoint_tables){0};
}

/* Room for a head with these counts, zeros but for what `like` has of them. */
static eo_status new_tables(struct checkpoint_tables *out, const struct checkpoint_head *like)
{
    uint64_t bytes;
    *out = (struct checkpoint_tables){0};
    if (!eo_checkpoint_head_bytes(like, &bytes))
        return EO_ERR_UNSUPPORTED;
    struct checkpoint_head *head = aligned_alloc(CHECKPOINT_ALIGN, bytes);
    if (!head)
        return EO_ERR_NO_MEMORY;
    memset(head, 0, bytes);
    *head = *like;
    head->head_bytes = (uint32_t)bytes;
    eo_checkpoint_set_tables(out, head);
    return EO_OK;
}

/* -- the model -----------------------------------------------------------------------------------------------------*/

static uint64_t hash_model(const struct checkpoint_tables *tables)
{
    const uint64_t hashes[] = {
        eo_hash64(tables->layers, tables->head->layer_count * sizeof(*tables->layers)),
        eo_hash64(tables->parameters, tables->head->parameter_count * sizeof(*tables->parameters)),
    };
    return eo_hash64(hashes, sizeof(hashes));
}

static void describe_layer(const struct eo_plan *plan, uint32_t l, struct checkpoint_tables *out)
{
    const struct plan_layer *from = &plan->layers[l];
    struct checkpoint_layer *to = &out->layers[l];
    memcpy(to->name, from->name, sizeof(to->name));
    to->frozen = from->frozen;
    to->parameter_count = from->parameter_count;
    for (uint32_t k = 0; k < from->parameter_count; k++) {
        const struct plan_parameter *parameter = &plan->parameters[from->parameter_begin + k];
        struct checkpoint_parameter *copy = &out->parameters[from->parameter_begin + k];
        memcpy(copy->name, parameter->name, sizeof(copy->name));
        memcpy(copy->dims, parameter->dims, sizeof(copy->dims));
        copy->layer = l;
        copy->dim_count = parameter->dim_count;
        copy->offset = parameter->offset;
        copy->no_weight_decay = plan->groups[parameter->group].no_weight_decay;
        copy->group = plan->groups[parameter->group].group;
        to->element_count = parameter->offset + parameter->element_count;
    }
}

eo_status eo_checkpoint_describe_plan(struct checkpoint_tables *out, const struct eo_plan *plan, bool own_update)
{
    struct checkpoint_head head = {
        .version = CHECKPOINT_VERSION,
        .element_count = plan->element_count,
        .rank_count = plan->params.rank_count,
        .dtype = plan->params.dtype,
        .optimizer_states = plan->state_count,
        .has_ema = plan->params.ema,
        .optimizer = plan->params.optimizer,
        .own_update = own_update && plan->params.optimizer_states > 0,
        .layer_count = plan->layer_count,
        .parameter_count = plan->parameter_count,
        .group_count = plan->trainer_group_count,
    };
    memcpy(head.magic, CHECKPOINT_MAGIC, sizeof(head.magic));
    memcpy(head.model_name, plan->model_name, sizeof(head.model_name));
    snprintf(head.strategy, sizeof(head.strategy), "%s", eo_strategy_name(plan->params.strategy));
    EO_TRY(new_tables(out, &head));
    for (uint32_t l = 0; l < plan->layer_count; l++)
        describe_layer(plan, l, out);
    out->head->model_hash = hash_model(out);
    return EO_OK;
}

/* -- a rank's file -------------------------------------------------------------------------------------------------*/

static uint32_t chunks_of(uint64_t bytes)
{
    return (uint32_t)eo_div_up(bytes, CHECKPOINT_CHUNK);
}

/* Sections one after the other; with `sections` NULL they are counted only. */
static void place_sections(struct checkpoint_head *head, const struct checkpoint_tables *model,
                           struct checkpoint_section *sections, uint32_t blob_bytes_max,
                           struct checkpoint_range (*range)(const void *user, uint32_t layer), const void *user)
{
    uint64_t at = head->head_bytes;
    head->section_count = head->chunk_count = 0;
    for (uint32_t l = 0; l <= head->layer_count; l++) {
        const bool is_blob = l == head->layer_count;
        const struct checkpoint_range own = is_blob ? (struct checkpoint_range){0, blob_bytes_max} : range(user, l);
        const uint32_t arrays = is_blob || model->layers[l].frozen ? 1 : 1 + head->optimizer_states;
        for (uint32_t a = 0; a < arrays && (own.count || is_blob); a++) {
            const uint64_t bytes = is_blob ? own.count : eo_checkpoint_words(head, a, own.count) * sizeof(float);
            if (sections)
                sections[head->section_count] = (struct checkpoint_section){
                    .layer = is_blob ? CHECKPOINT_TRAINER : l, .array = a, .offset = own.offset, .count = own.count,
                    .file_offset = at, .bytes = bytes, .chunk_begin = head->chunk_count,
                    .chunk_count = chunks_of(bytes),
                };
            head->section_count++;
            head->chunk_count += chunks_of(bytes);
            at += eo_align_up(bytes, CHECKPOINT_ALIGN);
        }
    }
    head->file_bytes = at;
}

eo_status eo_checkpoint_make_tables(struct checkpoint_tables *out, const struct checkpoint_tables *model,
                                    uint32_t rank, uint32_t rank_count, uint32_t blob_bytes_max,
                                    struct checkpoint_range (*range)(const void *user, uint32_t layer),
                                    const void *user)
{
    struct checkpoint_head head = *model->head;
    head.rank = rank;
    head.rank_count = rank_count;
    place_sections(&head, model, NULL, blob_bytes_max, range, user);
    EO_TRY(new_tables(out, &head));
    memcpy(out->layers, model->layers, head.layer_count * sizeof(*out->layers));
    memcpy(out->parameters, model->parameters, head.parameter_count * sizeof(*out->parameters));
    memcpy(out->frozen, model->frozen, head.group_count * sizeof(*out->frozen));
    place_sections(out->head, model, out->sections, blob_bytes_max, range, user);
    return EO_OK;
}

struct checkpoint_section *eo_checkpoint_blob_section(const struct checkpoint_tables *tables)
{
    return &tables->sections[tables->head->section_count - 1];
}

void eo_checkpoint_set_blob_bytes(struct checkpoint_tables *tables, uint32_t bytes)
{
    struct checkpoint_section *blob = eo_checkpoint_blob_section(tables);
    blob->count = blob->bytes = bytes;
    blob->chunk_count = chunks_of(bytes);
    tables->head->chunk_count = blob->chunk_begin + blob->chunk_count;
    tables->head->file_bytes = blob->file_offset + eo_align_up(bytes, CHECKPOINT_ALIGN);
}

void eo_checkpoint_section_text(const struct checkpoint_tables *tables, const struct checkpoint_section *section,
                                char *text, size_t bytes)
{
    if (section->layer == CHECKPOINT_TRAINER)
        snprintf(text, bytes, "the trainer's bytes");
    else if (section->array == 0)
        snprintf(text, bytes, "weights of %s", tables->layers[section->layer].name);
    else if (section->array == tables->head->optimizer_states && tables->head->has_ema)
        snprintf(text, bytes, "average of the weights of %s", tables->layers[section->layer].name);
    else
        snprintf(text, bytes, "optimizer state %u of %s", section->array - 1, tables->layers[section->layer].name);
}
