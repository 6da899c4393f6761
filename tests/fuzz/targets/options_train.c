/* SPDX-License-Identifier: MIT
 *
 * The options of train: those that all training programs share, and those of exports, checkpoints and worlds.
 */
#include "tests/fuzz/options.h"

#include <stdlib.h>
#include <string.h>

#include "tools/train/train.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 1024};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tool_job_world world;
    static struct train_settings settings;
    memset(&world, 0, sizeof(world));
    settings = (struct train_settings){.world = &world};
    tool_options_init(&settings.common);
    struct fuzz_words words = fuzz_words_of(data, bytes);
    if (fuzz_options_parse(&tool_train_argp, 0, &words, &settings)) {
        const struct tool_options *o = &settings.common;
        FUZZ_HOLDS(o->plan.ranks >= 1 && o->plan.ranks <= TOOL_PLAN_RANKS_MAX && o->plan.threads >= 1 && o->plan.batch >= 1 &&
                   o->plan.micro_batches >= 1);
        FUZZ_HOLDS(o->plan_only || o->plan.ranks <= TOOL_RUN_RANKS_MAX);
        FUZZ_HOLDS(o->warmup <= o->steps && o->plan.gather_slots >= 1 && o->plan.gradient_slots >= 1);
        FUZZ_HOLDS(tool_options_learning_rate(o, o->steps - 1) >= 0);
    }
    tool_options_fini(&settings.common);
    free(words.text);
    return 0;
}
