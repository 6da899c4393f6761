/* SPDX-License-Identifier: MIT */
#ifndef EO_BASE_CLOCK_H
#define EO_BASE_CLOCK_H

#include <stdint.h>

uint64_t eo_now_ns(void); /* monotonic */
void eo_pause(void);      /* 20 us, between two looks at a device */

#endif
