/* SPDX-License-Identifier: MIT
 *
 * Threads go near their rank's GPU.
 * Method: hwloc reads the machine from a file: two NUMA nodes, a GPU on each. What it says of another machine is read from
 * the log; with this machine's own processors in the file threads are really bound.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "streams/cpu/affinity.h"

static char path[64], said[512];

static void listen(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    snprintf(said, sizeof(said), "%s", text);
}

static const eo_log listening = {.write = listen, .level = EO_LOG_INFO};

static unsigned lowest(uint32_t set)
{
    return (unsigned)__builtin_ctz(set);
}

/* A NUMA node with these processors; behind its bridge the GPU 0000:`bus`:00.0. */
static void put_node(FILE *out, unsigned node, uint32_t processors, unsigned bus)
{
    unsigned id = 100 + 100 * node;
#define SETS(cpus) "cpuset=\"0x%08" PRIx32 "\" complete_cpuset=\"0x%08" PRIx32 "\" nodeset=\"0x%08x\" " \
                   "complete_nodeset=\"0x%08x\" gp_index=\"%u\"", (uint32_t)(cpus), (uint32_t)(cpus), 1u << node, 1u << node, id++
    fprintf(out, "<object type=\"Package\" os_index=\"%u\" ", node);
    fprintf(out, SETS(processors));
    fprintf(out, ">\n<object type=\"NUMANode\" os_index=\"%u\" local_memory=\"68719476736\" ", node);
    fprintf(out, SETS(processors));
    fprintf(out, "/>\n");
    for (uint32_t left = processors; left; left &= left - 1) {
        fprintf(out, "<object type=\"Core\" os_index=\"%u\" ", lowest(left));
        fprintf(out, SETS(left & -left));
        fprintf(out, "><object type=\"PU\" os_index=\"%u\" ", lowest(left));
        fprintf(out, SETS(left & -left));
        fprintf(out, "/></object>\n");
    }
    fprintf(out, "<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[%02x-%02x]\">"
            "<object type=\"PCIDev\" gp_index=\"%u\" pci_busid=\"0000:%02x:00.0\" pci_type=\"0302 [10de:2335] [10de:18be] "
            "a1\" pci_link_speed=\"31.507692\"/></object>\n</object>\n", id, bus, bus, id + 1, bus);
#undef SETS
}

static const char *kinds = ""; /* of cores */

static void describe_machine(uint32_t first, uint32_t second, bool is_this)
{
    snprintf(path, sizeof(path), "/tmp/evenodd-machine-XXXXXX");
    const int file = mkstemp(path);
    FILE *out = file < 0 ? NULL : fdopen(file, "w");
    cr_assert_not_null(out);
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
            "<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\" cpuset=\"0x%08" PRIx32 "\" "
            "complete_cpuset=\"0x%08" PRIx32 "\" allowed_cpuset=\"0x%08" PRIx32 "\" nodeset=\"0x00000003\" "
            "complete_nodeset=\"0x00000003\" allowed_nodeset=\"0x00000003\" gp_index=\"1\">\n", first | second,
            first | second, first | second);
    put_node(out, 0, first, 0x17);
    put_node(out, 1, second, 0xc9);
    fprintf(out, "</object>\n%s</topology>\n", kinds);
    fclose(out);
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_THISSYSTEM", is_this ? "1" : "0", 1);
}

static void forget_machine(void)
{
    unlink(path);
}

TestSuite(near, .fini = forget_machine);

static struct eo_affinity *place_near(const char *bus)
{
    struct eo_affinity *affinity = NULL;
    said[0] = '\0';
    cr_assert_eq(eo_affinity_best()->init_near(&affinity, 3, bus, &listening), EO_OK);
    return affinity;
}

static void skip_without_hwloc(void)
{
    if (strcmp(eo_affinity_best()->name, "none") == 0)
        cr_skip_test("built without hwloc");
}

