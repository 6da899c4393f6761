/* SPDX-License-Identifier: MIT
 *
 * Products, the choice of a level, and the team's edges.
 * Method: all four transpositions, odd sizes and strides, teams; against the plain reference.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include <oneapi/dnnl/dnnl.h>

#include "kernel_fixture.h"
#include "layers/denormals.h"

/* ---- in the way of the product and of new threads ---- */

static dnnl_status_t sgemm_refusal = dnnl_success;
static uint32_t threads_refused_after = UINT32_MAX;
static int thread_refusal = EAGAIN;

dnnl_status_t __real_dnnl_sgemm(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float *, dnnl_dim_t, const float *,
                                dnnl_dim_t, float, float *, dnnl_dim_t);
dnnl_status_t __wrap_dnnl_sgemm(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float *, dnnl_dim_t, const float *,
                                dnnl_dim_t, float, float *, dnnl_dim_t);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

dnnl_status_t __wrap_dnnl_sgemm(char a_form, char b_form, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha, const float *a,
                                dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc)
{
    return sgemm_refusal != dnnl_success ? sgemm_refusal
                                         : __real_dnnl_sgemm(a_form, b_form, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    if (threads_refused_after == 0)
        return thread_refusal;
    threads_refused_after--;
    return __real_pthread_create(thread, attributes, run, arg);
}

static char error_text[1000];

static void keep_team_error(void *user, eo_log_level level, const char *text)
{
    (void)user;
    cr_assert_eq(level, EO_LOG_ERROR);
    snprintf(error_text, sizeof(error_text), "%s", text);
}

static eo_status team_with_log(eo_team **team, uint32_t thread_count)
{
    const eo_log log = {.write = keep_team_error, .level = EO_LOG_ERROR};
    return eo_team_cpu_backend.create(team, eo_team_params(.device = "cpu", .thread_count = thread_count, .log = &log));
}

struct product_case {
    uint64_t m, n, k;
};

static const struct product_case cases[] = {{1, 1, 1},    {1, 33, 17},   {3, 5, 2},     {17, 1, 31},  {31, 257, 3},
                                            {48, 48, 48}, {97, 101, 33}, {257, 64, 96}, {5, 300, 64}, {301, 3, 257}};

static void check_product(const struct product_case *p, bool transpose_a, bool transpose_b, eo_team *team)
{
    const uint64_t a_stride = (transpose_a ? p->m : p->k) + 1;
    const uint64_t b_stride = (transpose_b ? p->k : p->n) + 2;
    const uint64_t c_stride = p->n + 3;
    const uint64_t c_floats = (p->m - 1) * c_stride + p->n;
    const float *a = guarded_random((transpose_a ? p->k : p->m) * a_stride, -1, 1);
    const float *b = guarded_random((transpose_b ? p->n : p->k) * b_stride, -1, 1);
    const float *old = guarded_random(c_floats, -1, 1);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        float *expected = guarded_copy(old, c_floats); /* and what lies between the rows stays */
        float *c = guarded_copy(old, c_floats);
        for (uint64_t row = 0; accumulate == 0 && row < p->m; row++)
            memset(c + row * c_stride, 0xff, p->n * sizeof(float)); /* NaN: old content must not be read */
        struct eo_multiply product = {.types = FP32, .c = expected, .c_stride = c_stride, .a = {a, a_stride, transpose_a},
                                      .b = {b, b_stride, transpose_b}, .m = p->m, .n = p->n, .k = p->k,
                                      .accumulate = accumulate};
        cr_assert_eq(eo_kernels_reference_ops.multiply(NULL, &product), EO_OK);
        product.c = c;
        cr_assert_eq(eo_kernels_cpu_ops.multiply(team, &product), EO_OK);
        expect_close("product", c, expected, c_floats, 1e-5, 1e-5);
    }
    guards_free();
}

Test(product, matches_in_all_transpositions_sizes_and_teams)
{
    for (uint32_t threads = 0; threads <= 3; threads++) {
        eo_team *team = NULL;
        if (threads > 0)
            cr_assert_eq(eo_team_create(&team, threads), EO_OK);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            for (int transposed = 0; transposed < 4; transposed++)
                check_product(&cases[i], transposed & 1, transposed & 2, team);
        eo_team_destroy(&team);
    }
}

