/* SPDX-License-Identifier: MIT
 *
 * evenodd beneath llm.c's train_gpt2.c; sharded.patch makes it include this file. A rank is a process of `evenodd-launch`, on one
 * machine. It keeps its part of the weights, gradients and moments, and sees the whole of one layer at a time:
 *
 *     position 0        token and position embedding
 *     position 1 ... L  a block
 *     position L + 1    last norm, and the token embedding again as head
 *
 * llm.c finds a block's tensors at params.x + l * size, in stacks of all blocks. So sharded_point sets the beginnings of the stacks
 * in such a way that these sums point into the layer's buffer.
 */
#include <evenodd/evenodd.h>

enum { SHARDED_BLOCK_FIRST = 2, SHARDED_BLOCK_END = 14, SHARDED_HEADER = 256 }; /* tensors of blocks; ints before the weights */
static const char *const sharded_names[NUM_PARAMETER_TENSORS] = {
    "wte", "wpe", "ln1w", "ln1b", "qkvw", "qkvb", "attprojw", "attprojb", "ln2w", "ln2b", "fcw", "fcb", "fcprojw", "fcprojb", "lnfw", "lnfb",
};

enum sharded_pass { SHARDED_NONE, SHARDED_FORWARD, SHARDED_BACKWARD };
static struct {
    uint32_t rank, ranks;
    eo_rendezvous *rendezvous;
    eo_world *world;
    eo_model *model;
    eo_plan *plan;
    eo_runtime *runtime;
    bool training;          /* in a step; else a forward run is an evaluation */
    enum sharded_pass open; /* the pass that is to be ended, */
    uint32_t position;      /* of this position */
} sharded;

static void sharded_log(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    fprintf(stderr, "rank %u: %s\n", sharded.rank, text);
}

static const eo_log sharded_stderr = {.write = sharded_log, .level = EO_LOG_WARN};

/* After a failure, which the log has told, the other ranks learn of it and this one ends. */
static void sharded_check(eo_status status)
{
    if (status >= 0)
        return;
    eo_world_abort(sharded.world, eo_status_text(status));
    exit(EXIT_FAILURE);
}

static uint32_t sharded_number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

/* The ranks meet. What llm.c prints comes from rank 0 alone. */
static void sharded_start(void)
{
    sharded.rank = sharded_number("EVENODD_RANK", 0);
    sharded.ranks = sharded_number("EVENODD_RANKS", 1);
    sharded_check(eo_rendezvous_create(&sharded.rendezvous, eo_rendezvous_params(
        .rank = sharded.rank, .rank_count = sharded.ranks, .local_rank = sharded_number("EVENODD_LOCAL_RANK", 0),
        .local_count = sharded_number("EVENODD_LOCAL_RANKS", 1),
        .job = getenv("EVENODD_JOB") ? getenv("EVENODD_JOB") : "llm.c alone", .log = &sharded_stderr)));
    sharded_check(eo_world_create_joined(&sharded.world, eo_world_join_params(.rendezvous = sharded.rendezvous,
                                                                             .log = &sharded_stderr)));
    if (sharded.rank > 0 && freopen("/dev/null", "w", stdout) == NULL)
        sharded_check(EO_ERR_IO);
}

/* ---- the model ---- */

static bool sharded_is_of_block(uint32_t tensor)
{
    return tensor >= SHARDED_BLOCK_FIRST && tensor < SHARDED_BLOCK_END;
}

/* A tensor of one layer: what is of a block is one of a stack. */
static size_t sharded_size(const GPT2 *model, uint32_t tensor)
{
    return model->param_sizes[tensor] / (sharded_is_of_block(tensor) ? (size_t)model->config.num_layers : 1);
}

