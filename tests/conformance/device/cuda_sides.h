/* SPDX-License-Identifier: MIT
 *
 * What the conformance program of the GPU's kernels stands on: tensors that exist twice, on the device and on the host,
 * with the same content. A case runs the device's kernel on one side and the reference on the other, and compares.
 *
 * Between the device's tensors lie guards; whoever writes into one fails the case.
 */
#ifndef EO_TESTS_CUDA_SIDES_H
#define EO_TESTS_CUDA_SIDES_H

#include <cuda_runtime_api.h>

#include "layers/kernel_ops.h"
#include "tests/tap/tap.h"

enum side { HOST, DEVICE, SIDES };

struct sides {
    eo_team *team;                  /* of the device */
    const struct eo_kernel_ops *ops[SIDES];
    cudaStream_t stream;            /* the team's */
    char *memory;                   /* the device's, for all tensors of a case */
    uint64_t memory_bytes, used;
    uint64_t offset;                /* [0] bytes by which tensors miss their alignment */
    void (*on_tensor)(const void *at, uint64_t bytes); /* of a host that checks: a new one; NULL: all are gone */
    bool small; /* without the largest sizes, and with fewer settings at one size, for kernels on a host */
    bool no_float8; /* it has told that it has no products in float8 */
    bool few;   /* and two sizes in place of all: of kernels that are judged elsewhere, what remains is how they are called */
};
extern struct sides sides;

/* cuda_team.c, or of a host. `why` where there is no GPU. */
bool sides_begin(uint32_t device_index, char *why, size_t why_bytes);
void sides_end(void);
void sides_guard(void); /* all memory, at the beginning */
void sides_must(cudaError_t error, const char *what);

/* Waits until it is done. */
void sides_copy(void *to, const void *from, uint64_t bytes, enum cudaMemcpyKind kind);

struct tensor {
    void *at[SIDES];
    eo_dtype dtype;
    uint64_t count;
    uint64_t rows, width, stride; /* what is compared: width of each stride elements */
};

/* Random in [low, high), equal on both sides. Strides other than the width: what lies between is compared too. */
struct tensor tensor_random(eo_dtype dtype, uint64_t rows, uint64_t width, float low, float high);
struct tensor tensor_strided(eo_dtype dtype, uint64_t rows, uint64_t width, uint64_t stride, float low, float high);
/* Content that must not be read: NaN. */
struct tensor tensor_unset(eo_dtype dtype, uint64_t rows, uint64_t width);
struct tensor tensor_tokens(uint64_t count, uint32_t below);
struct tensor tensor_bytes(uint64_t bytes); /* scratch */
void *tensor_at(const struct tensor *tensor, enum side side, uint64_t element);
void tensor_put(const struct tensor *tensor, const void *bytes); /* of the host, to both sides */

/*
 * Compares what the device has with what the host has: |difference| <= tolerance x (|value| + root mean square of the
 * tensor). tolerance 0: the same bits.
 */
void expect_equal(const char *what, const struct tensor *tensor, double tolerance);
/*
 * The same where that does not say how an element is rounded: `terms` is, of each element, the size of what it is the sum of. A sum
 * that cancels has the rounding of its terms (Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2). Frees them.
 */
void expect_equal_of_terms(const char *what, const struct tensor *tensor, double tolerance, double *terms);
/* Of each row its root mean square, and the same for each element. */
double *row_sizes(const struct tensor *tensor);
double *terms_of_rows(const struct tensor *tensor);
/* A row's loss is the difference of two numbers of up to its largest logit; words that are ruled out do not count. An element
 * of the gradient is a probability, with a relative error; that of the target less 1, with one of 1's size. Of logits and
 * targets as they are before. */
double *terms_of_losses(const struct tensor *logits);
double *terms_of_loss_gradient(const struct tensor *logits, const struct tensor *targets, double scale);
double root_mean_square(const struct tensor *tensor); /* of the host's, without what is not finite */
double tolerance_of(eo_dtype dtype, uint64_t sum_length); /* one rounding of the type, and a sum's */
/* Bits of the device's side, to compare later runs with. */
uint64_t device_hash(const struct tensor *tensor);

void expect_status(eo_status status, const char *what);
void expect_that(bool condition, const char *format, ...) EO_PRINTF(2, 3);

/* Forgets the tensors; looks at the guards. */
void part_end(const char *what);
/* One TAP line. */

void not_finite_cases(void); /* cuda_not_finite.c */
void products_cases(void);  /* cuda_products.c */
void attention_cases(void); /* cuda_products.c */

#endif
