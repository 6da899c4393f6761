/* SPDX-License-Identifier: MIT
 *
 * How collectives may run with this NCCL on these ranks: modes, the versions that break them, and who sits where. Pure
 * functions of what they are given, so that they are tested without a GPU.
 *
 *     mode        all-gather                                 reduce-scatter
 *     plain       kernels                                    kernels
 *     registered  kernels on registered buffers, few blocks  the same
 *     zero        copy engine on a symmetric window          as registered
 *     symmetric   kernels on symmetric windows               the same
 */
#ifndef EO_STREAMS_NCCL_CHOICE_H
#define EO_STREAMS_NCCL_CHOICE_H

#include <evenodd/status.h>

/* What a communicator is made with, and what is done with the memory that it is told of. */
enum eo_nccl_memory { EO_NCCL_MEMORY_PLAIN, EO_NCCL_MEMORY_REGISTERED, EO_NCCL_MEMORY_WINDOW };

struct eo_nccl_use {
    int cta_policy; /* NCCL_CTA_POLICY_... */
    enum eo_nccl_memory memory;
    const char *text;
};

struct eo_nccl_mode {
    const char *name;
    struct eo_nccl_use gather, reduce;
    int version_min;           /* of NCCL */
    int version_min_two_ranks; /* the same for communicators of 2 ranks */
    int driver_min;            /* 12050: 12.5; 0: any */
    bool one_node;
    bool aborts;   /* what waits on the device looks at the flag that ncclCommAbort sets */
    bool captures; /* eager and captured collectives may take turns on a communicator */
    const char *why, *why_two_ranks; /* the fault behind each minimum */
};

struct eo_nccl_facts {
    int built_version, run_version; /* 22809 */
    int driver_version;             /* 13000; 0: unknown */
    uint32_t rank_count;
    bool peers_known, one_node, shares_process; /* from eo_nccl_check_peers */
};

/*
 * The mode by name; NULL: "registered". EO_ERR_UNSUPPORTED where it must not be used, EO_ERR_INVALID for a name that
 * there is not; `why` then says so, with what to do.
 */
eo_status eo_nccl_choose(const struct eo_nccl_mode **out, const char *name, const struct eo_nccl_facts *facts,
                         char *why, size_t why_bytes);

/* The library that was loaded against the header that was compiled: EO_ERR_UNSUPPORTED for one that is older in its
 * minor version, or of another major one. `text` names both in any case. */
eo_status eo_nccl_check_version(int built_version, int run_version, char *text, size_t text_bytes);

void eo_nccl_version_text(int version, char *text, size_t text_bytes);

/* Who a rank is. Sent as bytes between machines of one architecture. */
struct eo_nccl_member {
    uint32_t layout; /* of this structure: 2 */
    int32_t nccl_version;
    uint32_t process, process_space; /* in containers of one machine others have the same number, in another space */
    char boot[40];   /* of the machine since its start: equal on one node alone */
    char host[48];   /* for people */
    char device[24]; /* its PCI address */
};

/*
 * Ranks that sit on one GPU, or run another NCCL: EO_ERR_INVALID, `why` names them. Else writes to `facts` what follows
 * from the peers.
 */
eo_status eo_nccl_check_peers(const struct eo_nccl_member *peers, uint32_t rank_count, struct eo_nccl_facts *facts,
                              char *why, size_t why_bytes);

/* Whether [memory, memory + bytes) begins in [base, base + base_bytes), and ends there. */
enum eo_nccl_place { EO_NCCL_OUTSIDE, EO_NCCL_INSIDE, EO_NCCL_PAST_END };
enum eo_nccl_place eo_nccl_place_of(const void *memory, uint64_t bytes, const void *base, uint64_t base_bytes);

#endif
