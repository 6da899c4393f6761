/* SPDX-License-Identifier: MIT
 *
 * Goal: all that is printed comes to its reader, also where no thread can be started to wait for it.
 * Method: a pipe that is full at once and that its other end has made O_NONBLOCK; pthread_create refuses.
 */
#include "tools/shared/patient_output.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { PRINTED = 1 << 20 };

static bool refuses_threads;

int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    return refuses_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, arg);
}

static char letter(size_t place)
{
    return (char)('a' + place % 26);
}

static void *read_slowly(void *end)
{
    static char bytes[4000];
    size_t count = 0;
    for (ssize_t got; (got = read(*(int *)end, bytes, sizeof(bytes))) > 0;) {
        for (ssize_t i = 0; i < got; i++)
            count += bytes[i] == letter(count); /* one that is missing, or elsewhere, ends it */
        usleep(500);
    }
    return (void *)count;
}

static size_t count_of_read(bool threads_are_refused)
{
    static char text[PRINTED];
    int ends[2];
    pthread_t reader;
    void *count;
    FILE *stream = fopen("/dev/null", "w");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = letter(i);
    cr_assert(stream && pipe(ends) == 0 && dup2(ends[1], STDIN_FILENO) == STDIN_FILENO && close(ends[1]) == 0);
    cr_assert_eq(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK), 0);
    tool_patient_begin(&stream, STDIN_FILENO, _IOFBF);
    cr_assert_eq(pthread_create(&reader, NULL, read_slowly, &ends[0]), 0);
    refuses_threads = threads_are_refused;
    for (size_t i = 0; i < sizeof(text); i += sizeof(text) / 512) /* behind some of it that is not read yet, and some that is */
        cr_assert(fwrite(text + i, 1, sizeof(text) / 512, stream) == sizeof(text) / 512);
    cr_assert_eq(fflush(stream), 0);
    cr_assert(tool_patient_end(-1));
    close(STDIN_FILENO);
    cr_assert_eq(pthread_join(reader, &count), 0);
    return (size_t)count;
}

Test(patient_output, comes_whole_to_a_slow_reader)
{
    cr_assert_eq(count_of_read(false), PRINTED);
}

Test(patient_output, comes_whole_where_no_thread_can_be_started)
{
    cr_assert_eq(count_of_read(true), PRINTED);
}
