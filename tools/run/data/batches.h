/* SPDX-License-Identifier: MIT
 *
 * What is trained on: the bytes of files and folders, or a token file of llm.c. Batches are a function of (seed,
 * step, place in the global batch), so they do not depend on how many ranks share them:
 *
 *     text     sequence k of the run, k = step x G + (m x W + r) x B + b, begins at a place drawn from (seed, k);
 *              G = W x B x M. The same G gives the same set of sequences in every step
 *     tokens   sequence k, counted as of text, is piece k mod N of the files' N pieces of T tokens: llm.c's order, but it leaves
 *              out the last pieces of a pass that fill no batch
 *     tokens, shuffled   likewise; each piece comes once in every N, in an order drawn from (seed, k / N)
 *     tokens, packed     likewise, of the N rows of packing.h
 */
#ifndef EO_TOOLS_RUN_DATA_BATCHES_H
#define EO_TOOLS_RUN_DATA_BATCHES_H

#include "tools/run/data/packing.h"

/* Who made a token file, as bytes 12 to 39 of its header say it (tools/tokenize; llm.c leaves them 0). */
struct tool_token_origin {
    bool is_known;
    uint32_t vocabulary;
    uint32_t boundary;       /* the token that stands before each document; UINT32_MAX: none */
    uint64_t tokenizer_hash; /* FNV-1a of its tokenizer.json; 0: not known */
    bool ends_itself;        /* documents have tokens of their own for the end; else the next one's boundary ends a text */
    uint32_t end;            /* the token for the end of text; the boundary, unless ends_itself */
};

struct tool_data {
    bool is_text;
    uint32_t token_bytes;    /* 1: text */
    const void *tokens;      /* own_count of them */
    uint64_t own_count;
    const uint8_t *counted;  /* token files: a bit a token, the lowest first, where it counts as a target; NULL: all do */
    struct tool_data *next;  /* token files: the next one, as if its tokens stood behind; of it only what stands above counts */
    struct tool_token_origin origin; /* token files: all agree, but for the boundary where nothing is packed */
    uint64_t count;          /* of all files */
    uint64_t training_count; /* the first ones; what follows is held back */
    bool is_shuffled;        /* token files */
    bool is_packed;          /* token files: a sequence is a row of documents, */
    struct tool_packing training, held_back; /* of these */
    bool is_held_apart;      /* what is held back has a file of its own */
    uint32_t file_count;     /* that are trained on */
    char warning[700];       /* "": none; for people */
    void *owned;             /* text */
    const void *map;         /* token file (mapped_file.h): after a batch, tool_map_check says whether it is worth anything */
    uint64_t map_bytes;
    uint64_t origin_step, origin_sequence; /* [0, 0] a run that goes on from a checkpoint: what was read before that step */
};

/* W, B, T, M. */
struct tool_batch_shape {
    uint32_t rank_count, batch, seq, micro_batches;
};

/* The token for the end of text. NULL: not known, or not the same in all token files. */
const uint32_t *tool_data_end_of_text(const struct tool_data *data);

/*
 * Folders are read in the order of their names, without what is hidden, linked, binary (a NUL byte in it), above
 * 64 MiB or in a build folder; a file that is named is refused where it is no text. All three calls change nothing when they
 * fail: EO_ERR_IO, EO_ERR_INVALID, EO_ERR_NO_MEMORY.
 */
EO_NODISCARD eo_status tool_data_load_text(struct tool_data *data, const char *const *paths, uint32_t path_count,
                                           struct tool_problem *problem);

/* Every token is held against the vocabulary. `hold_back`: the last tenth is not trained on. */
EO_NODISCARD eo_status tool_data_map_tokens(struct tool_data *data, const char *path, uint32_t vocabulary, bool hold_back,
                                            struct tool_problem *problem);

/* Several files, as if they were one. What is held back is the file `held_back`, where that is not NULL. */
struct tool_token_files {
    const char *const *paths;
    uint32_t path_count;
    const char *held_back;
};
EO_NODISCARD eo_status tool_data_map_files(struct tool_data *data, const struct tool_token_files *files, uint32_t vocabulary,
                                           bool hold_back, struct tool_problem *problem);

uint32_t tool_data_token(const struct tool_data *data, uint64_t index);
/* The same as a target: -100 if it does not count. */
int32_t tool_data_target(const struct tool_data *data, uint64_t index);

/* Token `index`, as it lies in its file, for who looks at its bytes. */
const void *tool_data_at(const struct tool_data *data, uint64_t index, uint32_t *token_bytes);
void tool_data_fini(struct tool_data *data);

/* Packs the documents of token files with one boundary into rows of seq tokens. EO_ERR_INVALID, EO_ERR_NO_MEMORY. */
EO_NODISCARD eo_status tool_data_pack(struct tool_data *data, uint32_t seq, struct tool_problem *problem);

/* Whether one of the files says which tokens count as targets, as far as its header can be read. */
bool tool_data_has_marks(const struct tool_token_files *files);

/* Enough for a batch, and for one of held-back text if `validation`. */
EO_NODISCARD eo_status tool_data_check(const struct tool_data *data, const struct tool_batch_shape *shape, bool validation,
                                       struct tool_problem *problem);

/* batch x seq of each: tokens, what follows each of them (-100: it does not count), and, of packed documents, the tokens'
 * positions in them (else NULL). */
struct tool_batch {
    int32_t *tokens, *targets, *positions;
};

/* Allocates nothing. */
void tool_data_batch(const struct tool_data *data, const struct tool_batch_shape *shape, uint64_t seed, uint64_t step,
                     uint32_t micro_batch, uint32_t rank, const struct tool_batch *out);

/* Sequences of what is held back that a validation looks at: all of them, or 32 drawn once, whatever the number of ranks, the
 * batch and the seed are. */
uint32_t tool_data_validation_count(const struct tool_data *data, uint32_t seq);

/* The index-th batch of them, the same in every call. Behind the last stand others, whose targets do not count (-100). */
void tool_data_validation_batch(const struct tool_data *data, const struct tool_batch_shape *shape, uint32_t index,
                                uint32_t rank, const struct tool_batch *out);

/* Targets of a batch that count. */
uint64_t tool_batch_counted(const struct tool_batch *batch, const struct tool_batch_shape *shape);

/* `count` tokens from the beginning of what is held back (text: from the beginning of a line). */
void tool_data_prompt(const struct tool_data *data, uint32_t count, int32_t *tokens);

/* A number from (seed, k), well spread. */
uint64_t tool_data_draw(uint64_t seed, uint64_t k);

#endif
