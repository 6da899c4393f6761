/* SPDX-License-Identifier: MIT
 *
 * A flight recorder: what a rank did last, in the schedule's terms, kept where it outlives the process. The runtime
 * writes its timeline (a fixed ring, made at create) into a file that is mapped, so nothing is copied, no call of the
 * system is made in a step, and a process that is killed leaves all of it. Each rank has a file of its own;
 * tools/postmortem merges them. A file that others cut short during the run ends the process by SIGBUS.
 */
#ifndef EVENODD_FLIGHT_RECORDER_H
#define EVENODD_FLIGHT_RECORDER_H

#include <evenodd/common.h>
#include <evenodd/log.h>
#include <evenodd/status.h>

/* For one runtime at a time (eo_runtime_params.recorder), which it must outlive. */
typedef struct eo_flight_recorder eo_flight_recorder;

typedef struct eo_flight_recorder_params {
    const char *path;          /* [none: memory alone, for eo_flight_recorder_last] an old file of a recorder is replaced;
                                  evenodd-postmortem reads names that end in .flight */
    uint32_t rank, rank_count; /* required */
    const char *host;          /* [""] */
    uint64_t run;              /* [0] the same on all ranks of a start of the job, and on no others */
    const eo_log *log;         /* [silence] copied */
} eo_flight_recorder_params;
#define eo_flight_recorder_params(...) EO_PARAMS(eo_flight_recorder_params, __VA_ARGS__)

/* A file that is read. */
typedef struct eo_flight_log eo_flight_log;

typedef struct eo_flight_info {
    uint32_t rank, rank_count, process;
    char host[64];
    bool finished;         /* the recorder was destroyed in order */
    uint64_t first, count; /* entries [first, count) are there: the n-th of every rank is the same operation */
    uint64_t steps;        /* finished ones */
    char note[64];         /* what the trainer was doing outside the schedule, or "" */
    int64_t clock_ns;      /* to be added to times: since 1970 */
    uint64_t run;          /* files of one folder may be of several */
    int64_t made_ns;       /* since 1970 */
} eo_flight_info;

typedef struct eo_flight_entry {
    uint64_t step;   /* from 1 */
    const char *name, *kind; /* as long as the log is open */
    bool collective;
    uint64_t issued_ns, start_ns, end_ns; /* 0: not yet. Of a collective on a CPU start is known with end */
} eo_flight_entry;

#ifdef __cplusplus
extern "C" {
#endif

/* EO_OK, EO_ERR_INVALID (another file has the path, say: logged), EO_ERR_IO (the file cannot be written: logged),
 * EO_ERR_NO_MEMORY. */
#define eo_flight_recorder_create EO_OF_API(eo_flight_recorder_create)
EO_EXPORT EO_NODISCARD eo_status eo_flight_recorder_create(eo_flight_recorder **out,
                                                           const eo_flight_recorder_params *params);
/* The file stays, and says that all ended in order unless something was still in progress. Writes NULL. */
EO_EXPORT void eo_flight_recorder_destroy(eo_flight_recorder **recorder);

/* "step 12, reduce-scatter of block.3": the newest operation, or the note. Any thread; waits for nothing. */
EO_EXPORT void eo_flight_recorder_last(const eo_flight_recorder *recorder, char *text, size_t bytes);
/* What the trainer does outside the schedule ("checkpoint"), copied; NULL: no more. 16 different texts, by their first 127
 * bytes. One thread. NULL as recorder is taken. */
EO_EXPORT void eo_flight_recorder_note(eo_flight_recorder *recorder, const char *text);

/* EO_OK, EO_ERR_IO (not there, or no flight recorder's file: logged), EO_ERR_NO_MEMORY. */
#define eo_flight_log_open EO_OF_API(eo_flight_log_open)
EO_EXPORT EO_NODISCARD eo_status eo_flight_log_open(eo_flight_log **out, const char *path, const eo_log *log);
EO_EXPORT void eo_flight_log_close(eo_flight_log **flight);
EO_EXPORT eo_flight_info eo_flight_log_info(const eo_flight_log *flight);
/* False: not kept, or not yet written in full when the process ended. */
EO_EXPORT bool eo_flight_log_entry(const eo_flight_log *flight, uint64_t index, eo_flight_entry *out);

#ifdef __cplusplus
}
#endif

#endif
