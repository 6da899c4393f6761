/* SPDX-License-Identifier: MIT */
#include "base/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hashing.h"
#include "base/kernel_files.h"
#include "base/memory_groups.h"

static void read_space(const char *path, uint64_t out[2])
{
    struct stat space;
    if (stat(path, &space) != 0)
        return;
    out[0] = space.st_dev;
    out[1] = space.st_ino;
}

void eo_machine_read(struct eo_machine *out)
{
    memset(out, 0, sizeof(*out)); /* it travels, gaps included */
    read_space("/proc/self/ns/pid", out->pid_space);
    read_space("/proc/self/ns/net", out->net_space);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file)
        return;
    if (!fgets(out->boot, sizeof(out->boot), file))
        out->boot[0] = '\0';
    fclose(file);
}

bool eo_machine_same(const struct eo_machine *a, const struct eo_machine *b)
{
    return a->boot[0] && strncmp(a->boot, b->boot, sizeof(a->boot)) == 0;
}

bool eo_machine_visible(const struct eo_machine *a, const struct eo_machine *b)
{
    return eo_machine_same(a, b) && memcmp(a->pid_space, b->pid_space, sizeof(a->pid_space)) == 0 &&
           memcmp(a->net_space, b->net_space, sizeof(a->net_space)) == 0;
}

uint64_t eo_machine_number(const struct eo_machine *machine)
{
    const uint64_t number = eo_hash64(machine, sizeof(*machine));
    return !machine->boot[0] ? 0 : number ? number : 1;
}

struct tightest {
    uint64_t limit_bytes, id[2];
};

/* Of groups with one limit the outermost: the others take from it. */
static void keep_tightest(void *user, const struct eo_memory_group *group)
{
    struct tightest *tightest = user;
    if (group->limit_bytes <= tightest->limit_bytes)
        *tightest = (struct tightest){group->limit_bytes, {group->id[0], group->id[1]}};
}

uint64_t eo_machine_memory(const char *root)
{
    char folder[256];
    uint64_t kib;
    struct tightest tightest = {.limit_bytes = UINT64_MAX};
    snprintf(folder, sizeof(folder), "%s/proc", root);
    if (eo_kernel_number(folder, "meminfo", "MemTotal:", &kib) && kib > 0)
        tightest.limit_bytes = kib * 1024 - 1; /* a limit above that is none */
    eo_memory_groups(root, keep_tightest, &tightest);
    return eo_hash64(tightest.id, sizeof(tightest.id));
}
