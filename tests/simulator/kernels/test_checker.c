/* SPDX-License-Identifier: MIT
 *
 * The checker of kernels finds each fault of broken.cu, by its words, and nothing in what is sound; and it counts the bytes
 * that a launch touches. Its memory stays small.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alone.h"
#include "kernels.h"
#include "tests/tap/tap.h"

void broken_load(void);
void broken_opt_in(int bytes);
void broken_run(int which, float *out, const float *in);

enum { FLOATS = 256 };
static _Alignas(16) float in[FLOATS + 8], out[FLOATS + 8];
static struct kernel_traffic last;

static const char *outcome(int which)
{
    alone_allow_nothing();
    for (int i = 0; i < FLOATS; i++)
        in[i] = (float)i, out[i] = 0;
    alone_allow(in, FLOATS * sizeof(float));
    alone_allow(out, FLOATS * sizeof(float));
    (void)alone_objection();
    broken_run(which, out, in);
    (void)cudaGetLastError();
    return alone_objection();
}

static void note(const struct kernel_traffic *traffic)
{
    last = *traffic;
}

static long resident_mib(void)
{
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &resident) != 2)
        abort();
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE) >> 20;
}

static void *one_launch(void *unused)
{
    (void)outcome(0);
    return unused;
}

/* Without an end each thread would leave 4 MiB, and each place of `many` 4 KiB. */
static void memory_stays_small(void)
{
    enum { THREADS = 40, PLACES = 20000 };
    const uint64_t bytes = PLACES * 512;
    pthread_t thread;
    float *many = aligned_alloc(512, bytes);
    const long before = resident_mib();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, one_launch, NULL) != 0 || pthread_join(thread, NULL) != 0)
            abort();
    CHECK(resident_mib() - before < 64, "%d threads that have ended left %ld MiB", THREADS, resident_mib() - before);
    if (!many)
        abort();
    for (int i = 0; i < PLACES; i++) {
        alone_allow_nothing();
        alone_allow(in, sizeof(in));
        alone_allow(many + i * 128, 512);
        broken_run(0, many + i * 128, in);
    }
    CHECK(alone_objection()[0] == '\0', "an objection");
    CHECK(resident_mib() - before < 64, "launches in %d places left %ld MiB", PLACES, resident_mib() - before);
    free(many);
    tap_case("memory stays small: threads that have ended leave none, and places never seen again little");
}

static const struct {
    int which;
    const char *words; /* of the objection; NULL: none */
} cases[] = {
    {0, NULL},
    {1, "no barrier lies between"},
    {2, "no barrier lies between"},
    {3, "which not all reach"},
    {4, "while thread"},
    {5, NULL},
    {6, NULL},
    {7, "names lanes that are not there"},
    {8, "has not the lane that calls"},
    {9, "which not all reach"},
    {10, NULL},
    {11, "beyond what was asked for"},
    {12, "of shared memory, where 49152 are allowed"},
    {13, "of shared memory in"},
    {14, "no thread of the block has written"},
    {15, NULL},
    {16, "is not aligned for"},
    {17, NULL},
    {18, "outside all arrays"},
    {19, "outside all arrays"},
    {20, NULL},
    {21, "no barrier lies between"},
    {22, "another block has written"},
    {23, "another block has"},
    {24, NULL},
    {25, "no barrier lies between"},
    {26, "other bits in another order"},
    {27, "a grid of 65536 in y"},
    {28, "1056 threads a block"},
    {29, "a grid of 0 in x"},
    {30, "is not aligned for"},
    {31, NULL},
    {32, "65 threads a block, but its __launch_bounds__ are 64"},
};

int main(void)
{
    const char *text = outcome(0);
    CHECK(strstr(text, "was not loaded"), "'%s'", text);
    tap_case("a kernel that was never loaded is not launched");
    broken_load();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        text = outcome(cases[i].which);
        CHECK(cases[i].words ? strstr(text, cases[i].words) != NULL : text[0] == '\0', "kernel %d: '%s', not '%s'",
              cases[i].which, text, cases[i].words ? cases[i].words : "");
    }
    tap_case("each fault of a kernel is found and named, and sound kernels pass");

    (void)outcome(0);
    for (int i = 0; i < 64; i++)
        CHECK(out[i] == (float)((i + 3) % 64), "%d: %g", i, (double)out[i]);
    (void)outcome(5);
    for (int i = 0; i < 64; i++)
        CHECK(out[i] == (float)(i ^ 1), "%d: %g", i, (double)out[i]);
    unsigned sum;
    (void)outcome(20);
    memcpy(&sum, out, sizeof(sum));
    CHECK(sum == 3 * 64 * 65 / 2, "atomics: %u", sum);
    broken_opt_in(64 << 10);
    text = outcome(12);
    CHECK(text[0] == '\0', "after opt-in: %s", text);
    tap_case("barriers, shuffles, atomics and shared memory do what they do on a GPU");

    kernel_on_traffic = note;
    (void)outcome(0);
    CHECK(strcmp(last.name, "rotate") == 0 && last.read_bytes == 256 && last.written_bytes == 256, "%s: %llu and %llu bytes",
          last.name, (unsigned long long)last.read_bytes, (unsigned long long)last.written_bytes);
    (void)outcome(20);
    CHECK(last.read_bytes + last.written_bytes == 4 && last.grid[0] == 3 && last.block[0] == 64, "%llu and %llu bytes",
          (unsigned long long)last.read_bytes, (unsigned long long)last.written_bytes);
    tap_case("of each launch the bytes read and written are counted, each address once");
    memory_stays_small();
    return tap_end();
}
