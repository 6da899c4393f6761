/* SPDX-License-Identifier: MIT
 *
 * A team of a GPU's stream: handles of the libraries, their workspace, the plans made at start; and the functions that
 * files of this room offer each other. Nothing is allocated after create and prepare.
 */
#ifndef EO_LAYERS_CUDA_INTERNAL_H
#define EO_LAYERS_CUDA_INTERNAL_H

#include "layers/cuda/products/cublaslt_names.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "layers/checks.h"
#include "layers/cuda/products/shape.h"
#include "layers/cuda/scratch.h"

enum {
    EO_CUDA_WORKSPACE_BYTES = 32 << 20, /* as cuBLASLt asks on Hopper; one per stream */
    EO_CUDA_PLANS_MAX = 1024,           /* places of the table, a power of two */
    EO_CUDA_PLANS_FULL = EO_CUDA_PLANS_MAX / 4 * 3,
    EO_CUDA_ATTENTIONS_MAX = 16,
};

enum eo_plan_state { EO_PLAN_NONE, EO_PLAN_READ /* from the cache file; not set up */, EO_PLAN_READY };

/* Descriptors are kept as structures, not as handles: to run a plan allocates nothing. */
struct eo_product_plan {
    struct eo_product_key key;
    enum eo_plan_state state;
    bool fused; /* the epilogue is the product's; else a kernel of ours does it afterwards */
    bool timed; /* belongs into the file */
    bool is_absent; /* cuBLASLt has none: of float8 products, which then are bf16's */
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

struct eo_cuda_attention_plan;

struct eo_cuda_team {
    struct eo_team base;
    eo_log log;
    int device;
    char device_name[256];
    bool is_hopper;
    cudaStream_t stream;
    bool owns_stream;
    cublasLtHandle_t blas;
    void *workspace; /* of cuBLASLt; between two products the stream's order frees it for other use */
    struct eo_product_plan *plans; /* EO_CUDA_PLANS_MAX, open addressing */
    uint32_t plan_count;
    char *plan_cache; /* the file's name, or NULL */
    bool plans_changed;
    bool repeatable; /* takes repeatable ways only */
    bool has_told_float8; /* that it cannot be had */
    void *cudnn; /* cudnnHandle_t, where there is cuDNN */
    struct eo_cuda_attention_plan *attentions[EO_CUDA_ATTENTIONS_MAX];
    uint32_t attention_count;
};

static inline struct eo_cuda_team *eo_cuda_team_of(eo_team *team)
{
    return (struct eo_cuda_team *)team; /* its first member */
}

/* ---- failures.c ---- */

/* Logs the failed call, its layer and pass, and whether the GPU is lost. */
void eo_cuda_tell(const struct eo_cuda_team *team, const char *library, const char *what, const char *error);
/* EO_OK, or eo_cuda_tell. `what` is a static text. */
eo_status eo_cuda_check(const struct eo_cuda_team *team, cudaError_t error, const char *what);
/* A launch's error is read as the thread's last one: what the program has left unread before is cleared, and warned of. */
void eo_cuda_clear_unread_before(const struct eo_cuda_team *team);

#define CUDA_CHECK(team, expression, what) (eo_cuda_clear_unread_before(team), eo_cuda_check((team), (expression), (what)))
#define CUDA_TRY(team, expression, what)   EO_TRY(CUDA_CHECK((team), (expression), (what)))
#define BLAS_TRY(team, expression, what) EO_TRY(eo_cuda_check_blas((team), (expression), (what)))

/* ---- cublaslt_import.c ---- */

/* From any thread, before the first call. EO_ERR_UNSUPPORTED: it cannot be loaded (logged, with the remedy). */
eo_status eo_cublaslt_load(const eo_log *log);

/* ---- products.c ---- */

/* Chooses a plan by timing, unless there is one. Takes device memory for the time of the call, if it gets any. */
eo_status eo_cuda_product_prepare(struct eo_cuda_team *team, const struct eo_multiply *product,
                                  const struct eo_cuda_batch *batch);
/* Without preparation a product runs with cuBLASLt's own choice. batch NULL: one. */
eo_status eo_cuda_product_run(struct eo_cuda_team *team, const struct eo_multiply *product,
                              const struct eo_cuda_batch *batch);

/* ---- products/plan.c ---- */

/* As eo_cuda_check. */
eo_status eo_cuda_check_blas(const struct eo_cuda_team *team, cublasStatus_t status, const char *what);

/* The plan's place: its own, or the free one where it belongs. NULL: the table is full (logged). */
struct eo_product_plan *eo_cuda_plan_find(struct eo_cuda_team *team, const struct eo_product_key *key);

/* Fills in the descriptors, epilogue included if `fused`. Pointers of bias and aux stand for their alignment only. */
eo_status eo_cuda_plan_describe(struct eo_cuda_team *team, struct eo_product_plan *plan);

/* Bias (or its gradient) and aux of a fused epilogue, as far as it has them. */
cublasStatus_t eo_cuda_plan_set_pointers(struct eo_product_plan *plan, const void *bias, const void *aux);

/* Of a float8 product: a scale for each of our A's rows and B's columns. */
cublasStatus_t eo_cuda_plan_set_scales(struct eo_product_plan *plan, const float *a_scales, const float *b_scales);

/* C = op(A) op(B) by the plan, plus `added` where it accumulates: c itself, or a matrix with c's layout. */
cublasStatus_t eo_cuda_plan_run(struct eo_cuda_team *team, struct eo_product_plan *plan, const void *a, const void *b,
                                const void *added, void *c);

/* The epilogue of a product that ran without it. */
cudaError_t eo_cuda_epilogue_alone(struct eo_cuda_team *team, const struct eo_multiply *product);

/* ---- products/choice.c ---- */

/* Puts an algorithm into a plan with a key. with_timing: among the candidates, the fastest. */
eo_status eo_cuda_plan_choose(struct eo_cuda_team *team, struct eo_product_plan *plan, bool with_timing);

/* The best of a few runs, in FLOP/s. */
eo_status eo_cuda_product_measure(eo_team *team, const eo_product *product, double *flops_per_s);

/* ---- products/cache.c ---- */

/* A file that is missing, of another device or of another cuBLASLt is no error: it is written anew. */
void eo_cuda_plans_read(struct eo_cuda_team *team);
void eo_cuda_plans_write(struct eo_cuda_team *team);

/* ---- attention.c, and its ways ---- */

/* One way to compute it. */
struct eo_cuda_attention_ops {
    const char *name;
    bool repeatable; /* no sum is taken in an order that depends on time */
    /* Pure: of the way, not of the device. */
    bool (*supports)(struct eo_types types, const struct eo_attention_shape *shape);
    /* Builds a plan's own part, *state. EO_ERR_UNSUPPORTED: the next one is tried (logged as information). */
    eo_status (*prepare)(struct eo_cuda_team *team, struct eo_types types, const struct eo_attention_shape *shape,
                         void **state);
    void (*release)(struct eo_cuda_team *team, void *state);
    eo_status (*forward)(struct eo_cuda_team *team, void *state, const struct eo_attention *attention);
    eo_status (*backward)(struct eo_cuda_team *team, void *state, const struct eo_attention *attention);
    void (*close)(struct eo_cuda_team *team); /* frees the team's part; NULL: none */
};
extern const struct eo_cuda_attention_ops eo_cuda_attention_cudnn_ops; /* where cuDNN was found */
extern const struct eo_cuda_attention_ops eo_cuda_attention_blocks_ops;

/* In the order of preference, then NULL: the first to support a shape takes it. attention/ways.c */
extern const struct eo_cuda_attention_ops *const eo_cuda_attention_ways[];

struct eo_cuda_attention_plan {
    const struct eo_cuda_attention_ops *ops;
    void *state;
    struct eo_types types;
    struct eo_attention_shape shape;
};

eo_status eo_cuda_attention_prepare(eo_team *team, const struct eo_attention *attention);
eo_status eo_cuda_attention_forward(eo_team *team, const struct eo_attention *attention);
eo_status eo_cuda_attention_backward(eo_team *team, const struct eo_attention *attention);
void eo_cuda_attentions_release(struct eo_cuda_team *team);

extern const struct eo_kernel_ops eo_kernels_cuda_ops; /* ops.c */

#endif
