/* SPDX-License-Identifier: MIT
 *
 * What the kernels of streams/cuda launch and touch.
 */
#include "streams/cuda/collective_kernels.h"
#include "streams/cuda/kernels.h"
#include "streams/state8.h"
#include "base/mxfp8.h"

#include "tests/gpu/expect/launch_list.h"

enum { THREADS = 256, TILE = 4 * THREADS };

cudaError_t eo_cuda_kernels_load(void) { return cudaSuccess; }
cudaError_t eo_cuda_float8_load(void) { return cudaSuccess; }
cudaError_t eo_cuda_state8_load(void) { return cudaSuccess; }
cudaError_t eo_cuda_sum_load(void) { return cudaSuccess; }

static cudaError_t by_elements(cudaStream_t stream, const char *group, const char *kernel, uint64_t count, uint64_t read,
                               uint64_t written)
{
    return launch_note(stream, (struct launch){
        .group = group, .kernel = kernel, .read = read, .written = written, .must = read + written,
        .blocks = launch_div_up(count, TILE), .threads = THREADS, .round_trips = 1});
}

cudaError_t eo_cuda_fill(void *memory, uint32_t pattern, uint64_t bytes, cudaStream_t stream)
{
    (void)memory, (void)pattern;
    return by_elements(stream, "other", "fill_kernel", bytes / 4, 0, bytes);
}

cudaError_t eo_cuda_cast_bf16(uint16_t *to, const float *from, uint64_t count, cudaStream_t stream)
{
    (void)to, (void)from;
    return by_elements(stream, "other", "cast_kernel", count, 4 * count, 2 * count);
}

cudaError_t eo_cuda_accumulate(float *to, const void *from, eo_dtype dtype, bool overwrite, uint64_t count,
                               cudaStream_t stream)
{
    (void)to, (void)from;
    return by_elements(stream, "gradients added up", "accumulate_kernel", count,
                       launch_bytes(dtype, count) + (overwrite ? 0 : 4 * count), 4 * count);
}

static cudaError_t sum_of_squares(cudaStream_t stream, uint64_t count, uint64_t read, uint64_t written)
{
    enum { ADDS = EO_SUM_CHUNK / EO_SUM_LANES, TILE_CHUNKS = 8 * THREADS };
    const uint64_t chunk = eo_sum_chunk(count), chunks = launch_div_up(count, chunk);
    const double tiles = (double)launch_div_up(chunk, EO_SUM_CHUNK);
    launch_note(stream, (struct launch){
        .group = "gradient norm", .kernel = "chunks_kernel", .read = read, .written = written + chunks * sizeof(double),
        .must = read + written + sizeof(double), .blocks = chunks, .threads = THREADS,
        .shared_bytes = EO_SUM_CHUNK * sizeof(float), .round_trips = tiles, .barriers = 2 * tiles,
        .double_adds = tiles * ADDS});
    return launch_note(stream, (struct launch){
        .group = "gradient norm", .kernel = "sum_chunks_kernel", .read = chunks * sizeof(double), .written = sizeof(double),
        .blocks = 1, .threads = chunks <= 4 * EO_SUM_LANES ? EO_SUM_LANES : THREADS, .shared_bytes = TILE_CHUNKS * sizeof(double),
        .round_trips = (double)launch_div_up(chunks, TILE_CHUNKS), .barriers = 2 * (double)launch_div_up(chunks, TILE_CHUNKS),
        .double_adds = (double)launch_div_up(chunks, EO_SUM_LANES)});
}

cudaError_t eo_cuda_sum_squares(double *out, double *chunks, const float *values, uint64_t count, cudaStream_t stream)
{
    (void)out, (void)chunks, (void)values;
    return sum_of_squares(stream, count, 4 * count, 0);
}

cudaError_t eo_cuda_accumulate_sum_squares(double *out, double *chunks, float *to, const void *from, eo_dtype dtype,
                                           bool overwrite, uint64_t count, cudaStream_t stream)
{
    (void)out, (void)chunks, (void)to, (void)from;
    return sum_of_squares(stream, count, launch_bytes(dtype, count) + (overwrite ? 0 : 4 * count), 4 * count);
}

