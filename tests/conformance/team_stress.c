/* SPDX-License-Identifier: MIT
 *
 * The thread team under load, as a plain program so that it runs under ThreadSanitizer.
 * Method: plain (not atomic) memory that only the team's own ordering protects: each run reads what other threads
 * wrote in the run before. Runs follow each other at once and after naps that send the workers to sleep; two ranks
 * have a team each; kernels run on teams.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "layers/kernel_ops.h"
#include "tests/tap/tap.h"
#include "tests/tap/threads.h"

enum { CELLS = 64, RUNS = 20000, NAPS = 200 };

struct cells {
    uint64_t now[CELLS], next[CELLS];
    bool turn;
};

/* Each cell takes its neighbour's value of the last run, plus one: another thread's write. */
static void cell_task(void *arg, uint32_t index)
{
    struct cells *cells = arg;
    const uint64_t *from = cells->turn ? cells->next : cells->now;
    uint64_t *to = cells->turn ? cells->now : cells->next;
    to[index] = from[(index + 1) % CELLS] + 1;
}

static bool run_cells(uint32_t thread_count, int run_count, bool nap)
{
    eo_team *team = NULL;
    if (eo_team_create(&team, thread_count) < 0)
        return false;
    struct cells cells = {{0}, {0}, false};
    for (int run = 0; run < run_count; run++) {
        eo_team_run(team, CELLS, cell_task, &cells);
        cells.turn = !cells.turn;
        const struct timespec pause = {.tv_nsec = 300000};
        if (nap)
            nanosleep(&pause, NULL);
    }
    eo_team_destroy(&team);
    const uint64_t *last = cells.turn ? cells.next : cells.now;
    for (int i = 0; i < CELLS; i++)
        if (last[i] != (uint64_t)run_count)
            return false;
    return team == NULL;
}

static void *rank_main(void *arg)
{
    *(bool *)arg = run_cells(2, RUNS / 2, false) && run_cells(3, NAPS / 2, true);
    return NULL;
}

static bool run_two_ranks(void)
{
    bool passed[2] = {false, false};
    run_as_threads(rank_main, passed, 2, sizeof(passed[0]));
    return passed[0] && passed[1];
}

static bool run_short_lives(void)
{
    for (int life = 0; life < 100; life++) {
        if (!run_cells(1 + (uint32_t)life % 4, life % 3, false))
            return false;
    }
    return true;
}

/* Norm and attention write and read shared scratch: the same bits with and without a team. */
static bool run_kernels(void)
{
    enum { ROWS = 96, WIDTH = 96 };
    static float in[3 * ROWS * WIDTH], heads[ROWS * WIDTH], out[2][ROWS * WIDTH], gradient[2][2 * WIDTH], mean[ROWS], rstd[ROWS];
    static float weight[WIDTH], log_sum_exp[ROWS * 3];
    for (int i = 0; i < 3 * ROWS * WIDTH; i++)
        in[i] = (float)(i * 37 % 101) * 0.02f - 1;
    for (int i = 0; i < WIDTH; i++)
        weight[i] = 1 + (float)i * 0.01f;
    const struct eo_attention_shape shape = {2, ROWS / 2, 3, 3, WIDTH / 3, 3 * WIDTH, 3 * WIDTH, WIDTH, false};
    const struct eo_kernel_ops *ops = &eo_kernels_cpu_ops;
    const struct eo_types fp32 = {EO_DTYPE_FP32, EO_DTYPE_FP32};
    void *scratch = malloc(ops->attention_scratch_bytes(fp32, &shape, 3) + ops->norm_scratch_bytes(ROWS, WIDTH));
    eo_team *team = NULL;
    if (scratch == NULL || eo_team_create(&team, 3) < 0)
        abort();
    bool same = true;
    for (int run = 0; run < 20; run++) {
        for (int with = 0; with < 2; with++) {
            eo_team *used = with ? team : NULL;
            ops->attention_forward(used, &(struct eo_attention){
                .types = fp32, .shape = shape, .q = in, .k = in + WIDTH, .v = in + 2 * WIDTH, .out = heads,
                .log_sum_exp = log_sum_exp, .scratch = scratch});
            ops->norm_forward(used, &(struct eo_norm){
                .types = fp32, .centered = true, .out = out[with], .mean = mean, .rstd = rstd, .residual = heads,
                .weight = weight, .bias = weight, .eps = 1e-5f, .rows = ROWS, .width = WIDTH});
            ops->norm_backward(used, &(struct eo_norm_gradient){
                .types = fp32, .centered = true, .in_gradient = out[with], .out_gradient = out[with], .in = in,
                .weight = weight, .mean = mean, .rstd = rstd, .weight_gradient = gradient[with],
                .bias_gradient = gradient[with] + WIDTH, .rows = ROWS, .width = WIDTH, .scratch = scratch});
        }
        same = same && memcmp(out[0], out[1], sizeof(out[0])) == 0 &&
               memcmp(gradient[0], gradient[1], sizeof(gradient[0])) == 0;
    }
    eo_team_destroy(&team);
    free(scratch);
    return same;
}

int main(void)
{
    tap(run_cells(1, RUNS, false), "a team of one is the calling thread");
    tap(run_cells(2, RUNS, false), "two threads see each other's writes, run after run");
    tap(run_cells(4, RUNS / 4, false), "more threads than cores do too");
    tap(run_cells(3, NAPS, true), "workers that fell asleep wake up");
    tap(run_two_ranks(), "two ranks with a team each do not disturb each other");
    tap(run_short_lives(), "teams end at once, whether they ran or not");
    tap(run_kernels(), "kernels give the same bits with and without a team");
    return tap_end();
}
