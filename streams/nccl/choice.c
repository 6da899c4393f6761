/* SPDX-License-Identifier: MIT */
#include "streams/nccl/choice.h"

#include <stdio.h>
#include <string.h>

#include <nccl.h>

_Static_assert(sizeof(struct eo_nccl_member) <= 128, "EO_GROUP_PEER_BYTES of streams/collective.h");

/* NCCL falls back in silence where it does not like what it gets, so the texts say what was asked for. */
static const struct eo_nccl_mode modes[] = {
    {
        .name = "plain",
        .gather = {NCCL_CTA_POLICY_DEFAULT, EO_NCCL_MEMORY_PLAIN, "kernels"},
        .reduce = {NCCL_CTA_POLICY_DEFAULT, EO_NCCL_MEMORY_PLAIN, "kernels"},
        .aborts = true,
        .captures = true,
    },
    {
        .name = "registered",
        .gather = {NCCL_CTA_POLICY_EFFICIENCY, EO_NCCL_MEMORY_REGISTERED, "kernels, few blocks, registered buffers"},
        .reduce = {NCCL_CTA_POLICY_EFFICIENCY, EO_NCCL_MEMORY_REGISTERED, "kernels, few blocks, registered buffers"},
        .aborts = true,
        .captures = true,
    },
    {
        .name = "zero",
        .gather = {NCCL_CTA_POLICY_ZERO, EO_NCCL_MEMORY_WINDOW, "copy engine on a symmetric window"},
        .reduce = {NCCL_CTA_POLICY_EFFICIENCY, EO_NCCL_MEMORY_REGISTERED, "kernels, few blocks, registered buffers"},
        .version_min = NCCL_VERSION(2, 28, 3),
        .why = "it has no all-gather by copy engine",
        .version_min_two_ranks = NCCL_VERSION(2, 31, 2),
        .why_two_ranks = "its first all-gather by copy engine hangs with 2 ranks (NVIDIA/nccl#2241)",
        .driver_min = 12050,
        .one_node = true,
    },
    {
        .name = "symmetric",
        .gather = {NCCL_CTA_POLICY_DEFAULT, EO_NCCL_MEMORY_WINDOW, "symmetric kernels on a window"},
        .reduce = {NCCL_CTA_POLICY_DEFAULT, EO_NCCL_MEMORY_WINDOW, "symmetric kernels on a window"},
        .version_min = NCCL_VERSION(2, 30, 7),
        .why = "its symmetric kernels may read data before the previous kernel has written it",
        .one_node = true,
        .aborts = true, /* from 2.29.7 on their barrier looks at the flag */
        .captures = true,
    },
};

