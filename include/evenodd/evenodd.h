/* SPDX-License-Identifier: MIT
 *
 * evenodd: training of models sharded over many devices, with every byte placed before the first step.
 *
 *     eo_model    layers, parameters, order of execution, buffers       evenodd/model.h
 *     eo_plan     memory map, schedule, proof                           evenodd/plan.h
 *     eo_world    the ranks                                             evenodd/world.h, world_mpi.h, world_nccl.h
 *     eo_runtime  steps                                                 evenodd/runtime.h
 *     eo_saver, eo_checkpoint  what a run leaves on the disk            evenodd/checkpoint.h
 *     eo_gpu_profile  what GPUs ran                                     evenodd/gpu_profile.h
 *
 * Handles are opaque. Parameter structs are read during the call; a zero stands for the value in brackets (where a zero is
 * a value too, the struct gives a way to say so: eo_step_params.exact, EO_NO_STATE). Every call takes NULL: what returns a
 * status refuses it, getters answer 0, "" or nothing. Functions that can fail return eo_status, `< 0` is failure, and a
 * failed call changes nothing. The library never prints, exits or reads the environment.
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
#include <evenodd/runtime.h>
#include <evenodd/status.h>
#include <evenodd/world.h>
#include <evenodd/world_mpi.h>
#include <evenodd/world_nccl.h>

#ifndef __cplusplus
/* Parameters in place: eo_plan_create(&plan, model, eo_plan_params(.rank_count = 8)). C++ assigns the fields. */
#define eo_model_params(...) (&(const eo_model_params){__VA_ARGS__})
#define eo_layer_params(...) (&(const eo_layer_params){__VA_ARGS__})
#define eo_parameter_params(...) (&(const eo_parameter_params){__VA_ARGS__})
#define eo_position_params(...) (&(const eo_position_params){__VA_ARGS__})
#define eo_buffer_params(...) (&(const eo_buffer_params){__VA_ARGS__})
#define eo_plan_params(...) (&(const eo_plan_params){__VA_ARGS__})
#define eo_world_params(...) (&(const eo_world_params){__VA_ARGS__})
#define eo_flight_recorder_params(...) (&(const eo_flight_recorder_params){__VA_ARGS__})
#define eo_rendezvous_params(...) (&(const eo_rendezvous_params){__VA_ARGS__})
#define eo_world_join_params(...) (&(const eo_world_join_params){__VA_ARGS__})
#define eo_world_mpi_params(...) (&(const eo_world_mpi_params){__VA_ARGS__})
#define eo_world_nccl_params(...) (&(const eo_world_nccl_params){__VA_ARGS__})
#define eo_gpu_profile_params(...) (&(const eo_gpu_profile_params){__VA_ARGS__})
#define eo_runtime_params(...) (&(const eo_runtime_params){__VA_ARGS__})
#define eo_saver_params(...) (&(const eo_saver_params){__VA_ARGS__})
#define eo_step_params(...) (&(const eo_step_params){__VA_ARGS__})
#endif

#endif