/* Layer 0 has the tensors outside of blocks. */
static void sharded_add_layer(const GPT2 *model, uint32_t layer)
{
    char name[EO_NAME_MAX];
    snprintf(name, sizeof(name), layer ? "block %u" : "embedding", layer);
    sharded_check(eo_model_add_layer(sharded.model, eo_layer_params(.name = name), NULL));
    for (uint32_t t = 0; t < NUM_PARAMETER_TENSORS; t++) {
        if (sharded_is_of_block(t) != (layer > 0))
            continue;
        snprintf(name, sizeof(name), layer ? "%s of block %u" : "%s", sharded_names[t], layer);
        sharded_check(eo_model_add_parameter(sharded.model, eo_parameter_params(.layer = layer, .name = name, .dim_count = 1,
                                                                                .dims = {sharded_size(model, t)}), NULL));
    }
}

static void sharded_plan(const GPT2 *model)
{
    const uint32_t blocks = (uint32_t)model->config.num_layers, encoder[] = {0, 1}, head[] = {0, 2, 3}; /* wte, wpe; wte, norm */
    sharded_check(eo_model_create(&sharded.model, eo_model_params(.name = "llm.c", .log = &sharded_stderr)));
    for (uint32_t layer = 0; layer <= blocks; layer++)
        sharded_add_layer(model, layer);
    sharded_check(eo_model_add_position(sharded.model,
                                        eo_position_params(.layer = 0, .backward_without_weights = true, .parameters = encoder,
                                                           .parameter_count = 2, .adds_gradients = true),
                                        NULL));
    for (uint32_t layer = 1; layer <= blocks; layer++)
        sharded_check(eo_model_add_position(sharded.model, eo_position_params(.layer = layer), NULL));
    sharded_check(eo_model_add_position(sharded.model, eo_position_params(.layer = 0, .name = "head", .parameters = head,
                                                                          .parameter_count = 3), NULL));
    sharded_check(eo_plan_create(&sharded.plan, sharded.model, eo_plan_params(.rank_count = sharded.ranks, .log = &sharded_stderr)));
}

struct sharded_source {
    FILE *file;
    size_t first; /* float of the file at which the parameter begins */
};

static eo_status sharded_read(void *user, uint64_t offset, uint64_t count, float *values)
{
    const struct sharded_source *source = (const struct sharded_source *)user;
    fseekCheck(source->file, (long)((SHARDED_HEADER + source->first + offset) * sizeof(float)), SEEK_SET);
    freadCheck(values, sizeof(float), count, source->file);
    return EO_OK;
}

/* In place of llm.c's memory for the parameters, and of its reading of them: a rank reads its part of each. */
static void sharded_create(GPT2 *model, FILE *file)
{
    struct sharded_source source = {file, 0};
    eo_plan_summary summary;
    sharded_plan(model);
    sharded_check(eo_runtime_create(&sharded.runtime, eo_runtime_params(.plan = sharded.plan, .world = sharded.world,
                                                                        .zero_gradients = true, .log = &sharded_stderr)));
    for (uint32_t t = 0, outside = 0; t < NUM_PARAMETER_TENSORS; source.first += sharded_size(model, t++)) {
        if (!sharded_is_of_block(t)) {
            sharded_check(eo_weights_fill(sharded.runtime, outside++, sharded_read, &source));
            continue;
        }
        for (uint32_t l = 0; l < (uint32_t)model->config.num_layers; l++) {
            const uint32_t in_block = SHARDED_BLOCK_END - SHARDED_BLOCK_FIRST, at = t - SHARDED_BLOCK_FIRST;
            sharded_check(eo_weights_fill(sharded.runtime, NUM_PARAMETER_TENSORS - in_block + l * in_block + at, sharded_read, &source));
            source.first += l + 1 < (uint32_t)model->config.num_layers ? sharded_size(model, t) : 0;
        }
    }
    eo_plan_get_summary(sharded.plan, &summary);
    printf("ranks: %u\nbytes a rank for weights, gradients and moments: %zu\n", sharded.ranks, (size_t)summary.arena_bytes);
    model->params_memory = (float *)mallocCheck(sizeof(float)); /* says that there is a model, and is freed with it */
}