cudaError_t eo_cuda_norm_local(double *out, const struct eo_norm_term *terms, uint32_t count,
                               const struct eo_step_memory *step, const double *device_values, cudaStream_t stream)
{
    enum { A_LAUNCH = 320 };
    const uint64_t values = (device_values ? 2 : 1) * EO_STEP_VALUES, written = EO_NORM_VALUES;
    (void)out, (void)terms, (void)step;
    uint32_t done = 0;
    do { /* a later launch adds to the sum of the one before */
        const uint32_t some = count - done < A_LAUNCH ? count - done : A_LAUNCH;
        launch_note(stream, (struct launch){
            .group = "gradient norm", .kernel = "norm_local_kernel", .read = (some + values + 1 + (done > 0)) * sizeof(double),
            .written = written * sizeof(double), .must = (some + values + 1 + written) * sizeof(double), .blocks = 1,
            .threads = THREADS, .round_trips = 2, .barriers = 1, .double_adds = some});
        done += some;
    } while (done < count);
    return cudaSuccess;
}

cudaError_t eo_cuda_norm_sum(const double *gathered, uint32_t rank_count, const struct eo_step_memory *step,
                             cudaStream_t stream)
{
    (void)gathered;
    const struct eo_norm_result *out = step->norm;
    const uint32_t groups = launch_group_count(step);
    const uint64_t read = rank_count * EO_NORM_VALUES * sizeof(double) + sizeof(step->scalars->clip) +
                          sizeof(step->scalars->loss_scale) +
                          sizeof(step->scalars->group_count) + sizeof(out->skipped);
    const uint64_t written = sizeof(out->norm) + sizeof(out->clip_factor) + sizeof(out->gradient_scale) +
                             sizeof(out->values) + sizeof(out->weight) +
                             sizeof(out->skipped) + groups * sizeof(struct eo_group_result);
    const cudaError_t error = launch_note(stream, (struct launch){
        .group = "gradient norm", .kernel = "norm_sum_kernel", .read = read, .written = written, .must = read + written,
        .blocks = 1, .threads = 1 + EO_STEP_VALUES,
        .round_trips = 1 + rank_count, .double_adds = rank_count});
    const uint64_t sums = step->layer_count + step->clip_count;
    if (error != cudaSuccess || sums == 0)
        return error;
    const uint64_t sums_read = rank_count * sums * sizeof(double) + sizeof(out->weight) + sizeof(out->clip_factor) +
                               sizeof(step->scalars->loss_scale) + sizeof(step->scalars->clips_apart) +
                               step->clip_count * sizeof(step->clip_results->norm);
    const uint64_t sums_written = step->layer_count * sizeof(*step->layer_norms) +
                                  step->clip_count * sizeof(*step->clip_results);
    return launch_note(stream, (struct launch){
        .group = "gradient norm", .kernel = "norm_parts_kernel", .read = sums_read, .written = sums_written,
        .must = sums_read + sums_written, .blocks = 1, .threads = 256, .round_trips = 2 + rank_count,
        .double_adds = rank_count});
}

/* Weights (split ones: two halves of 2 bytes) and states are read and written; the gradient is read. In 8 bits: blocks of 256
 * bytes and a scale, a warp each. */
