/* SPDX-License-Identifier: MIT
 *
 * When a second signal is the first one again: `timeout` sends it twice, and who ends all processes of a job (systemd, scancel)
 * reaches a rank directly, and again by its launcher.
 */
#ifndef EO_TOOLS_SHARED_SAME_SIGNAL_H
#define EO_TOOLS_SHARED_SAME_SIGNAL_H

enum { TOOL_SAME_SIGNAL_NS = 500000000 }; /* from the first one on */

#endif
