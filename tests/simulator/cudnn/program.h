/* SPDX-License-Identifier: MIT
 *
 * A graph of operations as it was described, on its own: descriptors may be gone.
 */
#ifndef EO_TESTS_SIMULATOR_CUDNN_PROGRAM_H
#define EO_TESTS_SIMULATOR_CUDNN_PROGRAM_H

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_CUDNN_RANK = 4, SIM_CUDNN_TENSORS_MAX = 64, SIM_CUDNN_OPERATIONS_MAX = 64, SIM_CUDNN_NONE = 255 };

struct sim_cudnn_tensor {
    const void *from;
    int64_t id, size[SIM_CUDNN_RANK], stride[SIM_CUDNN_RANK], alignment;
    cudnnDataType_t type;
    bool is_virtual, by_value;
    bool is_read, is_written; /* by the graph, of memory */
};

enum sim_cudnn_kind { SIM_CUDNN_POINTWISE, SIM_CUDNN_MATMUL, SIM_CUDNN_REDUCTION, SIM_CUDNN_RESHAPE };

struct sim_cudnn_operation {
    enum sim_cudnn_kind kind;
    int mode;        /* of a pointwise operation, of a reduction */
    int64_t axis;
    uint32_t x, b, t, y; /* tensors; SIM_CUDNN_NONE */
};

struct sim_cudnn_program {
    struct sim_cudnn_program *next;
    uint32_t tensor_count, operation_count;
    struct sim_cudnn_tensor tensors[SIM_CUDNN_TENSORS_MAX];
    struct sim_cudnn_operation operations[SIM_CUDNN_OPERATIONS_MAX];
    bool is_grouped;        /* fewer heads of keys than of queries */
    int64_t query_elements; /* of the largest tensor in memory that is read: the query */
};

/* False: no such graph can be, and why. Finds out what is read and written. */
bool sim_cudnn_program_check(struct sim_cudnn_program *program, char *why, size_t why_bytes);
/* Its operations come as those of flash attention forward, or backward. */
bool sim_cudnn_program_is_attention(const struct sim_cudnn_program *program);

struct sim_cudnn_call {
    const struct sim_cudnn_program *program;
    void *pointers[SIM_CUDNN_TENSORS_MAX]; /* of tensors in memory */
    float values[SIM_CUDNN_TENSORS_MAX];   /* of those by value */
    void *workspace;
    int64_t workspace_bytes;
};
cudaError_t sim_cudnn_program_issue(const struct sim_cudnn_call *call, cudaStream_t stream);

#endif
