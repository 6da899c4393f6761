/* SPDX-License-Identifier: MIT
 *
 * A model as the planner sees it: layers (units of sharding) with their parameters, positions (uses of layers, in
 * execution order) and any buffer that the trainer wants placed, with its lifetime. It holds no values and no kernels.
 *
 *     layer      embedding   block.0   block.1   ...
 *     position   0           1         2         ...   P-1 (may use the embedding again: a tied layer)
 *
 * In a micro-batch the passes run in this order:
 *
 *     forward(0) ... forward(P-1), then for p = P-1 ... 0: recompute(p), backward(p)
 *
 * In the runtime's calls forward(p) is what lies between eo_forward_begin and eo_forward_end, recompute(p) between
 * eo_backward_begin and eo_gradients_begin, and backward(p) between eo_gradients_begin and eo_backward_end. A frozen
 * layer has no eo_gradients_begin: all of it is recompute(p).
 */
#ifndef EVENODD_MODEL_H
#define EVENODD_MODEL_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

#define EO_DIMS_MAX 4
#define EO_NAME_MAX 64 /* bytes of a name with its end; without control characters */
#define EO_GROUPS_MAX 256 /* groups of parameters */
#define EO_FP32_ELEMENTS_MAX (1 << 22) /* of a parameter with fp32 */

typedef struct eo_model eo_model;

typedef struct eo_model_params {
    const char *name;  /* ["model"] */
    const eo_log *log; /* [silence] copied */
} eo_model_params;
#define eo_model_params(...) EO_PARAMS(eo_model_params, __VA_ARGS__)

/* At least one parameter; work without parameters belongs to the pass of a neighbour. */
typedef struct eo_layer_params {
    const char *name; /* required, unique in the model */
    bool frozen;      /* [false] no gradient buffer, no optimizer state; the weights stay as they are */
    uint32_t parts;   /* [1] the ranks of a group hold so many different layers of this shape, each shared by a part of the group:
                         experts of expert parallelism. For plans alone: eo_runtime_create refuses more than one */
} eo_layer_params;
#define eo_layer_params(...) EO_PARAMS(eo_layer_params, __VA_ARGS__)

typedef struct eo_parameter_params {
    uint32_t layer;              /* an index from eo_model_add_layer */
    const char *name;            /* required, unique in the model */
    uint32_t dim_count;          /* 1 to EO_DIMS_MAX */
    uint64_t dims[EO_DIMS_MAX];  /* each at least 1, those behind dim_count 0; C order */
    bool no_weight_decay;        /* [false] AdamW leaves the decay out */
    uint64_t padding;            /* [0] elements behind the parameter that kernels may read in weights: zeros; and write in
                                    gradients: zeros. No part of the model: neither counted nor handed out, and a checkpoint
                                    with other paddings is the same */
    bool float8_gather;          /* [false] may be gathered in float8, where the plan gathers so (eo_plan_params): for
                                    matrices of products; vectors and embeddings lose too much by it */
    bool joined;                 /* [false] lies directly behind the layer's parameter before it, weights and gradients, in every
                                    view: one product may take both. That one has no padding, and a multiple of 16 elements */
    uint32_t group;              /* [0] whose numbers the optimizer takes (eo_step_params.groups); below EO_GROUPS_MAX */
    bool frozen;                 /* [false] no gradient (NULL in views) and no optimizer state, beside trainable parameters of
                                    the layer: gathered with them, but never reduced. Static mode, not with float8 gathers. If
                                    all of a layer are frozen the layer is, and its positions have no eo_gradients_begin */
    bool matrix;                 /* [false] of two dimensions, the weight of a product: EO_OPTIMIZER_MUON moves it along an
                                    orthogonal matrix. Not for embeddings and heads */
    bool fp32;                   /* [false] in a plan of dtype bf16 its weights are fp32 in views, and are gathered so: for norms
                                    and routers beside matrices. Its gradient is of the plan's reduce_dtype, as all are. It lies
                                    whole on one rank, and takes two places of the flat layer an element, so it is to be small:
                                    EO_FP32_ELEMENTS_MAX. Neither joined nor gathered in float8 */
} eo_parameter_params;
#define eo_parameter_params(...) EO_PARAMS(eo_parameter_params, __VA_ARGS__)

/* One use of a layer. The order of the calls is the execution order. */
typedef struct eo_position_params {
    uint32_t layer;
    const char *name;              /* [the layer's name] */
    bool forward_in_backward;      /* [false] the forward pass is empty in training: loss, forward and backward all run
                                      in the backward pass (a language model's head) */
    bool backward_without_weights; /* [false] the backward pass does not read weights: they are not gathered for it
                                      (an embedding) */
    const uint32_t *parameters;    /* [all of the layer] those that this use gives gradients to, by the indices that
                                      eo_model_add_parameter gave: of the model, not of the layer. The gradients of the
                                      layer's other parameters are zeroed by the runtime (of a position with adds_gradients
                                      they are those of the uses before), and keep their places in the view */
    uint32_t parameter_count;      /* 0 with `parameters` not NULL: none gets a gradient */
    bool adds_gradients; /* [false] the backward pass does not write its gradients, it adds them to what the view holds:
                            those that the layer's next use, whose backward pass came before, has left there, so that
                            one buffer and one reduction do for both; elsewhere zeros. Not for a layer's last use */
} eo_position_params;
#define eo_position_params(...) EO_PARAMS(eo_position_params, __VA_ARGS__)

