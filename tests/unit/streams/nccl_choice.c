/* SPDX-License-Identifier: MIT
 *
 * Goal: what evenodd decides about NCCL before NCCL is asked: versions, modes, who sits where, where an operation ends;
 *       and that the real library gives ids, and a clear refusal, on a machine without a GPU.
 * Method: the pure functions on a table around every limit; the real library for the rest.
 */
#include "streams/nccl/choice.h"

#include <criterion/criterion.h>
#include <evenodd/world_nccl.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "streams/nccl/calls.h"

/* -- versions ---------------------------------------------------------------------------------------------------- */

Test(nccl, versions_are_written_as_people_write_them)
{
    const struct {
        int version;
        const char *text;
    } cases[] = {{22809, "2.28.9"}, {23007, "2.30.7"}, {23102, "2.31.2"}, {2804, "2.8.4"}, {30000, "3.0.0"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[32];
        eo_nccl_version_text(cases[i].version, text, sizeof(text));
        cr_expect_str_eq(text, cases[i].text);
    }
}

Test(nccl, a_library_older_than_its_header_is_refused_and_both_are_named)
{
    const struct {
        int built, run;
        eo_status want;
    } cases[] = {
        {22809, 22809, EO_OK},
        {22809, 22803, EO_OK}, /* the same interface */
        {22809, 23102, EO_OK},
        {22809, 22707, EO_ERR_UNSUPPORTED},
        {23007, 22809, EO_ERR_UNSUPPORTED},
        {22809, 30000, EO_ERR_UNSUPPORTED},
        {22809, 0, EO_ERR_UNSUPPORTED}, /* it did not tell */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[600], built[32], run[32];
        cr_expect_eq(eo_nccl_check_version(cases[i].built, cases[i].run, text, sizeof(text)), cases[i].want,
                     "%d at run time, built with %d", cases[i].run, cases[i].built);
        eo_nccl_version_text(cases[i].built, built, sizeof(built));
        eo_nccl_version_text(cases[i].run, run, sizeof(run));
        cr_expect(strstr(text, built) && strstr(text, run), "'%s' names %s and %s", text, built, run);
        cr_expect_eq(strstr(text, "build again") != NULL, cases[i].want < 0, "'%s'", text);
    }
}

/* -- modes ------------------------------------------------------------------------------------------------------- */

struct mode_case {
    const char *name;
    int run, driver;
    uint32_t rank_count;
    bool several_nodes;
    eo_status want;
    const char *part; /* of the reason */
};

Test(nccl, modes_are_refused_where_this_version_runs_them_wrongly)
{
    static const struct mode_case cases[] = {
        {"plain", 22809, 13000, 2, true, EO_OK, ""},
        {NULL, 22809, 13000, 8, true, EO_OK, ""},
        {"registered", 22809, 13000, 2, false, EO_OK, ""},
        {"fast", 22809, 13000, 8, false, EO_ERR_INVALID, "plain, registered, zero or symmetric"},
        {"", 22809, 13000, 8, false, EO_ERR_INVALID, "no mode ''"},

        {"zero", 22809, 13000, 8, false, EO_OK, ""},
        {"zero", 22809, 13000, 3, false, EO_OK, ""},
        {"zero", 22809, 13000, 1, false, EO_OK, ""},
        {"zero", 22809, 13000, 2, false, EO_ERR_UNSUPPORTED, "NVIDIA/nccl#2241"},
        {"zero", 23101, 13000, 2, false, EO_ERR_UNSUPPORTED, "use NCCL 2.31.2 or newer"},
        {"zero", 23102, 13000, 2, false, EO_OK, ""},
        {"zero", 22707, 13000, 8, false, EO_ERR_UNSUPPORTED, "no all-gather by copy engine"},
        {"zero", 22707, 13000, 2, false, EO_ERR_UNSUPPORTED, "2.31.2"},
        {"zero", 22809, 12040, 8, false, EO_ERR_UNSUPPORTED, "a driver for CUDA 12.5, this one is for 12.4"},
        {"zero", 22809, 12050, 8, false, EO_OK, ""},
        {"zero", 22809, 0, 8, false, EO_OK, ""},
        {"zero", 22809, 13000, 8, true, EO_ERR_UNSUPPORTED, "on one node"},

        {"symmetric", 22809, 13000, 8, false, EO_ERR_UNSUPPORTED, "before the previous kernel has written it"},
        {"symmetric", 23006, 13000, 8, false, EO_ERR_UNSUPPORTED, "use NCCL 2.30.7 or newer"},
        {"symmetric", 23007, 13000, 8, false, EO_OK, ""},
        {"symmetric", 23007, 13000, 2, false, EO_OK, ""},
        {"symmetric", 23007, 13000, 8, true, EO_ERR_UNSUPPORTED, "on one node"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct mode_case *c = &cases[i];
        const struct eo_nccl_facts facts = {.built_version = 22809, .run_version = c->run, .driver_version = c->driver,
                                            .rank_count = c->rank_count, .peers_known = true,
                                            .one_node = !c->several_nodes};
        const struct eo_nccl_mode *mode = (const void *)&facts;
        char why[600] = "";
        const eo_status status = eo_nccl_choose(&mode, c->name, &facts, why, sizeof(why));
        cr_expect_eq(status, c->want, "case %zu, mode %s: %s", i, c->name ? c->name : "(none)", why);
        cr_expect(strstr(why, c->part), "case %zu: '%s' is not in '%s'", i, c->part, why);
        cr_expect_eq(mode != NULL, c->want == EO_OK, "case %zu", i);
        if (mode)
            cr_expect_str_eq(mode->name, c->name ? c->name : "registered");
    }
}

Test(nccl, a_mode_on_several_nodes_passes_while_nobody_knows_where_the_ranks_are)
{
    const struct eo_nccl_facts facts = {.run_version = 22809, .rank_count = 8};
    const struct eo_nccl_mode *mode;
    char why[600];
    cr_expect_eq(eo_nccl_choose(&mode, "zero", &facts, why, sizeof(why)), EO_OK);
}

/* What the modes are made of follows from NCCL's faults: windows on the reduce-scatters' communicator only where symmetric
 * kernels are wanted, and no promise to abort or to capture for copy-engine gathers. */
Test(nccl, modes_are_what_their_names_say)
{
    const struct eo_nccl_facts facts = {.run_version = 23102, .rank_count = 8};
    const char *const names[] = {"plain", "registered", "zero", "symmetric"};
    const struct eo_nccl_mode *modes[4];
    char why[600];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(eo_nccl_choose(&modes[i], names[i], &facts, why, sizeof(why)), EO_OK, "%s", why);
    cr_expect_eq(modes[0]->gather.memory, EO_NCCL_MEMORY_PLAIN);
    cr_expect_eq(modes[0]->gather.cta_policy, NCCL_CTA_POLICY_DEFAULT);
    cr_expect_eq(modes[1]->gather.memory, EO_NCCL_MEMORY_REGISTERED);
    cr_expect_eq(modes[1]->gather.cta_policy, NCCL_CTA_POLICY_EFFICIENCY);
    cr_expect_eq(modes[2]->gather.memory, EO_NCCL_MEMORY_WINDOW);
    cr_expect_eq(modes[2]->gather.cta_policy, NCCL_CTA_POLICY_ZERO);
    cr_expect_eq(modes[2]->reduce.memory, EO_NCCL_MEMORY_REGISTERED, "a window there makes it a symmetric kernel");
    cr_expect_eq(modes[2]->reduce.cta_policy, NCCL_CTA_POLICY_EFFICIENCY);
    cr_expect_eq(modes[3]->reduce.memory, EO_NCCL_MEMORY_WINDOW);
    cr_expect(modes[1]->aborts && modes[1]->captures);
    cr_expect(!modes[2]->aborts && !modes[2]->captures);
}

/* -- ranks ------------------------------------------------------------------------------------------------------- */

static struct eo_nccl_member peer(const char *boot, const char *device, uint32_t process)
{
    struct eo_nccl_member out = {.layout = 2, .nccl_version = 22809, .process = process};
    snprintf(out.boot, sizeof(out.boot), "%s", boot);
    snprintf(out.host, sizeof(out.host), "host-%s", boot);
    snprintf(out.device, sizeof(out.device), "%s", device);
    return out;
}

Test(nccl, two_ranks_on_one_gpu_are_named)
{
    struct eo_nccl_facts facts = {0};
    char why[600] = "";
    struct eo_nccl_member peers[] = {peer("a", "0000:01:00.0", 1), peer("b", "0000:02:00.0", 2),
                                   peer("b", "0000:01:00.0", 3), peer("a", "0000:01:00.0", 4)};
    cr_expect_eq(eo_nccl_check_peers(peers, 4, &facts, why, sizeof(why)), EO_ERR_INVALID);
    cr_expect(strstr(why, "ranks 0 and 3 are both on GPU 0000:01:00.0 of host-a"), "'%s'", why);
    snprintf(peers[3].device, sizeof(peers[3].device), "0000:03:00.0");
    cr_expect_eq(eo_nccl_check_peers(peers, 4, &facts, why, sizeof(why)), EO_OK, "the same address on another node: %s",
                 why);
}

Test(nccl, ranks_of_different_versions_are_named)
{
    struct eo_nccl_facts facts = {0};
    char why[600] = "";
    struct eo_nccl_member peers[] = {peer("a", "0", 1), peer("a", "1", 2), peer("a", "2", 3)};
    peers[2].nccl_version = 22707;
    cr_expect_eq(eo_nccl_check_peers(peers, 3, &facts, why, sizeof(why)), EO_ERR_INVALID);
    cr_expect(strstr(why, "rank 0 has NCCL 2.28.9, rank 2 (host-a) has 2.27.7"), "'%s'", why);
    peers[2] = peer("a", "2", 3);
    peers[1].layout = 1;
    cr_expect_eq(eo_nccl_check_peers(peers, 3, &facts, why, sizeof(why)), EO_ERR_INVALID);
    cr_expect(strstr(why, "rank 1 "), "'%s'", why);
}

Test(nccl, peers_tell_nodes_and_processes)
{
    struct eo_nccl_facts facts = {0};
    char why[600] = "";
    struct eo_nccl_member peers[] = {peer("a", "0", 7), peer("a", "1", 8), peer("b", "0", 7)};
    cr_assert_eq(eo_nccl_check_peers(peers, 2, &facts, why, sizeof(why)), EO_OK);
    cr_expect(facts.peers_known && facts.one_node && !facts.shares_process);
    cr_assert_eq(eo_nccl_check_peers(peers, 3, &facts, why, sizeof(why)), EO_OK);
    cr_expect(!facts.one_node && !facts.shares_process, "the same number on two nodes is no common process");
    peers[1].process = 7;
    cr_assert_eq(eo_nccl_check_peers(peers, 2, &facts, why, sizeof(why)), EO_OK);
    cr_expect(facts.shares_process);
    peers[1].process_space = 1;
    cr_assert_eq(eo_nccl_check_peers(peers, 2, &facts, why, sizeof(why)), EO_OK);
    cr_expect(!facts.shares_process, "the same number in two containers is no common process");
}

/* -- ranges ------------------------------------------------------------------------------------------------------ */

Test(nccl, an_operation_past_the_end_of_its_registration_is_seen)
{
    const char *base = (const char *)(uintptr_t)0x10000;
    cr_expect_eq(eo_nccl_place_of(base, 4096, base, 4096), EO_NCCL_INSIDE);
    cr_expect_eq(eo_nccl_place_of(base + 4095, 1, base, 4096), EO_NCCL_INSIDE);
    cr_expect_eq(eo_nccl_place_of(base, 4097, base, 4096), EO_NCCL_PAST_END);
    cr_expect_eq(eo_nccl_place_of(base + 4095, 2, base, 4096), EO_NCCL_PAST_END);
    cr_expect_eq(eo_nccl_place_of(base + 1, UINT64_MAX, base, 4096), EO_NCCL_PAST_END);
    cr_expect_eq(eo_nccl_place_of(base + 4096, 1, base, 4096), EO_NCCL_OUTSIDE);
    cr_expect_eq(eo_nccl_place_of(base - 1, 8, base, 4096), EO_NCCL_OUTSIDE);
}

/* -- the real library -------------------------------------------------------------------------------------------- */

static void take_log(void *user, eo_log_level level, const char *text)
{
    char *all = user;
    if (level == EO_LOG_ERROR && strlen(all) + strlen(text) + 2 < 4096)
        strcat(strcat(all, text), "\n");
}

Test(nccl, ids_come_from_the_real_library_and_differ, .timeout = 60)
{
    eo_nccl_id first, second;
    cr_assert_eq(eo_nccl_id_create(&first, NULL), EO_OK);
    cr_assert_eq(eo_nccl_id_create(&second, NULL), EO_OK);
    cr_expect_neq(memcmp(&first, &second, sizeof(first)), 0);
    cr_expect_eq(eo_nccl_id_create(NULL, NULL), EO_ERR_INVALID);
}

Test(nccl, the_real_library_passes_the_version_check)
{
    int version = 0;
    char text[600];
    cr_assert_eq(eo_nccl_load(NULL), EO_OK);
    cr_assert_eq(ncclGetVersion(&version), ncclSuccess);
    cr_expect_eq(eo_nccl_check_version(NCCL_VERSION_CODE, version, text, sizeof(text)), EO_OK, "%s", text);
}

Test(nccl, without_a_gpu_a_world_is_refused_with_what_is_missing, .timeout = 60)
{
    int count = 0;
    char text[4096] = "";
    const eo_log log = {take_log, text, EO_LOG_ERROR};
    eo_world *world = (eo_world *)&count;
    eo_nccl_id id;
    eo_nccl_peer self;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
        cr_skip_test("there is a GPU");
    cr_assert_eq(eo_nccl_id_create(&id, &log), EO_OK);
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .id = &id, .log = &log}),
                 EO_ERR_UNSUPPORTED);
    cr_expect_null(world);
    cr_expect(strstr(text, "NCCL needs a GPU"), "'%s'", text);
    text[0] = '\0';
    cr_expect_eq(eo_nccl_peer_of(&self, 0, &log), EO_ERR_UNSUPPORTED);
    cr_expect(strstr(text, "NCCL needs a GPU"), "'%s'", text);
}