Test(product, repeats_its_bits_for_one_team)
{
    enum { M = 200, N = 130, K = 77 };
    const float *a = guarded_random(M * K, -1, 1);
    const float *b = guarded_random(K * N, -1, 1);
    float *first = guarded(M * N);
    float *again = guarded(M * N);
    eo_team *team = NULL;
    cr_assert_eq(eo_team_create(&team, 2), EO_OK);
    struct eo_multiply product = {
        .types = FP32, .c = first, .c_stride = N, .a = {a, K, false}, .b = {b, N, false}, .m = M, .n = N, .k = K};
    cr_assert_eq(eo_kernels_cpu_ops.multiply(team, &product), EO_OK);
    product.c = again;
    for (int run = 0; run < 5; run++) {
        cr_assert_eq(eo_kernels_cpu_ops.multiply(team, &product), EO_OK);
        cr_assert_eq(memcmp(first, again, M * N * sizeof(float)), 0);
    }
    eo_team_destroy(&team);
    guards_free();
}

/* ---- signals ---- */

static char *stack_begin, *stack_end;
static volatile sig_atomic_t handled, handled_elsewhere;

static void look_where_it_runs(int number)
{
    char here = (char)number;
    handled++;
    handled_elsewhere += &here < stack_begin || &here >= stack_end;
}

static void find_stack(void)
{
    pthread_attr_t attributes;
    void *begin;
    size_t bytes;
    cr_assert_eq(pthread_getattr_np(pthread_self(), &attributes), 0);
    cr_assert_eq(pthread_attr_getstack(&attributes, &begin, &bytes), 0);
    pthread_attr_destroy(&attributes);
    stack_begin = begin;
    stack_end = stack_begin + bytes;
}

/* oneDNN's kernels move the stack pointer into the heap: a handler would run, and write, there. */
Test(product, a_handler_of_signals_runs_on_the_stack)
{
    enum { M = 256, N = 64, K = 256, HANDLED = 100 };
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
    const float *a = guarded_random(M * K, -1, 1), *b = guarded_random(K * N, -1, 1);
    float *c = guarded(M * N);
    const struct eo_multiply product = {
        .types = FP32, .c = c, .c_stride = N, .a = {a, K, false}, .b = {b, N, false}, .m = M, .n = N, .k = K};
    find_stack();
    cr_assert_eq(eo_kernels_cpu_ops.multiply(NULL, &product), EO_OK); /* makes the kernel, which takes longer */
    cr_assert_neq(signal(SIGALRM, look_where_it_runs), SIG_ERR);
    cr_assert_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
    while (handled < HANDLED)
        cr_assert_eq(eo_kernels_cpu_ops.multiply(NULL, &product), EO_OK);
    cr_assert_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
    cr_assert_eq(handled_elsewhere, 0, "%d of %d", (int)handled_elsewhere, (int)handled);
    guards_free();
}

/* A remedy stands only where one is known; the log names the product and the layer. */
Test(product, a_refusal_of_the_library_comes_back_with_its_cause)
{
    static const struct {
        dnnl_status_t refusal;
        eo_status status;
        const char *text;
    } rows[] = {{dnnl_out_of_memory, EO_ERR_NO_MEMORY,
                 "oneDNN's product of 100 x 3 x 2 failed: out_of_memory; free memory of the host"},
                {dnnl_unimplemented, EO_ERR_DEVICE, "oneDNN's product of 100 x 3 x 2 failed: unimplemented; if libtorch is linked, "
                                                    "name evenodd_layers before it"},
                {dnnl_runtime_error, EO_ERR_DEVICE, "oneDNN's product of 100 x 3 x 2 failed: runtime_error"}};
    static float a[200], b[6], c[300];
    const struct eo_multiply product = {
        .types = FP32, .c = c, .c_stride = 3, .a = {a, 2, false}, .b = {b, 3, false}, .m = 100, .n = 3, .k = 2};
    eo_team *team = NULL;
    cr_assert_eq(team_with_log(&team, 2), EO_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sgemm_refusal = rows[i].refusal;
        team->layer = NULL;
        cr_assert_eq(eo_kernels_cpu_ops.multiply(team, &product), rows[i].status);
        cr_assert_str_eq(error_text, rows[i].text);
        team->layer = "block 3", team->pass = "forward", team->rank = 7;
        cr_assert_eq(eo_kernels_cpu_ops.multiply(team, &product), rows[i].status);
        cr_assert(strncmp(error_text, "rank 7, block 3, forward: oneDNN's", 34) == 0, "%s", error_text);
        cr_assert_eq(eo_kernels_cpu_ops.multiply(NULL, &product), rows[i].status);
    }
    sgemm_refusal = dnnl_success;
    cr_assert_eq(eo_kernels_cpu_ops.multiply(team, &product), EO_OK);
    eo_team_destroy(&team);
}

Test(product, measure_gives_a_speed_and_refuses_empty_products)
{
    eo_product product = {.name = "p", .m = 64, .n = 48, .k = 32, .transpose_b = true};
    double speed = 0;
    cr_assert_eq(eo_product_measure(NULL, &product, &speed), EO_OK);
    cr_assert(isfinite(speed) && speed > 1e6);
    product.k = 0;
    cr_assert_eq(eo_product_measure(NULL, &product, &speed), EO_ERR_INVALID);
    product.k = UINT64_MAX / 2; /* must not wrap around to something small */
    cr_assert_eq(eo_product_measure(NULL, &product, &speed), EO_ERR_NO_MEMORY);
}

