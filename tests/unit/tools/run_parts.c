/* SPDX-License-Identifier: MIT
 *
 * Parts of a run that can be judged alone: learning rate, pieces of the head, hash, the sample's text, traces made one, the
 * choice that a checkpoint keeps, the simulation of all ranks. Method: values worked out by hand, and eo_plan_simulate for a
 * single rank.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/job.h"
#include "tools/run/checkpoint/kept_choice.h"
#include "tools/run/machine/memory_check.h"
#include "tools/run/ranks/simulate.h"
#include "tools/run/reports/report.h"
#include "tools/run/reports/trace_merge.h"
#include "tools/shared/weights_hash.h"
#include "tools/run/ranks/world_threads.h"

Test(run_parts, the_learning_rate_rises_then_falls_to_a_tenth_or_stays)
{
    struct tool_options options;
    tool_options_init(&options);
    options.learning_rate = 0.5;
    options.warmup = 10;
    options.steps = 110;
    cr_assert_float_eq(tool_options_learning_rate(&options, 0), 0.05, 1e-12);
    cr_assert_float_eq(tool_options_learning_rate(&options, 9), 0.5, 1e-12);
    cr_assert_float_eq(tool_options_learning_rate(&options, 10), 0.5, 1e-12);
    cr_assert_float_eq(tool_options_learning_rate(&options, 60), 0.275, 1e-12);
    cr_assert_float_eq(tool_options_learning_rate(&options, 110), 0.05, 1e-12);
    options.schedule.kind = TOOL_SCHEDULE_CONSTANT;
    cr_assert_float_eq(tool_options_learning_rate(&options, 109), 0.5, 1e-12);
    options.warmup = 0;
    cr_assert_float_eq(tool_options_learning_rate(&options, 0), 0.5, 1e-12);
    tool_options_fini(&options);
}

/* Against PyTorch's StepLR(step_size=30, gamma=0.5), and lines worked out by hand; warm-up is 10 of 110 steps. */
Test(run_parts, schedules_decay_by_lines_and_by_steps)
{
    static const struct {
        const char *text;
        double minimum;
        uint64_t step;
        double rate;
    } cases[] = {
        {"linear", -1, 0, 0.05},          {"linear", -1, 10, 0.5},          {"linear", -1, 60, 0.25},
        {"linear", -1, 109, 0.005},       {"linear", 0.1, 60, 0.3},         {"cosine", 0, 60, 0.25},
        {"cosine", 0.5, 100, 0.5},        {"wsd", -1, 98, 0.5},             {"wsd:0.5", -1, 55, 0.5},
        {"wsd:0.5", -1, 82, 0.5 * 28 / 55}, {"wsd:0.5", 0.1, 110, 0.1},     {"wsd:1", -1, 60, 0.5 * 50 / 110},
        {"step:30,0.5", -1, 39, 0.5},     {"step:30,0.5", -1, 40, 0.25},    {"step:30,0.5", -1, 109, 0.0625},
        {"constant", -1, 109, 0.5},
    };
    struct tool_options options;
    char why[160], text[TOOL_SCHEDULE_TEXT_MAX];
    tool_options_init(&options);
    options.learning_rate = 0.5;
    options.warmup = 10;
    options.steps = 110;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        options.minimum_rate = cases[i].minimum;
        cr_assert(tool_schedule_parse(&options.schedule, cases[i].text, why, sizeof(why)), "%s: %s", cases[i].text, why);
        cr_assert_float_eq(tool_options_learning_rate(&options, cases[i].step), cases[i].rate, 1e-12, "%s, step %d: %g",
                           cases[i].text, (int)cases[i].step, tool_options_learning_rate(&options, cases[i].step));
        struct tool_schedule again = {0};
        cr_assert(tool_schedule_parse(&again, tool_schedule_text(&options.schedule, text), why, sizeof(why)));
        cr_assert(again.kind == options.schedule.kind);
    }
    static const char *const wrong[] = {"", "cos", "cosine:1", "wsd:", "wsd:0", "wsd:1.1", "wsd:nan", "step", "step:0,0.5",
                                        "step:3", "step:3,", "step:3,2", "step:-3,0.5", "step:99999999999999999999,0.5"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_assert_not(tool_schedule_parse(&options.schedule, wrong[i], why, sizeof(why)), "%s", wrong[i]);
    tool_options_fini(&options);
}