typedef enum eo_pass { EO_PASS_FORWARD, EO_PASS_RECOMPUTE, EO_PASS_BACKWARD } eo_pass;

typedef struct eo_moment {
    eo_pass pass;
    uint32_t position;
} eo_moment;

/* What a buffer's bytes are counted under. The first ones are the runtime's own. */
typedef enum eo_category {
    EO_CATEGORY_MASTER,         /* fp32 master weights, or their low halves */
    EO_CATEGORY_COMPUTE_SHARD,  /* compute-dtype shards, where they are not the master weights */
    EO_CATEGORY_GRADIENT,       /* gradient shards */
    EO_CATEGORY_OPTIMIZER,      /* optimizer state */
    EO_CATEGORY_GATHER_BUFFER,  /* full weights of a layer */
    EO_CATEGORY_GRADIENT_BUFFER,/* full gradients of a layer */
    EO_CATEGORY_ACTIVATION,     /* kept from forward to backward */
    EO_CATEGORY_SCRATCH,        /* recompute and scratch */
    EO_CATEGORY_HEAD,           /* logits and what belongs to them */
    EO_CATEGORY_OTHER,          /* norm partials, inputs and the like */
    EO_CATEGORY_COUNT,
} eo_category;

/*
 * A buffer the trainer wants placed. It is used by compute passes only. Its content is valid from the end of `first`
 * (whose pass writes it) to the end of `last`, in each micro-batch; outside that its addresses serve others.
 * A forward-only run may use a buffer in the forward pass of p if its lifetime covers forward(p), or, where p is
 * `forward_in_backward`, backward(p). There its content holds from the first to the last position that may use it.
 */
typedef struct eo_buffer_params {
    const char *name;     /* required, unique in the model */
    uint64_t bytes;       /* at least 1 */
    eo_category category; /* EO_CATEGORY_ACTIVATION and following */
    eo_moment first;      /* the pass that writes it first */
    eo_moment last;       /* the pass that reads it last; not before `first` */
    bool persistent;      /* [false] lives in every pass of every step; first and last are not read */
    bool saved;           /* [false] from the forward to the recompute or backward pass of one position, and no other position's
                             passes touch it: eo_plan_params.offload_activations may take it elsewhere in between. Not with
                             persistent */
} eo_buffer_params;
#define eo_buffer_params(...) EO_PARAMS(eo_buffer_params, __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All calls allocate, none waits; a model belongs to one thread at a time.
 * EO_OK, EO_ERR_INVALID (logged: what was wrong), EO_ERR_NO_MEMORY. A failed call changes nothing.
 */
#define eo_model_create EO_OF_API(eo_model_create)
EO_EXPORT EO_NODISCARD eo_status eo_model_create(eo_model **out, const eo_model_params *params);
EO_EXPORT void eo_model_destroy(eo_model **model); /* NULL and pointers to NULL are taken */

/* The index of what was added goes to *out (NULL is taken): 0, 1, ... in the order of calls. */
EO_EXPORT EO_NODISCARD eo_status eo_model_add_layer(eo_model *model, const eo_layer_params *params, uint32_t *out);
EO_EXPORT EO_NODISCARD eo_status eo_model_add_parameter(eo_model *model, const eo_parameter_params *params,
                                                        uint32_t *out);
EO_EXPORT EO_NODISCARD eo_status eo_model_add_position(eo_model *model, const eo_position_params *params,
                                                       uint32_t *out);
EO_EXPORT EO_NODISCARD eo_status eo_model_add_buffer(eo_model *model, const eo_buffer_params *params, uint32_t *out);

/* What was described. */
EO_EXPORT uint32_t eo_model_layer_count(const eo_model *model);
EO_EXPORT uint32_t eo_model_position_count(const eo_model *model);
EO_EXPORT uint32_t eo_model_parameter_count(const eo_model *model);
EO_EXPORT uint64_t eo_model_element_count(const eo_model *model); /* parameters in the usual sense, tied ones once */
EO_EXPORT const char *eo_model_position_name(const eo_model *model, uint32_t position);
EO_EXPORT const char *eo_model_layer_name(const eo_model *model, uint32_t layer);

/* The index of a parameter by its name; EO_ERR_INVALID if there is none. */
EO_EXPORT EO_NODISCARD eo_status eo_model_find_parameter(const eo_model *model, const char *name, uint32_t *out);

typedef struct eo_parameter_info {
    const char *name; /* lives as long as the model */
    uint32_t layer;
    uint32_t dim_count;
    uint64_t dims[EO_DIMS_MAX];
    uint64_t element_count;
    uint64_t padding; /* elements behind it, of no account; 0 in eo_weights_visit */
    bool no_weight_decay;
    bool frozen;
    bool float8_gather;
    uint32_t group;
    bool fp32;
} eo_parameter_info;

EO_EXPORT EO_NODISCARD eo_status eo_model_parameter_sized(const eo_model *model, uint32_t parameter, eo_parameter_info *out,
                                                          size_t out_bytes);
EO_CALLER EO_NODISCARD eo_status eo_model_parameter(const eo_model *model, uint32_t parameter, eo_parameter_info *out)
{
    return eo_model_parameter_sized(model, parameter, out, sizeof(*out));
}

#ifdef __cplusplus
}
#endif

#endif
