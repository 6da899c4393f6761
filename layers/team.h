/* SPDX-License-Identifier: MIT
 *
 * A team computes a rank's kernels (evenodd/layers.h creates and destroys it): threads of the CPU, or a device with its
 * stream and libraries' handles. A backend stands in the list of backends.c and gives its kernel tables (kernel_ops.h);
 * its teams begin with a struct eo_team.
 *
 * On the CPU: eo_team_run hands out the indices 0 ... count-1 one by one to the free threads, the calling one included,
 * and returns when all are done. It allocates nothing. Workers spin for a moment after a run, then sleep. They compute
 * under the caller's floating-point control word (flushing of denormals, rounding), so a task has the same result on any
 * thread. A team belongs to one calling thread at a time, and a task must not call eo_team_run.
 */
#ifndef EO_LAYERS_TEAM_H
#define EO_LAYERS_TEAM_H

#include <sys/types.h>

#include <evenodd/layers.h>

struct eo_kernel_ops;
struct eo_team_backend;

struct eo_team {
    const struct eo_team_backend *backend;
    /* Where the trainer is, for the text of a failed kernel; layer NULL: in no pass. The names live as long as the model. */
    const char *layer, *pass;
    uint32_t rank;
    pid_t owner; /* the process with its threads */
};

struct eo_team_backend {
    const char *device;
    const struct eo_kernel_ops *const *kernels; /* in order of preference, then NULL */
    eo_status (*load)(const eo_log *log); /* the libraries without which there is no team; NULL: none */
    /* params are filled in. EO_ERR_UNSUPPORTED: no such device here (logged, with the remedy). */
    eo_status (*create)(eo_team **out, const eo_team_params *params);
    void (*destroy)(eo_team *team); /* of a half-built one too */
    /* Device memory that the team holds outside the plan: handles, workspaces. */
    uint64_t (*memory_bytes)(const eo_team *team);
    eo_status (*measure)(eo_team *team, const eo_product *product, double *flops_per_s);
};

extern const struct eo_team_backend eo_team_cpu_backend;
extern const struct eo_team_backend eo_team_cuda_backend; /* layers/cuda/team.c; in a build without CUDA planned.c */

/* NULL: unknown; *reason then says why, and the remedy. A NULL name is "cpu". */
const struct eo_team_backend *eo_team_backend_find(const char *device, const char **reason);

/* The first table of the backend that takes these element types; NULL: none does. */
const struct eo_kernel_ops *eo_team_backend_kernels(const struct eo_team_backend *backend, eo_dtype compute,
                                                    eo_dtype gradient);

/* Teams of the CPU only. A NULL team is the calling thread alone, and silent. */
void eo_team_run(eo_team *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
uint32_t eo_team_thread_count(const eo_team *team); /* at least 1; of a device: 1 */
void eo_team_tell(const eo_team *team, const char *what); /* logs a failed call, with layer and pass */

/* NULL is a team of the CPU. */
const struct eo_team_backend *eo_team_backend_of(const eo_team *team);

#endif