static bool parse_choice(const char *text, struct tool_kept_choice *out)
{
    json_t *settings = json_loads(text, 0, NULL);
    cr_assert(settings, "%s", text);
    const bool good = tool_kept_choice_parse(settings, out);
    json_decref(settings);
    cr_assert_eq(out->is_there, good);
    return good;
}

static void write_choice(struct eo_json *json, const void *options)
{
    eo_json_write(json, "{");
    tool_kept_choice_write(json, options);
    eo_json_write(json, "}");
}

Test(run_parts, a_choice_comes_back_from_a_checkpoint_as_it_was)
{
    struct tool_kept_choice kept;
    struct tool_options options;
    tool_options_init(&options);
    char *text = tool_json_text(0, write_choice, &options);
    cr_assert(!parse_choice(text, &kept), "no choice, but %s", text);
    free(text);
    options.plan.recompute = EO_RECOMPUTE_BLOCKS;
    options.plan.recompute_blocks = 3;
    options.plan.gather_slots = 1;
    options.plan.offload_layers = UINT32_MAX;
    options.plan.offload_slots = 4;
    options.plan.offload_gradients = true;
    options.plan.offload_activations = UINT32_MAX;
    options.plan.head_chunks = 8;
    options.head_is_chosen = true;
    options.rates = (struct tool_rates){1e12 / 3, 2e10 / 7, 0, 1e3, 1e-5 / 3, 1e11 / 3, 3e7 / 7,
                                        {1e-6 / 3, 1e-6, 1e-7, 1e-5 / 7, 0, 3e-3, 1e-9, "a \"shape\", and more"}};
    text = tool_json_text(0, write_choice, &options);
    cr_assert(parse_choice(text, &kept) && !kept.bucketing.is_there, "%s", text);
    free(text);
    options.plan.gather_run = 3;
    options.plan.gradient_run = 4;
    options.bucketing_rates = (struct tool_rates){1e12, 2e10, 3e9, 1e3, 1e-5, 0, 0, {.head_s = 0}};
    text = tool_json_text(0, write_choice, &options);
    cr_assert(parse_choice(text, &kept), "%s", text);
    free(text);
    cr_assert_eq(memcmp(&kept.rates, &options.rates, sizeof(kept.rates)), 0);
    cr_assert(kept.bucketing.is_there && kept.bucketing.gather_run == 3 && kept.bucketing.gradient_run == 4);
    cr_assert_eq(memcmp(&kept.bucketing.rates, &options.bucketing_rates, sizeof(kept.rates)), 0);
    options.rates = (struct tool_rates){0};
    text = tool_json_text(0, write_choice, &options);
    cr_assert(!parse_choice(text, &kept) && kept.bucketing.is_there, "the bucketing alone: %s", text);
    free(text);
    options.rates = (struct tool_rates){1e12 / 3, 2e10 / 7, 0, 1e3, 1e-5 / 3, 1e11 / 3, 3e7 / 7,
                                        {1e-6 / 3, 1e-6, 1e-7, 1e-5 / 7, 0, 3e-3, 1e-9, "a \"shape\", and more"}};
    text = tool_json_text(0, write_choice, &options);
    cr_assert(parse_choice(text, &kept), "%s", text);
    free(text);
    struct tool_plan_settings back = {.micro_batches = 1, .batch = 2, .seq = 4, .head_chunks = 3};
    tool_kept_choice_apply(&kept, &options, &back);
    cr_assert(back.recompute == EO_RECOMPUTE_BLOCKS && back.recompute_blocks == 3 && back.gather_slots == 1 &&
              back.gradient_slots == 2 && back.offload_layers == UINT32_MAX && back.offload_slots == 4 && back.offload_activations == UINT32_MAX &&
              back.offload_gradients);
    cr_assert_eq(back.head_chunks, 8);
    back.micro_batches = 2;
    back.batch = 1;
    back.head_chunks = 3;
    tool_kept_choice_apply(&kept, &options, &back);
    cr_assert(back.offload_layers == UINT32_MAX && !back.offload_gradients);
    cr_assert_eq(back.head_chunks, 3, "more pieces than tokens");
    tool_options_fini(&options);
}

