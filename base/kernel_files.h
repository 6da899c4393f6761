/* SPDX-License-Identifier: MIT
 *
 * Files of /proc and /sys, which the kernel writes when they are read.
 */
#ifndef EO_BASE_KERNEL_FILES_H
#define EO_BASE_KERNEL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As much of it as fits, and a 0 behind; false: there is none, or nothing in it. */
bool eo_kernel_text(const char *path, char *text, size_t bytes);
/* The number behind `key` at the start of a line of the file; "" is the start of the file. False for "max" and what is not
 * there. */
bool eo_kernel_number(const char *folder, const char *name, const char *key, uint64_t *out);

#endif
