/* SPDX-License-Identifier: MIT
 *
 * Which machine this process is on, and whose processes and sockets it sees there: what ranks compare who want to read
 * each other's memory.
 */
#ifndef EO_BASE_MACHINE_H
#define EO_BASE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

struct eo_machine {
    char boot[40];         /* no two machines have the same, nor one twice; "": it does not say */
    uint64_t pid_space[2]; /* containers have their own numbers of processes, */
    uint64_t net_space[2]; /* and their own Unix sockets without files */
};

void eo_machine_read(struct eo_machine *out);
/* On one machine, whatever containers. */
bool eo_machine_same(const struct eo_machine *a, const struct eo_machine *b);
/* And they see each other's processes and sockets. */
bool eo_machine_visible(const struct eo_machine *a, const struct eo_machine *b);
/* The same for machines that are visible to each other; 0: it cannot be said. */
uint64_t eo_machine_number(const struct eo_machine *machine);

/* A number for the memory that this process takes from: the same for those of a machine whose tightest limit is that of the
 * same control group, or the machine's own size. Limits that a container does not see do not count. `root`: as eo_memory_groups
 * takes it. */
uint64_t eo_machine_memory(const char *root);

#endif