Test(nccl, worlds_that_cannot_be_are_refused_before_any_gpu_is_looked_for)
{
    char text[4096] = "";
    const eo_log log = {take_log, text, EO_LOG_ERROR};
    eo_world *world;
    eo_nccl_id id = {{0}};
    eo_nccl_peer peers[2];
    const struct eo_nccl_member same = peer("a", "0000:01:00.0", 1);
    memset(peers, 0, sizeof(peers));
    for (int i = 0; i < 2; i++)
        memcpy(&peers[i], &same, sizeof(same));
    cr_expect_eq(eo_world_create_nccl(&world, NULL), EO_ERR_INVALID);
    cr_expect_eq(eo_world_create_nccl(NULL, &(const eo_world_nccl_params){.rank_count = 1, .id = &id}), EO_ERR_INVALID);
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.id = &id, .log = &log}), EO_ERR_INVALID);
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .rank = 2, .id = &id,
                                                                            .log = &log}), EO_ERR_INVALID);
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .log = &log}),
                 EO_ERR_INVALID);
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .log = &log, .id = &id,
                                                                            .communicator = &id}), EO_ERR_INVALID);
    cr_expect(strstr(text, "give one of them"), "'%s'", text);
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .log = &log, .id = &id,
                                                                            .mode = "fast"}), EO_ERR_INVALID);
    cr_expect(strstr(text, "no mode 'fast'"), "'%s'", text);
    if (NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 2)) {
        cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .log = &log, .id = &id,
                                                                                .mode = "zero"}), EO_ERR_UNSUPPORTED);
        cr_expect(strstr(text, "mode 'zero' is refused with NCCL"), "'%s'", text);
    }
    cr_expect_eq(eo_world_create_nccl(&world, &(const eo_world_nccl_params){.rank_count = 2, .log = &log, .id = &id,
                                                                            .peers = peers}), EO_ERR_INVALID);
    cr_expect(strstr(text, "NCCL needs a GPU for each rank") || strstr(text, "has NCCL"), "'%s'", text);
    cr_expect_eq(eo_world_nccl_get_info(NULL, NULL), EO_ERR_INVALID);
}
