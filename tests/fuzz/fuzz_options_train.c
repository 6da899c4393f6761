/* SPDX-License-Identifier: MIT
 *
 * The options of train: those that all training programs share, and those of exports, checkpoints and worlds.
 */
#include "tests/fuzz/fuzz_options.h"

#define main train_program /* its parser is its own */
#include "tools/train.c"
#undef main

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const struct argp_child children[] = {{.argp = &eo_options_argp}, {.argp = &eo_export_argp},
                                         {.argp = &eo_checkpoint_argp}, {.argp = &eo_job_world_argp}, {0}};
    const struct argp argp = {.options = train_options, .parser = parse_train_option, .children = children};
    static struct eo_job_world world;
    static struct train_settings settings;
    memset(&world, 0, sizeof(world));
    settings = (struct train_settings){.world = &world, .sample_count = SAMPLE_DEFAULT};
    eo_options_init(&settings.common);
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&argp, 0, &words, &settings)) {
        const struct eo_options *o = &settings.common;
        FUZZ_HOLDS(o->ranks >= 1 && o->ranks <= EO_PLAN_RANKS_MAX && o->threads >= 1 && o->batch >= 1 && o->micro_batches >= 1);
        FUZZ_HOLDS(o->plan_only || o->ranks <= EO_RUN_RANKS_MAX);
        FUZZ_HOLDS(o->warmup <= o->steps && o->gather_slots >= 1 && o->gradient_slots >= 1);
        FUZZ_HOLDS(eo_options_learning_rate(o, o->steps - 1) >= 0);
    }
    eo_options_fini(&settings.common);
    free(words.text);
    return 0;
}
