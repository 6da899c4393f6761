/* SPDX-License-Identifier: MIT
 *
 * The functions named in hwloc_names.h: each passes its call on to the loaded library.
 */
#include "streams/cpu/hwloc_names.h"

#include <hwloc.h>

#include "base/library.h"

/* Since 2.4, so a loaded library may lack them. What they give then; type, name, parameters and arguments as below. */
#if HWLOC_API_VERSION >= 0x00020400
#define KIND_FUNCTIONS(X)                                                                                             \
    X(-1, int, hwloc_cpukinds_get_nr, (hwloc_topology_t topology, unsigned long flags), (topology, flags))            \
    X(-1, int, hwloc_cpukinds_get_info,                                                                               \
      (hwloc_topology_t topology, unsigned kind, hwloc_bitmap_t set, int *efficiency, unsigned *count,                \
       struct hwloc_info_s **infos, unsigned long flags),                                                             \
      (topology, kind, set, efficiency, count, infos, flags))
#else
#define KIND_FUNCTIONS(X)
#endif

/* `return` or nothing, type, name, parameters, arguments. */
#define FUNCTIONS(X)                                                                                                  \
    X(return, hwloc_bitmap_t, hwloc_bitmap_alloc, (void), ())                                                         \
    X(return, int, hwloc_bitmap_and, (hwloc_bitmap_t to, hwloc_const_bitmap_t a, hwloc_const_bitmap_t b), (to, a, b)) \
    X(, void, hwloc_bitmap_free, (hwloc_bitmap_t bitmap), (bitmap))                                                   \
    X(return, int, hwloc_bitmap_iszero, (hwloc_const_bitmap_t bitmap), (bitmap))                                      \
    X(return, int, hwloc_bitmap_list_snprintf, (char *text, size_t bytes, hwloc_const_bitmap_t bitmap),               \
      (text, bytes, bitmap))                                                                                          \
    X(return, int, hwloc_bitmap_or, (hwloc_bitmap_t to, hwloc_const_bitmap_t a, hwloc_const_bitmap_t b), (to, a, b))  \
    X(return, int, hwloc_get_cpubind, (hwloc_topology_t topology, hwloc_cpuset_t set, int flags),                     \
      (topology, set, flags))                                                                                         \
    X(return, unsigned, hwloc_get_nbobjs_by_depth, (hwloc_topology_t topology, int depth), (topology, depth))         \
    X(return, hwloc_obj_t, hwloc_get_obj_by_depth, (hwloc_topology_t topology, int depth, unsigned index),            \
      (topology, depth, index))                                                                                       \
    X(return, int, hwloc_get_type_depth, (hwloc_topology_t topology, hwloc_obj_type_t type), (topology, type))        \
    X(return, int, hwloc_set_area_membind,                                                                            \
      (hwloc_topology_t topology, const void *memory, size_t bytes, hwloc_const_bitmap_t set,                         \
       hwloc_membind_policy_t policy, int flags),                                                                     \
      (topology, memory, bytes, set, policy, flags))                                                                  \
    X(return, int, hwloc_set_cpubind, (hwloc_topology_t topology, hwloc_const_cpuset_t set, int flags),               \
      (topology, set, flags))                                                                                         \
    X(, void, hwloc_topology_destroy, (hwloc_topology_t topology), (topology))                                        \
    X(return, int, hwloc_topology_init, (hwloc_topology_t * topology), (topology))                                    \
    X(return, int, hwloc_topology_load, (hwloc_topology_t topology), (topology))                                      \
    X(return, int, hwloc_topology_restrict, (hwloc_topology_t topology, hwloc_const_bitmap_t set, unsigned long flags), \
      (topology, set, flags))                                                                                         \
    X(return, int, hwloc_topology_set_io_types_filter, (hwloc_topology_t topology, enum hwloc_type_filter_e filter),  \
      (topology, filter))

static struct {
#define DECLARE(give, type, name, parameters, arguments) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
    KIND_FUNCTIONS(DECLARE) /* last: optional */
#undef DECLARE
} library_functions;

eo_status eo_hwloc_load(char *text, size_t text_bytes)
{
    static const char *const names[] = {
#define NAME(give, type, name, parameters, arguments) #name,
        FUNCTIONS(NAME)
        KIND_FUNCTIONS(NAME)
#undef NAME
    };
#define ONE_MORE(give, type, name, parameters, arguments) +1
    static struct eo_library library = {
        .title = "hwloc",
        .file = "libhwloc.so.15", /* of all versions 2, as the build has seen in its header */
        .remedy = "Install it for threads near their memory",
        .functions = names,
        .function_count = sizeof(names) / sizeof(names[0]),
        .optional_count = 0 KIND_FUNCTIONS(ONE_MORE),
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
#undef ONE_MORE
    return eo_library_load(&library, &library_functions, text, text_bytes) ? EO_OK : EO_ERR_UNSUPPORTED;
}

#define PASS_ON(give, type, name, parameters, arguments)                                                              \
    type name parameters                                                                                              \
    {                                                                                                                 \
        give library_functions.name arguments;                                                                        \
    }
FUNCTIONS(PASS_ON)

#define PASS_ON_IF_THERE(missing, type, name, parameters, arguments)                                                  \
    type name parameters                                                                                              \
    {                                                                                                                 \
        return library_functions.name ? library_functions.name arguments : (missing);                                 \
    }
KIND_FUNCTIONS(PASS_ON_IF_THERE)
