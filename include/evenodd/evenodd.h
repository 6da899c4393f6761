/* SPDX-License-Identifier: MIT
 *
 * evenodd: training of models sharded over many devices, with every byte placed before the first step.
 *
 *     eo_model    layers, parameters, order of execution, buffers       evenodd/model.h
 *     eo_plan     memory map, schedule, proof                           evenodd/plan.h
 *     eo_world    the ranks                                             evenodd/world.h, world_mpi.h, world_nccl.h
 *     eo_rendezvous  how ranks that are processes meet                  evenodd/cluster.h
 *     eo_runtime  steps                                                 evenodd/runtime.h
 *     eo_saver, eo_checkpoint  what a run leaves on the disk            evenodd/checkpoint.h
 *     eo_gpu_profile  what GPUs ran                                     evenodd/gpu_profile.h
 *     eo_random_...  numbers by their place, for dropout                evenodd/random.h
 *
 * Handles are opaque. Parameter structs are read during the call; a zero stands for the value in brackets (where a zero is
 * a value too, the struct gives a way to say so: eo_step_params.exact, EO_NO_STATE). Every call takes NULL: what returns a
 * status refuses it, getters answer 0, "" or nothing. Functions that can fail return eo_status, `< 0` is failure, and a call
 * that refuses its arguments (EO_ERR_INVALID) changes nothing, but for what eo_runtime_create says of its world. The library
 * never prints, exits or reads the environment. Callbacks return: no exception and no longjmp leaves one.
 */
#ifndef EVENODD_EVENODD_H
#define EVENODD_EVENODD_H

#include <evenodd/checkpoint.h>
#include <evenodd/cluster.h>
#include <evenodd/common.h>
#include <evenodd/gpu_profile.h>
#include <evenodd/flight_recorder.h>
#include <evenodd/log.h>
#include <evenodd/model.h>
#include <evenodd/plan.h>
#include <evenodd/random.h>
#include <evenodd/runtime.h>
#include <evenodd/status.h>
#include <evenodd/world.h>
#include <evenodd/world_mpi.h>
#include <evenodd/world_nccl.h>

#endif
