/* SPDX-License-Identifier: MIT
 *
 * From the model to tables: layers, positions, updates, and every row of the memory map. Rows lie in the order of these
 * calls (eo_plan_make_tables).
 */
#ifndef EO_RUNTIME_PLAN_TABLES_TABLES_H
#define EO_RUNTIME_PLAN_TABLES_TABLES_H

#include "runtime/plan/internal.h"

/* Its index in *out; `format`: its name. */
EO_NODISCARD eo_status eo_plan_add_row(struct eo_plan *plan, uint32_t *out, eo_category category, eo_space space,
                                       uint64_t bytes, bool always_live, const char *format, ...) EO_PRINTF(7, 8);

/* layers.c */
EO_NODISCARD eo_status eo_plan_make_layers(struct eo_plan *plan, const struct eo_model *model);
void eo_plan_find_edges(struct eo_plan *plan, const struct eo_model *model);
EO_NODISCARD eo_status eo_plan_make_positions(struct eo_plan *plan, const struct eo_model *model);
EO_NODISCARD eo_status eo_plan_make_updates(struct eo_plan *plan);

/* rows.c */
EO_NODISCARD eo_status eo_plan_make_shard_rows(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_make_sum_rows(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_make_matrix_rows(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_make_other_rows(struct eo_plan *plan, const struct eo_model *model);

/* buffer_rows.c */
EO_NODISCARD eo_status eo_plan_make_buffer_rows(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_make_frozen_rows(struct eo_plan *plan);

/* offload_rows.c */
bool eo_plan_is_offloaded(const struct eo_plan *plan, uint32_t layer);
bool eo_plan_offloads_gradient(const struct eo_plan *plan, uint32_t layer);
EO_NODISCARD eo_status eo_plan_make_offload_rows(struct eo_plan *plan);
EO_NODISCARD eo_status eo_plan_make_gradient_slots(struct eo_plan *plan);
void eo_plan_find_saved(struct eo_plan *plan, const struct eo_model *model);
EO_NODISCARD eo_status eo_plan_make_saved_rows(struct eo_plan *plan, const struct eo_model *model);
EO_NODISCARD eo_status eo_plan_make_disk_rows(struct eo_plan *plan, const struct eo_model *model);

#endif
