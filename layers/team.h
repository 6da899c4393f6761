/* SPDX-License-Identifier: MIT
 *
 * The threads that share one rank's work (created and destroyed by the functions of evenodd/layers.h).
 *
 * eo_team_run hands out the indices 0 ... count-1 one by one to whoever is free, the calling thread included, and
 * returns when all are done. It allocates nothing. Workers spin for a moment after a run, then sleep. They compute
 * under the caller's floating-point control word (flushing of denormals, rounding), so who runs a task never shows in
 * its result. A team belongs to one calling thread at a time, and a task must not call eo_team_run.
 */
#ifndef EO_LAYERS_TEAM_H
#define EO_LAYERS_TEAM_H

#include <evenodd/layers.h>

/* A NULL team is the calling thread alone. */
void eo_team_run(eo_team *team, uint32_t count, void (*task)(void *arg, uint32_t index), void *arg);
uint32_t eo_team_thread_count(const eo_team *team); /* at least 1 */

#endif