cudaError_t eo_cuda_update_ranges(enum eo_rule rule, const struct eo_update_range *ranges, uint32_t range_count,
                                  const struct eo_step_memory *step, cudaStream_t stream)
{
    static const char *const titles[EO_RULE_COUNT] = {"AdamW", "SGD", "Lion", "AdamW, 8 bits", "Muon", "Muon"};
    const bool is_narrow = rule == EO_RULE_ADAMW8BIT;
    const uint64_t tile = is_narrow ? THREADS / 32 * EO_STATE8_ELEMENTS : TILE;
    const uint64_t directions = rule == EO_RULE_MUON ? 4 : 0;
    uint64_t count = 0, blocks = 0;
    (void)step;
    for (uint32_t i = 0; i < range_count; i++) {
        count += ranges[i].count;
        blocks += launch_div_up(ranges[i].count, tile);
    }
    if (rule == EO_RULE_DIRECTION) /* of gradient and momentum, into memory of its own */
        return launch_note(stream, (struct launch){
            .group = titles[rule], .kernel = "update_kernel", .read = 8 * count, .written = 4 * count, .must = 12 * count,
            .blocks = blocks, .threads = THREADS, .round_trips = 1});
    const uint64_t state = is_narrow ? 2 * count / EO_STATE8_ELEMENTS * sizeof(struct eo_state8)
                                     : (rule == EO_RULE_ADAMW ? 8 : 4) * count;
    return launch_note(stream, (struct launch){
        .group = titles[rule], .kernel = is_narrow ? "state8_kernel" : "update_kernel",
        .read = (8 + directions) * count + state, .written = 4 * count + state, .must = (12 + directions) * count + 2 * state,
        .blocks = blocks, .threads = THREADS, .round_trips = 1});
}

/* The sum of squares is read by every thread, and counts once. */
cudaError_t eo_cuda_combine(float *out, const float *a, float x, const float *b, float y, const double *squares, uint64_t count,
                            cudaStream_t stream)
{
    (void)out, (void)a, (void)x, (void)y;
    return by_elements(stream, "Muon", "combine_kernel", count, (b ? 8 : 4) * count + (squares ? sizeof(*squares) : 0),
                       4 * count);
}

/* Split weights are 4 bytes together too. */
cudaError_t eo_cuda_average(const struct eo_average *average, enum eo_average_mode mode, const struct eo_update_scalars *scalars,
                            const struct eo_norm_result *norm, cudaStream_t stream)
{
    const uint64_t count = average->count, read = mode == EO_AVERAGE_BEGIN ? 4 : 8, written = mode == EO_AVERAGE_SWAP ? 8 : 4;
    (void)scalars, (void)norm;
    return launch_note(stream, (struct launch){
        .group = "average of the weights", .kernel = "average_kernel", .read = read * count, .written = written * count,
        .must = (read + written) * count, .blocks = launch_div_up(count, TILE), .threads = THREADS, .round_trips = 1});
}

enum { OCTETS = 8 * THREADS };

/* Of the runs in float8, or of those in bf16. */
static uint64_t run_elements(const struct eo_float8_run *runs, uint32_t run_count, bool is_float8)
{
    uint64_t count = 0;
    for (uint32_t r = 0; r < run_count; r++)
        count += is_float8 == (runs[r].scale != NULL) ? runs[r].count : 0;
    return count;
}

static uint64_t run_blocks(const struct eo_float8_run *runs, uint32_t run_count)
{
    uint64_t blocks = 0;
    for (uint32_t r = 0; r < run_count; r++)
        blocks += launch_div_up(runs[r].count, OCTETS);
    return blocks;
}

/* A block a part of a run finds its largest weight; a warp a run makes the scale; then the weights are read again. */
cudaError_t eo_cuda_narrow(const struct eo_float8_run *runs, uint32_t run_count, uint32_t *parts, cudaStream_t stream)
{
    const uint64_t narrow = run_elements(runs, run_count, true), wide = run_elements(runs, run_count, false);
    uint64_t scale_bytes = 0, part_count = 1;
    (void)parts;
    for (uint32_t r = 0; r < run_count; r++) {
        scale_bytes += runs[r].scale ? sizeof(float) : 0;
        if (runs[r].scale && launch_div_up(runs[r].count, OCTETS) > part_count)
            part_count = launch_div_up(runs[r].count, OCTETS);
    }
    part_count = part_count < EO_CUDA_FLOAT8_PARTS ? part_count : EO_CUDA_FLOAT8_PARTS;
    const uint64_t part_bytes = run_count * part_count * sizeof(uint32_t);
    launch_note(stream, (struct launch){
        .group = "float8", .kernel = "largest_kernel", .read = 2 * narrow, .written = part_bytes, .must = 2 * narrow,
        .blocks = run_count * part_count, .threads = THREADS, .barriers = 1,
        .round_trips = (double)launch_div_up(narrow, run_count * part_count * OCTETS)});
    launch_note(stream, (struct launch){
        .group = "float8", .kernel = "scale_kernel", .read = part_bytes, .written = scale_bytes, .must = 0,
        .blocks = run_count, .threads = 32, .round_trips = 2});
    return launch_note(stream, (struct launch){
        .group = "float8", .kernel = "narrow_kernel", .read = 2 * narrow + 2 * wide + scale_bytes, .written = narrow + 2 * wide,
        .must = 3 * narrow + 4 * wide, .blocks = run_blocks(runs, run_count), .threads = THREADS, .round_trips = 2});
}