void eo_nccl_version_text(int version, char *text, size_t text_bytes)
{
    if (version < 10000) /* until 2.8: a digit less */
        snprintf(text, text_bytes, "%d.%d.%d", version / 1000, version / 100 % 10, version % 100);
    else
        snprintf(text, text_bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

eo_status eo_nccl_check_version(int built_version, int run_version, char *text, size_t text_bytes)
{
    char built[32], run[32];
    eo_nccl_version_text(built_version, built, sizeof(built));
    eo_nccl_version_text(run_version, run, sizeof(run));
    const bool is_other = run_version / 10000 != built_version / 10000;
    const bool is_older = run_version / 100 < built_version / 100;
    snprintf(text, text_bytes, "NCCL %s is loaded, evenodd was built with %s%s", run, built,
             is_other   ? ": another major version; load the version of the build, or build again"
             : is_older ? ": an older library lacks parts of this header; load the version of the build or a newer one, or "
                          "build again"
                        : "");
    return is_other || is_older ? EO_ERR_UNSUPPORTED : EO_OK;
}

static const struct eo_nccl_mode *find_mode(const char *name)
{
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(modes[i].name, name) == 0)
            return &modes[i];
    return NULL;
}

eo_status eo_nccl_choose(const struct eo_nccl_mode **out, const char *name, const struct eo_nccl_facts *facts,
                         char *why, size_t why_bytes)
{
    const struct eo_nccl_mode *mode = find_mode(name ? name : "registered");
    char run[32], needed[32];
    *out = NULL;
    if (!mode) {
        snprintf(why, why_bytes, "no mode '%s'; use plain, registered, zero or symmetric", name);
        return EO_ERR_INVALID;
    }
    const bool two_ranks = facts->rank_count == 2 && facts->run_version < mode->version_min_two_ranks;
    eo_nccl_version_text(facts->run_version, run, sizeof(run));
    eo_nccl_version_text(two_ranks ? mode->version_min_two_ranks : mode->version_min, needed, sizeof(needed));
    if (two_ranks || facts->run_version < mode->version_min) {
        snprintf(why, why_bytes, "mode '%s' is refused with NCCL %s%s: %s; use NCCL %s or newer, or mode registered",
                 mode->name, run, two_ranks ? " and 2 ranks" : "", two_ranks ? mode->why_two_ranks : mode->why, needed);
        return EO_ERR_UNSUPPORTED;
    }
    if (facts->driver_version && facts->driver_version < mode->driver_min) {
        snprintf(why, why_bytes, "mode '%s' needs a driver for CUDA %d.%d, this one is for %d.%d; use a newer driver, or mode "
                 "registered", mode->name, mode->driver_min / 1000, mode->driver_min / 10 % 100,
                 facts->driver_version / 1000, facts->driver_version / 10 % 100);
        return EO_ERR_UNSUPPORTED;
    }
    if (mode->one_node && facts->peers_known && !facts->one_node) {
        snprintf(why, why_bytes, "mode '%s' needs all ranks on one node, but these are on several; use mode registered",
                 mode->name);
        return EO_ERR_UNSUPPORTED;
    }
    *out = mode;
    return EO_OK;
}

eo_status eo_nccl_check_peers(const struct eo_nccl_member *peers, uint32_t rank_count, struct eo_nccl_facts *facts,
                              char *why, size_t why_bytes)
{
    facts->peers_known = facts->one_node = true;
    facts->shares_process = false;
    for (uint32_t a = 0; a < rank_count; a++) {
        if (peers[a].layout != 2) {
            snprintf(why, why_bytes, "rank %u runs another version of evenodd; run the same version on all ranks", a);
            return EO_ERR_INVALID;
        }
        if (peers[a].nccl_version != peers[0].nccl_version) {
            char first[32], other[32];
            eo_nccl_version_text(peers[0].nccl_version, first, sizeof(first));
            eo_nccl_version_text(peers[a].nccl_version, other, sizeof(other));
            snprintf(why, why_bytes, "rank 0 has NCCL %s, rank %u (%.48s) has %s; load the same version on all ranks", first, a,
                     peers[a].host, other);
            return EO_ERR_INVALID;
        }
        for (uint32_t b = 0; b < a; b++) {
            const bool same_node = strncmp(peers[a].boot, peers[b].boot, sizeof(peers[a].boot)) == 0;
            facts->one_node = facts->one_node && same_node;
            if (same_node && peers[a].process == peers[b].process && peers[a].process_space == peers[b].process_space)
                facts->shares_process = true;
            if (!same_node || strncmp(peers[a].device, peers[b].device, sizeof(peers[a].device)) != 0)
                continue;
            snprintf(why, why_bytes,
                     "ranks %u and %u are both on GPU %.24s of %.48s, but NCCL needs a GPU for each rank; start fewer ranks or "
                     "give each its own device index, or run them as threads of one process (a local world)",
                     b, a, peers[a].device, peers[a].host);
            return EO_ERR_INVALID;
        }
    }
    return EO_OK;
}

enum eo_nccl_place eo_nccl_place_of(const void *memory, uint64_t bytes, const void *base, uint64_t base_bytes)
{
    const uintptr_t begin = (uintptr_t)memory, low = (uintptr_t)base;
    if (begin < low || begin - low >= base_bytes)
        return EO_NCCL_OUTSIDE;
    return bytes <= base_bytes - (begin - low) ? EO_NCCL_INSIDE : EO_NCCL_PAST_END;
}
