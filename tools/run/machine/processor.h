/* SPDX-License-Identifier: MIT
 *
 * The instruction set of the kernels on CPUs, the same on all ranks: of those that every rank has, the fastest in bf16,
 * measured. Unlike hosts in one job therefore compute alike.
 */
#ifndef EO_TOOLS_RUN_MACHINE_PROCESSOR_H
#define EO_TOOLS_RUN_MACHINE_PROCESSOR_H

#include "tools/run/ranks/world.h"

/*
 * Selects it (eo_kernels_select), before any kernel runs; nothing for a GPU. --instruction-set leaves one choice, and
 * DNNL_MAX_CPU_ISA, oneDNN's variable, bounds it. `world` is NULL where all ranks are threads of this process; else
 * collective. `tells`: print the choice. EO_ERR_INVALID if the ranks have none in common.
 */
EO_NODISCARD eo_status tool_processor_choose(struct tool_job_world *world, const struct tool_options *options, bool tells,
                                             struct tool_problem *problem);

#endif
