/* SPDX-License-Identifier: MIT
 *
 * Before hwloc.h, in place of linking the library: the functions of it that we call, and those that functions inside hwloc.h
 * call, get names of our own, behind which hwloc_import.c has the loaded ones.
 */
#ifndef EO_STREAMS_CPU_HWLOC_NAMES_H
#define EO_STREAMS_CPU_HWLOC_NAMES_H

#include <evenodd/status.h>
#include <stddef.h>

#define hwloc_bitmap_alloc                 eo_hwloc_bitmap_alloc
#define hwloc_bitmap_and                   eo_hwloc_bitmap_and
#define hwloc_bitmap_free                  eo_hwloc_bitmap_free
#define hwloc_bitmap_iszero                eo_hwloc_bitmap_iszero
#define hwloc_bitmap_list_snprintf         eo_hwloc_bitmap_list_snprintf
#define hwloc_bitmap_or                    eo_hwloc_bitmap_or
#define hwloc_cpukinds_get_info            eo_hwloc_cpukinds_get_info
#define hwloc_cpukinds_get_nr              eo_hwloc_cpukinds_get_nr
#define hwloc_get_cpubind                  eo_hwloc_get_cpubind
#define hwloc_get_nbobjs_by_depth          eo_hwloc_get_nbobjs_by_depth
#define hwloc_get_obj_by_depth             eo_hwloc_get_obj_by_depth
#define hwloc_get_type_depth               eo_hwloc_get_type_depth
#define hwloc_set_area_membind             eo_hwloc_set_area_membind
#define hwloc_set_cpubind                  eo_hwloc_set_cpubind
#define hwloc_topology_destroy             eo_hwloc_topology_destroy
#define hwloc_topology_init                eo_hwloc_topology_init
#define hwloc_topology_load                eo_hwloc_topology_load
#define hwloc_topology_restrict            eo_hwloc_topology_restrict
#define hwloc_topology_set_io_types_filter eo_hwloc_topology_set_io_types_filter

/* From any thread, before the first call. EO_ERR_UNSUPPORTED: it cannot be loaded; `text` says why. */
eo_status eo_hwloc_load(char *text, size_t text_bytes);

#endif
