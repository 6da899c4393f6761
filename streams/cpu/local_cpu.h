/* SPDX-License-Identifier: MIT
 *
 * The local collectives of the CPU device; what ranks share is told in streams/local.h.
 */
#ifndef EO_STREAMS_CPU_LOCAL_CPU_H
#define EO_STREAMS_CPU_LOCAL_CPU_H

#include "streams/collective.h"

extern const struct eo_comm_ops eo_comm_local_ops;

#endif