Test(run_parts, a_damaged_choice_is_none)
{
    static const char good[] = "{\"choice\": {\"cheap_recompute\": false, \"recompute_blocks\": 1, \"gather_slots\": 2, "
                               "\"gradient_slots\": 1, \"offload_layers\": 3, \"offload_slots\": 2, \"offload_gradients\": "
                               "true, \"head_chunks\": 0, \"rates\": {\"products_flops_per_s\": 1, \"memory_bytes_per_s\": 1, "
                               "\"disk_bytes_per_s\": 1, \"link_bytes_per_s\": 1}}}";
    static const char *const changes[][2] = {
        {"\"choice\"", "\"chance\""},
        {"false", "true"},
        {"false", "0"},
        {"blocks\": 1", "blocks\": -1"},
        {"gather_slots\": 2", "gather_slots\": 0"},
        {"gradient_slots\": 1", "gradient_slots\": 65"},
        {"layers\": 3", "layers\": 0"},
        {"layers\": 3", "layers\": 4294967296"},
        {"offload_slots\": 2", "offload_slots\": 65"},
        {"head_chunks\": 0", "head_chunks\": -1"},
        {"offload_slots\": 2", "offload_slots\": \"2\""},
        {"\"link_bytes_per_s\": 1", "\"link_bytes_per_s\": 0"},
        {"\"disk_bytes_per_s\": 1", "\"disk_bytes_per_s\": -1"},
        {"\"memory_bytes_per_s\": 1, ", ""},
        {"\"rates\": {", "\"prices\": {"},
    };
    struct tool_kept_choice kept;
    cr_assert(parse_choice(good, &kept));
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char text[sizeof(good) + 32];
        const char *at = strstr(good, changes[i][0]);
        cr_assert(at, "%s", changes[i][0]);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, changes[i][1], at + strlen(changes[i][0]));
        cr_assert(!parse_choice(text, &kept), "%s", text);
    }
    cr_assert(!tool_kept_choice_parse(NULL, &kept) && !kept.is_there);
    (void)parse_choice("{\"bucketing\": {\"gather_run\": 65, \"gradient_run\": 1, \"rates\": {\"products_flops_per_s\": 1, "
                       "\"memory_bytes_per_s\": 1, \"link_bytes_per_s\": 1}}}", &kept);
    cr_assert(!kept.bucketing.is_there, "more buffers than there may be");
}

Test(run_parts, logits_of_a_piece_stay_below_32_mebibytes)
{
    const uint64_t tokens[] = {1, 7, 1024, 4096};
    const uint32_t vocabularies[] = {256, 50257, 128256};
    for (int t = 0; t < 4; t++)
        for (int v = 0; v < 3; v++) {
            const eo_transformer_config config = {.vocabulary = vocabularies[v]};
            struct tool_plan_settings settings = {.batch = 1, .seq = (uint32_t)tokens[t]};
            tool_plan_settings_complete(&settings, &config, 0, false);
            const uint64_t chunks = settings.head_chunks;
            cr_assert(chunks >= 1 && chunks <= tokens[t]);
            const uint64_t rows = (tokens[t] + chunks - 1) / chunks;
            cr_assert_leq((rows - 1) * vocabularies[v] * 4, (uint64_t)32 << 20);
            if (chunks > 1) /* and no more pieces than that takes */
                cr_assert_gt(tokens[t] * vocabularies[v] * 4, (chunks - 1) * ((uint64_t)32 << 20));
        }
}

