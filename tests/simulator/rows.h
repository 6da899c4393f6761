/* SPDX-License-Identifier: MIT
 *
 * Tells the simulator of a runtime's rows: what a kernel is given a pointer into is then all that it may touch of the arena.
 */
#ifndef EO_TESTS_SIMULATOR_ROWS_H
#define EO_TESTS_SIMULATOR_ROWS_H

#include <evenodd/runtime.h>

void rows_follow(const eo_runtime *runtime); /* of the static mode; others have none */
void rows_forget(const eo_runtime *runtime); /* before it is destroyed; NULL is taken */

#endif
