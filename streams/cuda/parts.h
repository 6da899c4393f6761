/* SPDX-License-Identifier: MIT
 *
 * The parts of the CUDA device, for its table.
 */
#ifndef EO_STREAMS_CUDA_PARTS_H
#define EO_STREAMS_CUDA_PARTS_H

#include "streams/cuda/state.h"

/* streams/cuda/choose.c: the GPU, with everything that can be wrong about it, made current. */
eo_status eo_cuda_choose(struct eo_device *device);

/* streams/cuda/driver.c: of CUDA 10.2 or older. */
bool eo_cuda_find_function(const char *name, void **function);

/* streams/cuda/memory.c */
eo_status eo_cuda_memory_init(struct eo_device *device);
void eo_cuda_memory_fini(struct eo_device *device);
eo_status eo_cuda_reserve(struct eo_device *device, enum eo_memory_kind kind, uint64_t bytes, void **out);
void eo_cuda_release(struct eo_device *device, enum eo_memory_kind kind, void *memory, uint64_t bytes);
eo_status eo_cuda_available(struct eo_device *device, uint64_t *free_bytes, uint64_t *total_bytes);

/* streams/cuda/stamps.c */
eo_status eo_cuda_stamps_init(struct eo_device *device);
void eo_cuda_stamps_fini(struct eo_device *device);
void eo_cuda_stamp(struct eo_device *device, uint32_t queue, uint64_t *ns);
void eo_cuda_resolve_stamps(struct eo_device *device);
void eo_cuda_resolve_graph_stamps(struct eo_device *device);
void eo_cuda_stamps_anchor(struct eo_device *device); /* all queues are empty: compares the clocks anew */

/* streams/cuda/graph.c */
eo_status eo_cuda_capture_begin(struct eo_device *device);
eo_status eo_cuda_capture_end(struct eo_device *device, void **graph);
eo_status eo_cuda_graph_launch(struct eo_device *device, void *graph);
void eo_cuda_graph_destroy(struct eo_device *device, void **graph);

/* streams/cuda/elementwise.c */
void eo_cuda_upload(struct eo_device *device, void *to, const void *from_host, uint64_t bytes);
void eo_cuda_download(struct eo_device *device, void *to_host, const void *from, uint64_t bytes);
void eo_cuda_zero(struct eo_device *device, void *memory, uint64_t bytes);
void eo_cuda_fill_memory(struct eo_device *device, void *memory, uint32_t pattern, uint64_t bytes);
void eo_cuda_copy(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes);
void eo_cuda_copy_host(struct eo_device *device, uint32_t queue, void *to, const void *from, uint64_t bytes, bool to_host,
                       struct eo_span *span);
void eo_cuda_cast(struct eo_device *device, uint32_t queue, uint16_t *to, const float *from, uint64_t count);
void eo_cuda_add(struct eo_device *device, float *to, const void *from, eo_dtype dtype, bool overwrite,
                 uint64_t count);
void eo_cuda_squares(struct eo_device *device, uint32_t queue, double *out, const float *values, uint64_t count,
                     struct eo_span *span);
void eo_cuda_add_squares(struct eo_device *device, double *out, float *to, const void *from, eo_dtype dtype,
                         bool overwrite, uint64_t count);
void eo_cuda_local_norm(struct eo_device *device, double *out, const struct eo_norm_term *terms, uint32_t count,
                        const struct eo_step_memory *step, const double *device_values);
void eo_cuda_sum_norms(struct eo_device *device, const double *gathered, uint32_t rank_count,
                       const struct eo_step_memory *step);
void eo_cuda_update(struct eo_device *device, enum eo_rule rule, const struct eo_update_range *ranges,
                    uint32_t range_count, const struct eo_step_memory *step);
void eo_cuda_combine_all(struct eo_device *device, float *out, const float *a, float x, const float *b, float y,
                         const double *squares, uint64_t count);
void eo_cuda_average_all(struct eo_device *device, const struct eo_average *average, enum eo_average_mode mode,
                         const struct eo_update_scalars *scalars, const struct eo_norm_result *norm);
void eo_cuda_narrow_runs(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count);
void eo_cuda_widen_runs(struct eo_device *device, const struct eo_float8_run *runs, uint32_t run_count);
void eo_cuda_widen_mxfp8_runs(struct eo_device *device, const struct eo_mxfp8_run *runs, uint32_t run_count);

/* streams/cuda/storage.c */
eo_status eo_cuda_storage_peek(struct eo_storage *storage, const struct eo_storage_copy *copy);
eo_status eo_cuda_storage_check(struct eo_device *device, const char *folder, uint64_t bytes, uint32_t sharers);
eo_status eo_cuda_storage_open(struct eo_device *device, const char *folder, uint64_t bytes, struct eo_storage **out);
void eo_cuda_storage_close(struct eo_device *device, struct eo_storage **storage);
void eo_cuda_storage_copy(struct eo_device *device, struct eo_storage *storage, const struct eo_storage_copy *copy);

/* streams/cuda/allocator.c: the table's; streams/cuda/caching.c: "caching" */
const struct eo_device_allocator_ops *eo_cuda_allocator(const char *kind);
extern const struct eo_device_allocator_ops eo_cuda_caching_ops;

#endif