Test(levels, an_unknown_one_is_refused_and_nothing_changes)
{
    char before[16];
    snprintf(before, sizeof(before), "%s", eo_kernels_name());
    cr_assert_eq(eo_kernels_select("avx1024"), EO_ERR_INVALID);
    cr_assert_eq(eo_kernels_select(NULL), EO_ERR_INVALID);
    cr_assert_str_eq(eo_kernels_name(), before);
    cr_assert_eq(eo_kernels_select("plain"), EO_OK);
    cr_assert_str_eq(eo_kernels_name(), "plain");
}

/* ---- team ---- */

static void count_task(void *arg, uint32_t index)
{
    _Atomic uint32_t *counts = arg;
    counts[index]++;
}

Test(team, every_index_runs_once_whatever_the_counts)
{
    static const uint32_t counts[] = {0, 1, 2, 3, 100, 1000};
    for (uint32_t threads = 1; threads <= 4; threads++) {
        eo_team *team = NULL;
        cr_assert_eq(eo_team_create(&team, threads), EO_OK);
        cr_assert_eq(eo_team_thread_count(team), threads);
        const eo_parallel parallel = eo_team_parallel(team);
        cr_assert_eq(parallel.thread_count, threads);
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            static _Atomic uint32_t done[1000];
            memset((void *)done, 0, sizeof(done));
            parallel.run(parallel.team, counts[i], count_task, (void *)done);
            for (uint32_t index = 0; index < 1000; index++)
                cr_assert_eq(done[index], index < counts[i] ? 1u : 0u);
        }
        eo_team_destroy(&team);
        cr_assert_null(team);
    }
}

Test(team, sizes_that_make_no_sense_are_refused)
{
    eo_team *team = (eo_team *)&team;
    cr_assert_eq(eo_team_create(&team, 0), EO_ERR_INVALID);
    cr_assert_null(team);
    cr_assert_eq(eo_team_create(&team, UINT32_MAX), EO_ERR_INVALID);
    cr_assert_null(team);
    eo_team_destroy(&team); /* NULL is taken */
    eo_team_destroy(NULL);
}

Test(team, more_threads_than_there_may_be_are_refused_with_the_remedy)
{
    eo_team *team = NULL;
    threads_refused_after = 2;
    cr_assert_eq(team_with_log(&team, 5), EO_ERR_NO_MEMORY);
    cr_assert_null(team);
    cr_assert(
        strstr(error_text, "team: thread 4 of 5 could not be started: ") && strstr(error_text, strerror(EAGAIN)) &&
            strstr(error_text, "; lower thread_count, or raise the limit on processes (ulimit -u; in a container pids.max"),
        "%s", error_text);
    thread_refusal = EPERM;
    cr_assert_eq(team_with_log(&team, 5), EO_ERR_NO_MEMORY);
    cr_assert(strstr(error_text, "; a filter of system calls refuses clone3"), "fewer threads do not help: %s", error_text);
    threads_refused_after = UINT32_MAX;
    cr_assert_eq(team_with_log(&team, EO_TEAM_THREADS_MAX + 1), EO_ERR_INVALID);
    cr_assert_str_eq(error_text, "team: 1025 threads; at most 1024 are possible; lower thread_count");
    cr_assert_eq(team_with_log(&team, 1), EO_OK);
    eo_team_destroy(&team);
}

#if EO_FLOAT_MODE_FLUSH
static void denormal_task(void *arg, uint32_t index)
{
    volatile float tiny = 1e-38f;
    ((float *)arg)[index] = tiny * 0.01f;
    struct timespec nap = {.tv_nsec = 200000}; /* so that the workers get their share */
    nanosleep(&nap, NULL);
}

/* Who runs a task must not show: workers flush denormals exactly while the caller does. */
Test(team, workers_compute_under_the_callers_float_control)
{
    float results[64];
    eo_team *team = NULL;
    cr_assert_eq(eo_team_create(&team, 3), EO_OK);
    for (int flush = 0; flush < 4; flush++) {
        const uint64_t saved = flush % 2 ? eo_flush_denormals_begin() : 0;
        eo_team_run(team, 64, denormal_task, results);
        if (flush % 2)
            eo_flush_denormals_end(saved);
        for (int i = 0; i < 64; i++)
            cr_assert_eq(results[i] == 0.0f, flush % 2 == 1, "run %d, task %d", flush, i);
    }
    eo_team_destroy(&team);
}
#endif