/* Goal: a rank's share is the processors of the NUMA node that its GPU hangs on. Method: both GPUs of a file's machine. */
Test(near, a_rank_gets_the_processors_of_its_gpus_node)
{
    skip_without_hwloc();
    describe_machine(0x0f, 0xf0, false);
    struct eo_affinity *affinity = place_near("0000:C9:00.0");
    cr_assert_not_null(affinity, "%s", said);
    cr_expect_not_null(strstr(said, "rank 3: threads and memory placed on processors 4-7, near GPU 0000:C9:00.0"), "%s", said);
    eo_affinity_best()->fini(affinity);
    affinity = place_near("0000:17:00.0");
    cr_assert_not_null(affinity, "%s", said);
    cr_expect_not_null(strstr(said, "processors 0-3, near"), "%s", said);
    eo_affinity_best()->fini(affinity);
}

/* Goal: what is near an unknown device is not guessed. */
Test(near, an_unknown_gpu_places_nothing_and_says_so)
{
    skip_without_hwloc();
    describe_machine(0x0f, 0xf0, false);
    cr_expect_null(place_near("0000:55:00.0"));
    cr_expect_not_null(strstr(said, "this machine does not report the processors near GPU 0000:55:00.0"), "%s", said);
    cr_expect_null(place_near("no bus id"));
    cr_expect_not_null(strstr(said, "not placed"), "%s", said);
}

/* Goal: threads really move there, and back. Method: this machine's first two processors, each as a node with a GPU. */
Test(near, a_thread_is_bound_near_its_gpu_and_given_back)
{
    cpu_set_t before, now;
    skip_without_hwloc();
    sched_getaffinity(0, sizeof(before), &before);
    int found[2], count = 0;
    for (int i = 0; i < 32 && count < 2; i++)
        if (CPU_ISSET(i, &before))
            found[count++] = i;
    if (count < 2)
        cr_skip_test("one processor");
    describe_machine(1u << found[0], 1u << found[1], true);
    for (int gpu = 0; gpu < 2; gpu++) {
        struct eo_affinity *affinity = place_near(gpu ? "0000:c9:00.0" : "0000:17:00.0");
        cr_assert_not_null(affinity, "%s", said);
        eo_affinity_best()->bind_thread(affinity);
        sched_getaffinity(0, sizeof(now), &now);
        cr_expect(CPU_COUNT(&now) == 1 && CPU_ISSET(found[gpu], &now), "GPU %d: %s", gpu, said);
        eo_affinity_best()->fini(affinity);
        sched_getaffinity(0, sizeof(now), &now);
        if (CPU_COUNT(&before) == 2) /* hwloc knows of those alone that the file has */
            cr_expect(CPU_EQUAL(&now, &before), "not given back");
    }
}

/* Goal: ranks have as many fast cores as each other, for all wait for the slowest. Method: six fast cores and two slow ones, cut
 * into two parts and into four; the same machine of one kind is cut in its order. */
Test(near, fast_and_slow_cores_are_shared_evenly)
{
    static const struct {
        const char *kinds;
        uint32_t index, count;
        const char *placed;
    } cases[] = {
        {"", 1, 2, "processors 4-7"},
        {"<cpukind cpuset=\"0x0000003f\" forced_efficiency=\"1\"/>\n<cpukind cpuset=\"0x000000c0\" forced_efficiency=\"0\"/>\n", 0, 2,
         "processors 0-2,6"},
        {NULL, 1, 2, "processors 3-5,7"}, {NULL, 0, 4, "processors 0,6"}, {NULL, 1, 4, "processors 1-2"},
        {NULL, 2, 4, "processors 3,7"},   {NULL, 3, 4, "processors 4-5"}, {NULL, 8, 9, "processors 0"},
    };
    skip_without_hwloc();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct eo_affinity_share share = {.rank = 3, .index = cases[i].index, .count = cases[i].count};
        struct eo_affinity *affinity = NULL;
        kinds = cases[i].kinds ? cases[i].kinds : kinds;
        describe_machine(0x0f, 0xf0, false);
        said[0] = '\0';
        cr_assert_eq(eo_affinity_best()->init(&affinity, &share, &listening), EO_OK);
        cr_expect(affinity && strstr(said, cases[i].placed) && strlen(strstr(said, cases[i].placed)) == strlen(cases[i].placed),
                  "case %zu: %s", i, said);
        eo_affinity_best()->fini(affinity);
        forget_machine();
    }
}