/* ---- passes ---- */

/* Ends the open pass, if any; after the last one of an evaluation the evaluation too. */
static void sharded_end(void)
{
    const bool evaluated = sharded.open == SHARDED_FORWARD && !sharded.training;
    if (sharded.open == SHARDED_FORWARD)
        sharded_check(eo_forward_end(sharded.runtime, sharded.position));
    if (sharded.open == SHARDED_BACKWARD)
        sharded_check(eo_backward_end(sharded.runtime, sharded.position));
    sharded.open = SHARDED_NONE;
    if (evaluated && sharded.position + 1 == eo_model_position_count(sharded.model))
        sharded_check(eo_evaluation_end(sharded.runtime));
}

/* The stacks begin so far before the layer's tensors that those lie at their places in them. An address is a number here, for C
 * knows no pointer to before an array. */
static void sharded_point(const GPT2 *model, void *const *tensors, ParameterTensors *out)
{
    float **stacks = (float **)out;
    const uint32_t head = eo_model_position_count(sharded.model) - 1, p = sharded.position;
    const bool in_block = p > 0 && p < head;
    for (uint32_t t = 0, k = 0; t < NUM_PARAMETER_TENSORS && tensors; t++)
        if (sharded_is_of_block(t) == in_block)
            stacks[t] = (float *)((uintptr_t)tensors[k++] - (in_block ? (p - 1) * sharded_size(model, t) * sizeof(float) : 0));
}

/* From here to the next call the weights of this position are in params. */
static void sharded_forward(const GPT2 *model, uint32_t position, ParameterTensors *params)
{
    const eo_view *view;
    sharded_end();
    if (position == 0 && !sharded.training)
        sharded_check(eo_evaluation_begin(sharded.runtime));
    sharded_check(eo_forward_begin(sharded.runtime, position, &view));
    sharded.open = SHARDED_FORWARD, sharded.position = position;
    sharded_point(model, view->weights, params);
}

/* And its gradients in grads: zeros at first, but the head's for the encoder, which adds its own. */
static void sharded_backward(const GPT2 *model, uint32_t position, ParameterTensors *params, ParameterTensors *grads)
{
    const eo_view *view;
    sharded_end();
    sharded_check(eo_backward_begin(sharded.runtime, position, &view));
    sharded_check(eo_gradients_begin(sharded.runtime, position, &view));
    sharded.open = SHARDED_BACKWARD, sharded.position = position;
    sharded_point(model, view->weights, params);
    sharded_point(model, view->gradients, grads);
}

/* ---- steps ---- */

static void sharded_step(void)
{
    sharded_check(eo_step_begin(sharded.runtime));
    sharded.training = true;
}

/* In place of gpt2_update. The loss becomes that of all ranks. */
static void sharded_update(GPT2 *model, float learning_rate, float beta1, float beta2, float eps, float weight_decay)
{
    eo_step_report report;
    sharded_check(eo_step_end(sharded.runtime, eo_step_params(.learning_rate = learning_rate, .beta1 = beta1, .beta2 = beta2, .eps = eps,
                                                              .weight_decay = weight_decay, .values = {(double)model->mean_loss}), &report));
    model->mean_loss = (float)(report.values[0] / sharded.ranks);
    sharded.training = false;
}

static float sharded_mean(float value)
{
    double sum = (double)value;
    sharded_check(eo_sum(sharded.runtime, &sum, 1));
    return (float)(sum / sharded.ranks);
}

static void sharded_stop(void)
{
    eo_runtime_destroy(&sharded.runtime);
    eo_plan_destroy(&sharded.plan);
    eo_model_destroy(&sharded.model);
    eo_world_destroy(&sharded.world);
    eo_rendezvous_destroy(&sharded.rendezvous);
}