/* A host's memory is its own ranks'; processes have their programs each; GPUs are shared within the host. */
Test(run_parts, memory_is_estimated_for_the_ranks_of_this_host)
{
    struct tool_options o = {.plan = {.device = "cpu", .ranks = 8, .threads = 1}};
    const eo_plan_summary summary = {.arena_bytes = (uint64_t)1 << 30};
    const uint64_t one = ((uint64_t)1 << 30) + (8 << 20), program = 32 << 20;
    cr_assert_eq(tool_job_estimate(&o, &summary, 1), program + 8 * one);
    o.world_ranks = 8;
    o.host_ranks = 2;
    cr_assert_eq(tool_job_estimate(&o, &summary, 1), 2 * (program + one));
    o.plan.device = "cuda";
    const uint64_t of_gpu = tool_job_estimate(&o, &summary, 2);
    cr_assert_eq(tool_job_estimate(&o, &summary, 1), of_gpu); /* a process has its GPU for itself, however many it sees */
    o.world_ranks = 0;
    cr_assert_eq(tool_job_estimate(&o, &summary, 8), of_gpu);
    cr_assert_eq(tool_job_estimate(&o, &summary, 2), 4 * of_gpu);
}

/* Ranks that a launcher has bound apart have all of theirs, others their part: from one to as many as a team may have. */
Test(run_parts, threads_are_a_rank_s_part_of_what_it_may_run_on)
{
    struct tool_rank_processors ranks[6] = {{.machine = 1}, {.machine = 1}, {.machine = 1},
                                            {.machine = 2}, {.machine = 2}, {.machine = 2}};
    static const struct {
        uint32_t number, count, threads;
    } rows[6] = {{1, 1376, EO_TEAM_THREADS_MAX}, {2, 8, 4}, {2, 8, 4}, {2, 8, 8}, {3, 1, 1}, {3, 1, 1}};
    for (int r = 0; r < 6; r++)
        ranks[r].allowed = (struct eo_processors){rows[r].count, rows[r].number};
    for (uint32_t r = 0; r < 6; r++)
        cr_assert_eq(tool_rank_threads(ranks, 6, r), rows[r].threads, "rank %u has %u", r, tool_rank_threads(ranks, 6, r));
}

