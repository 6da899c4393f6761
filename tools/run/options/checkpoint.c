/* SPDX-License-Identifier: MIT */
#include "tools/run/checkpoint/checkpoint.h"
#include "tools/shared/arguments.h"

enum { CHECKPOINT_FOLDER = 0x400, CHECKPOINT_EVERY, CHECKPOINT_KEEP, CHECKPOINT_RESUME, CHECKPOINT_USED, CHECKPOINT_IN_PLACE };

static const struct argp_option checkpoint_option_table[] = {
    {"checkpoint", CHECKPOINT_FOLDER, "DIR", 0,
     "save the run at its end in DIR (also after Ctrl-C), in a folder for each step", 4},
    {"checkpoint-every", CHECKPOINT_EVERY, "N", 0, "also save every N steps, beside training", 4},
    {"keep", CHECKPOINT_KEEP, "K", 0, "keep only the newest K checkpoints [all]", 4},
    {"resume", CHECKPOINT_RESUME, "DIR", OPTION_ARG_OPTIONAL,
     "continue from DIR, or from the newest complete checkpoint in it [the folder of --checkpoint; without a checkpoint there, "
     "from the start]", 4},
    {"checkpoint-used", CHECKPOINT_USED, NULL, 0,
     "save in DIR beside the checkpoints of another run; --keep then counts and removes those too [without this only --resume "
     "accepts such a folder]", 4},
    {"checkpoint-in-place", CHECKPOINT_IN_PLACE, NULL, 0,
     "on GPUs: write offloaded state from where it lies; updates wait for it [a copy of it, where host memory has room]", 4},
    {0},
};

/* "--resume DIR" as well as "--resume=DIR": a word that is no option belongs to it. */
static const char *next_word(struct argp_state *state)
{
    if (state->next >= state->argc || state->argv[state->next][0] == '-')
        return NULL;
    return state->argv[state->next++];
}

static error_t parse_checkpoint_option(int key, char *text, struct argp_state *state)
{
    struct tool_checkpoint_options *options = state->input;
    switch (key) {
    case CHECKPOINT_FOLDER: options->folder = text; return 0;
    case CHECKPOINT_EVERY:
        options->every = tool_option_count(state, "checkpoint-every", text, 1, 1000000000);
        return 0;
    case CHECKPOINT_KEEP:
        options->keep = (uint32_t)tool_option_count(state, "keep", text, 1, 1000000);
        return 0;
    case CHECKPOINT_RESUME:
        options->resume = true;
        options->resume_path = text ? text : next_word(state);
        return 0;
    case CHECKPOINT_USED: options->used = true; return 0;
    case CHECKPOINT_IN_PLACE: options->in_place = true; return 0;
    case ARGP_KEY_END:
        if ((options->every || options->keep || options->used || options->in_place) && !options->folder)
            argp_error(state, "--checkpoint-every, --checkpoint-in-place, --checkpoint-used and --keep need --checkpoint; "
                              "name its folder");
        if ((options->folder && !options->folder[0]) || (options->resume_path && !options->resume_path[0]))
            argp_error(state, "the folder of --checkpoint or --resume is empty; name one");
        if (options->resume && !options->resume_path && !options->folder)
            argp_error(state, "--resume: no folder; name it here, or with --checkpoint");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp tool_checkpoint_argp = {.options = checkpoint_option_table, .parser = parse_checkpoint_option};
