/* SPDX-License-Identifier: MIT
 *
 * The CUDA device as far as it goes without a GPU: what is said where there is none, and how errors are mapped. What it
 * does is tested in the simulator (tests/simulator).
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "eo_config.h"
#include "streams/device.h"
#if EO_HAVE_CUDA
#include "streams/cuda/errors.h"
#endif

struct lines {
    char text[4000];
    int errors;
};

static void keep_line(void *user, eo_log_level level, const char *text)
{
    struct lines *lines = user;
    lines->errors += level == EO_LOG_ERROR;
    const size_t used = strlen(lines->text);
    (void)snprintf(lines->text + used, sizeof(lines->text) - used, "%s\n", text);
}

/*
 * Goal: asking for a GPU where there is none says what is missing, and leaves nothing behind.
 * Method: create it; where this machine has one, there is nothing to see here.
 */
Test(device_cuda, without_a_gpu_creating_it_says_what_is_missing)
{
    struct lines lines = {.errors = 0};
    const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_DEBUG};
    struct eo_device *device = NULL;
    const struct eo_device_params params = {.queue_count = 3, .ring_capacity = 8, .rank_count = 1, .log = &log};
    const eo_status status = eo_device_create(&device, "cuda", &params);
    if (status == EO_OK) {
        eo_device_destroy(&device);
        cr_skip("this machine has a GPU");
    }
    cr_expect_eq(status, EO_ERR_UNSUPPORTED, "%s", eo_status_text(status));
    cr_expect_null(device);
    cr_expect_eq(lines.errors, 1, "one failure, one line:\n%s", lines.text);
#if EO_HAVE_CUDA
    cr_expect(eo_device_is_known("cuda"));
    cr_expect(strstr(lines.text, "driver") != NULL, "%s", lines.text);
#else
    cr_expect(!eo_device_is_known("cuda"));
    cr_expect(strstr(lines.text, "-Dcuda=enabled") != NULL, "%s", lines.text);
#endif
}

#if EO_HAVE_CUDA
/*
 * Goal: memory that is missing is told from a GPU that is lost, and both name what was being done.
 * Method: every code that the runtime has a name for is mapped; the sticky ones are those of CUDA's description.
 */
Test(device_cuda, errors_are_mapped_once_and_name_the_operation)
{
    static const int sticky[] = {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 911};
    size_t seen = 0;
    for (int code = 1; code < 1000; code++) {
        const cudaError_t error = (cudaError_t)code;
        if (strcmp(cudaGetErrorName(error), "unrecognized error code") == 0)
            continue;
        struct lines lines = {.errors = 0};
        const eo_log log = {.write = keep_line, .user = &lines, .level = EO_LOG_DEBUG};
        const eo_status status = eo_cuda_status(&log, 3, error, "adamw");
        if (code == 600) {
            cr_expect_eq(status, EO_IN_PROGRESS);
            cr_expect_eq(lines.errors, 0);
            continue;
        }
        cr_expect_eq(status, code == 2 ? EO_ERR_NO_MEMORY : EO_ERR_DEVICE, "code %d", code);
        cr_expect_eq(lines.errors, 1);
        cr_expect(strstr(lines.text, "rank 3: adamw: ") == lines.text, "%s", lines.text);
        bool is_sticky = false;
        for (size_t i = 0; i < sizeof(sticky) / sizeof(sticky[0]); i++)
            is_sticky |= sticky[i] == code;
        seen += is_sticky;
        cr_expect_eq(eo_cuda_is_sticky(error), is_sticky, "code %d", code);
        cr_expect_eq(strstr(lines.text, "lost to this process") != NULL, is_sticky, "%s", lines.text);
    }
    cr_expect_eq(seen, sizeof(sticky) / sizeof(sticky[0]), "some of the sticky codes have no name");
    cr_expect_eq(eo_cuda_status(NULL, 0, cudaSuccess, "nothing"), EO_OK);
}
#endif