/* Method: the sample's text, printed into a file. */
/* What is printed; without a tokenizer, of bytes. */
static void print_sample(char *text, size_t bytes, const int32_t *tokens, uint32_t prompt_count, uint32_t count,
                         const struct tool_tokenizer *tokenizer)
{
    FILE *file = tmpfile();
    fflush(stdout);
    const int before = dup(1);
    dup2(fileno(file), 1);
    tool_report_sample(tokens, prompt_count, count, !tokenizer, tokenizer);
    fflush(stdout);
    dup2(before, 1);
    close(before);
    rewind(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

Test(run_parts, a_sample_shows_characters_and_numbers_of_what_controls_a_terminal)
{
    static const struct {
        const char *bytes, *shown;
    } cases[] = {
        {"a\tb\n\x1b[", "a\tb\n\\x1b["},
        {"\xc3\xbc \xe6\x97\xa5 \xf0\x9f\x99\x82 \xc2\xa0 \xe2\x80\xa9 \xe2\x80\xaf",
         "\xc3\xbc \xe6\x97\xa5 \xf0\x9f\x99\x82 \xc2\xa0 \xe2\x80\xa9 \xe2\x80\xaf"},
        {"\xc2\x9b[m", "\\xc2\\x9b[m"},                                      /* U+009B */
        {"\xe2\x80\xae \xe2\x81\xa6", "\\xe2\\x80\\xae \\xe2\\x81\\xa6"}, /* turn what follows */
        {"\xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\x80",
         "\\xe0\\x80\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xc0\\x80"},
        {"\xe6\x97", "\\xe6\\x97"}, /* cut off */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t tokens[64];
        char text[512] = "", wanted[300];
        const uint32_t count = (uint32_t)strlen(cases[i].bytes);
        for (uint32_t k = 0; k < count; k++)
            tokens[k] = (unsigned char)cases[i].bytes[k];
        print_sample(text, sizeof(text), tokens, 0, count, NULL);
        snprintf(wanted, sizeof(wanted), "|>%s\n", cases[i].shown);
        cr_assert(strstr(text, wanted), "%s", text);
    }
    /* A character may be of two tokens, and its first half the last one. */
    const struct tool_tokenizer tokenizer = {
        .count = 3, .begins = (uint32_t[]){0, 2, 3, 5}, .bytes = (char[]){"a\xc3\xbc\x1b!"}};
    char text[512] = "";
    print_sample(text, sizeof(text), (const int32_t[]){2, 0, 1, 2, 0}, 1, 4, &tokenizer);
    cr_assert_str_eq(text, "\nsample, after 1 given token (up to the mark):\n\\x1b!|>a\xc3\xbc\\x1b!a\\xc3\n");
}

Test(run_parts, the_hash_is_64_bit_fnv_1a)
{
    cr_assert_eq(tool_hash_more(TOOL_HASH_START, "", 0), 0xcbf29ce484222325u);
    cr_assert_eq(tool_hash_more(TOOL_HASH_START, "a", 1), 0xaf63dc4c8601ec8cu);
    cr_assert_eq(tool_hash_more(tool_hash_more(TOOL_HASH_START, "foo", 3), "bar", 3), 0x85944171f73967e8u);
}

static struct tool_trace_text text_of(const char *text)
{
    return (struct tool_trace_text){.text = (char *)(uintptr_t)text, .bytes = strlen(text)};
}

Test(run_parts, traces_of_ranks_become_one_and_half_a_trace_is_refused)
{
    struct tool_problem problem;
    char *all;
    struct tool_trace_text texts[] = {text_of("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{\"pid\":0}]}"),
                                      text_of("{\"traceEvents\":[{\"pid\":1},{\"pid\":2}]}")};
    cr_assert_eq(tool_trace_merge(texts, 2, &all, &problem), EO_OK);
    cr_assert_str_eq(all, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{\"pid\":0},{\"pid\":1},{\"pid\":2}]}");
    free(all);
    texts[1] = text_of("{\"traceEvents\":[{\"pid\":1},");
    cr_assert_lt(tool_trace_merge(texts, 2, &all, &problem), 0);
    cr_assert_null(all);
    cr_assert_not_null(strstr(problem.text, "rank 1"), "%s", problem.text);
}

/* --- the simulation ---------------------------------------------------------------------------------------------- */

static eo_transformer *transformer;
static eo_plan *plan;
static uint32_t operation_count;

static void make_plan(void)
{
    struct tool_options options;
    eo_transformer_config config;
    tool_options_init(&options);
    cr_assert_eq(eo_transformer_preset("tiny", &config), EO_OK);
    options.plan.threads = 1;
    cr_assert_eq(tool_job_plan(&options, &config, NULL, &transformer, &plan), EO_OK);
    operation_count = eo_plan_operation_count(plan, EO_LIST_STEADY);
    tool_options_fini(&options);
}

static void destroy_plan(void)
{
    eo_plan_destroy(&plan);
    eo_transformer_destroy(&transformer);
}

TestSuite(simulation, .init = make_plan, .fini = destroy_plan);

static uint64_t *durations_from(uint64_t seed)
{
    uint64_t *durations_ns = calloc(operation_count, sizeof(*durations_ns));
    for (uint32_t i = 0; i < operation_count; i++)
        durations_ns[i] = 1000 + tool_data_draw(seed, i) % 100000;
    return durations_ns;
}

Test(simulation, one_rank_and_equal_ranks_take_what_the_plan_says)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        uint64_t *durations_ns = durations_from(seed), planned, one, three;
        const uint64_t *ranks[] = {durations_ns, durations_ns, durations_ns};
        cr_assert_eq(eo_plan_simulate(plan, EO_LIST_STEADY, durations_ns, 4, &planned), EO_OK);
        cr_assert_eq(tool_simulate_ranks(plan, 1, ranks, 4, &one), EO_OK);
        cr_assert_eq(tool_simulate_ranks(plan, 3, ranks, 4, &three), EO_OK);
        cr_assert_eq(one, planned);
        cr_assert_eq(three, planned);
        free(durations_ns);
    }
}

Test(simulation, ranks_that_are_slow_in_turn_take_longer_than_each_alone)
{
    /* Rank 0 is slow in forward, rank 1 in backward: each waits for the other at the collectives. */
    uint64_t *slow_forward = durations_from(1), *slow_backward = durations_from(1), alone[2], together;
    for (uint32_t i = 0; i < operation_count; i++) {
        eo_plan_operation operation;
        cr_assert_eq(eo_plan_get_operation(plan, EO_LIST_STEADY, i, &operation), EO_OK);
        slow_forward[i] = operation.kind == EO_OP_FORWARD ? 1000000 : 10;
        slow_backward[i] = operation.kind == EO_OP_BACKWARD ? 1000000 : 10;
    }
    const uint64_t *ranks[] = {slow_forward, slow_backward};
    cr_assert_eq(tool_simulate_ranks(plan, 1, &ranks[0], 4, &alone[0]), EO_OK);
    cr_assert_eq(tool_simulate_ranks(plan, 1, &ranks[1], 4, &alone[1]), EO_OK);
    cr_assert_eq(tool_simulate_ranks(plan, 2, ranks, 4, &together), EO_OK);
    cr_assert_gt(together, alone[0] + 1000000);
    cr_assert_gt(together, alone[1] + 1000000);
    cr_assert_leq(together, alone[0] + alone[1]);
    cr_assert_lt(tool_simulate_ranks(plan, 2, ranks, 1, &together), 0);
    free(slow_forward);
    free(slow_backward);
}

/* ---- memory ---- */

static void write_in(const char *root, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

/* Container runtimes name groups so; those of version 1 stand under the name of their controller. */
Test(memory_check, a_group_with_a_colon_in_its_name_is_found)
{
    char root[] = "/tmp/run_parts.XXXXXX", command[80];
    cr_assert(mkdtemp(root));
    write_in(root, "proc/self/cgroup", "0::/system.slice/system.slice:docker:0123\n");
    write_in(root, "sys/fs/cgroup/system.slice/system.slice:docker:0123/memory.max", "1000000\n");
    write_in(root, "sys/fs/cgroup/system.slice/system.slice:docker:0123/memory.current", "400000\n");
    cr_assert_eq(tool_control_groups_available(root), 600000);
    write_in(root, "sys/fs/cgroup/system.slice/system.slice:docker:0123/memory.high", "max\n");
    cr_assert_eq(tool_control_groups_available(root), 600000);
    write_in(root, "sys/fs/cgroup/system.slice/system.slice:docker:0123/memory.high", "700000\n");
    cr_assert_eq(tool_control_groups_available(root), 300000, "beyond it the kernel holds processes up");
    write_in(root, "proc/self/cgroup", "5:cpu:/a\n4:memory:/a:b\n0::/\n");
    write_in(root, "sys/fs/cgroup/memory/a:b/memory.limit_in_bytes", "300000\n");
    write_in(root, "sys/fs/cgroup/memory/a:b/memory.usage_in_bytes", "100000\n");
    cr_assert_eq(tool_control_groups_available(root), 200000);
    write_in(root, "sys/fs/cgroup/memory/a:b/memory.stat", "inactive_file 0\ntotal_inactive_file 60000\n");
    cr_assert_eq(tool_control_groups_available(root), 260000, "the file cache of groups in it can be dropped, too");
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

Test(memory_check, a_system_that_promises_no_more_than_it_has_bounds_what_is_available)
{
    char root[] = "/tmp/run_parts.XXXXXX", command[80];
    cr_assert(mkdtemp(root));
    write_in(root, "proc/meminfo", "MemAvailable: 5000 kB\nCommitLimit:      3000 kB\nCommitted_AS:     1000 kB\n");
    cr_assert_eq(tool_commitment_available(root), UINT64_MAX);
    write_in(root, "proc/sys/vm/overcommit_memory", "0\n");
    cr_assert_eq(tool_commitment_available(root), UINT64_MAX);
    write_in(root, "proc/sys/vm/overcommit_memory", "2\n");
    cr_assert_eq(tool_commitment_available(root), 2000 * 1024);
    write_in(root, "proc/sys/vm/admin_reserve_kbytes", "500\n");
    cr_assert_eq(tool_commitment_available(root), 1500 * 1024, "the kernel keeps this for an administrator");
    write_in(root, "proc/sys/vm/user_reserve_kbytes", "50\n");
    cr_assert_eq(tool_commitment_available(root), 1450 * 1024);
    write_in(root, "proc/sys/vm/user_reserve_kbytes", "100405\n");
    cr_assert_eq(tool_commitment_available(root), (1500 - 3000 / 32) * 1024, "a 32nd at most");
    write_in(root, "proc/sys/vm/admin_reserve_kbytes", "8192\n");
    cr_assert_eq(tool_commitment_available(root), 0);
    write_in(root, "proc/meminfo", "CommitLimit:      3000 kB\nCommitted_AS:     4000 kB\n");
    cr_assert_eq(tool_commitment_available(root), 0);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

/* A run of ten times the points: losses fall, the last one of a thousand steps is slow, and every seventh taught nothing. */
Test(run_parts, the_course_of_a_long_run_takes_no_more_memory)
{
    enum { STEPS = 10 * TOOL_COURSE_POINTS };
    static struct tool_course course;
    tool_course_step(&course, 9, 50, 5);
    cr_assert(tool_course_step_s(&course) == 50 && tool_course_host_s(&course) == 5 && tool_course_last_loss(&course) == 9);
    for (uint64_t s = 1; s < STEPS; s++)
        tool_course_step(&course, s % 7 == 0 ? NAN : 8 - 6 * (double)s / STEPS, s % 1000 == 0 ? 30 : 1 + (double)(s % 3), 0.5);
    cr_assert(course.step_count == STEPS && course.first_loss == 9);
    cr_assert(course.point_count > TOOL_COURSE_POINTS / 2 && course.point_count <= TOOL_COURSE_POINTS);
    const double width = (double)(UINT64_C(1) << course.width_log2);
    for (uint32_t p = 1; p < course.point_count; p++)
        cr_assert_float_eq(course.losses[p], 8 - 6 * width * (p + 0.5) / STEPS, 0.005, "point %u", p);
    cr_assert_float_eq(tool_course_last_loss(&course), 2, 0.001);
    cr_assert(tool_course_step_s(&course) == 2 && tool_course_host_s(&course) == 0.5);
    uint32_t slow = 0;
    for (uint32_t i = 0; i < course.taken; i++)
        slow += course.step_s[i] == 30;
    cr_assert(course.taken == TOOL_COURSE_POINTS && slow > 4 && slow < 40, "%u", slow); /* 16 of 16,384 */
}