cudaError_t eo_cuda_widen(const struct eo_float8_run *runs, uint32_t run_count, cudaStream_t stream)
{
    const uint64_t narrow = run_elements(runs, run_count, true), wide = run_elements(runs, run_count, false);
    uint64_t scale_bytes = 0;
    for (uint32_t r = 0; r < run_count; r++)
        scale_bytes += runs[r].scale ? sizeof(float) : 0;
    return launch_note(stream, (struct launch){
        .group = "float8", .kernel = "widen_kernel", .read = narrow + 2 * wide + scale_bytes, .written = 2 * narrow + 2 * wide,
        .must = 3 * narrow + 4 * wide, .blocks = run_blocks(runs, run_count), .threads = THREADS, .round_trips = 2});
}

/* Where there are no exponents, a copy. */
cudaError_t eo_cuda_widen_mxfp8(const struct eo_mxfp8_run *runs, uint32_t run_count, cudaStream_t stream)
{
    uint64_t read = 0, written = 0, blocks = 0;
    for (uint32_t r = 0; r < run_count; r++) {
        const uint64_t wide = launch_bytes(runs[r].dtype, runs[r].count);
        read += runs[r].exponents ? runs[r].count + launch_div_up(runs[r].count, EO_MXFP8_BLOCK) : wide;
        written += wide;
        blocks += launch_div_up(runs[r].count, OCTETS);
    }
    return launch_note(stream, (struct launch){
        .group = "float8", .kernel = "widen_mxfp8_kernel", .read = read, .written = written, .must = read + written,
        .blocks = blocks, .threads = THREADS, .round_trips = 2});
}

static cudaError_t sum_units(cudaStream_t stream, const char *kernel, uint64_t bytes, uint32_t in_count, uint64_t units)
{
    enum { BLOCKS_MAX = 1024 };
    const uint64_t blocks = launch_div_up(units, THREADS);
    if (units == 0)
        return cudaSuccess;
    return launch_note(stream, (struct launch){
        .group = "gathers and reductions", .kernel = kernel, .read = in_count * bytes, .written = bytes,
        .must = (in_count + 1) * bytes, .blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX, .threads = THREADS,
        .round_trips = (double)launch_div_up(blocks, BLOCKS_MAX)});
}

/* By 16 bytes, and the rest one by one. */
static cudaError_t rank_sum(cudaStream_t stream, eo_dtype dtype, uint32_t in_count, uint64_t count)
{
    const bool is_bf16 = dtype == EO_DTYPE_BF16;
    const uint64_t unit = is_bf16 ? 8 : 4, rest = count % unit;
    const cudaError_t error = sum_units(stream, is_bf16 ? "sum_bf16_units" : "sum_fp32_units",
                                        launch_bytes(dtype, count - rest), in_count, count / unit);
    if (error != cudaSuccess)
        return error;
    return sum_units(stream, is_bf16 ? "sum_bf16_single" : "sum_fp32_single", launch_bytes(dtype, rest), in_count, rest);
}

cudaError_t eo_cuda_sum_fp32(float *out, const float *const *in, uint32_t in_count, uint64_t count, cudaStream_t stream)
{
    (void)out, (void)in;
    return rank_sum(stream, EO_DTYPE_FP32, in_count, count);
}

cudaError_t eo_cuda_sum_bf16(uint16_t *out, const uint16_t *const *in, uint32_t in_count, uint64_t count,
                             cudaStream_t stream)
{
    (void)out, (void)in;
    return rank_sum(stream, EO_DTYPE_BF16, in_count, count);
}
