/* SPDX-License-Identifier: MIT
 *
 * For tests that are plain programs: lines of TAP. Of a program's files all write into one count, from any thread.
 *
 *     tap(holds, "a sentence");                                a line by itself; or
 *     CHECK(a < b, "a is %d", a); CHECK_THAT(a < b);           expectations, noted where they fail,
 *     CHECK_IS(f(), EO_OK);                                    and
 *     tap_case("a sentence");                                  the line of all since the line before
 *     return tap_end();                                        the plan, and the exit status
 */
#ifndef EO_TESTS_TAP_TAP_H
#define EO_TESTS_TAP_TAP_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TAP_NOTES_SHOWN = 8 }; /* of a case */

/* Weak: one in the program, whatever number of its files has this header. */
struct tap_program {
    int count, failures;
    bool is_silent;                            /* another process prints the lines */
    _Atomic uint32_t own_notes, *shared_notes; /* NULL, or where ranks that are processes note, too */
};
__attribute__((weak)) struct tap_program tap_program;

static inline _Atomic uint32_t *tap_notes(void)
{
    return tap_program.shared_notes ? tap_program.shared_notes : &tap_program.own_notes;
}

/* Notes that something does not hold; the next tap_case fails. */
static inline void tap_vnote(const char *file, int line, const char *format, va_list arguments)
{
    if (atomic_fetch_add(tap_notes(), 1) >= TAP_NOTES_SHOWN)
        return;
    flockfile(stdout);
    printf("# %s:%d: ", file, line);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    funlockfile(stdout);
}

__attribute__((format(printf, 3, 4))) static inline void tap_note(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tap_vnote(file, line, format, arguments);
    va_end(arguments);
}

#define CHECK(condition, ...)                          \
    do {                                               \
        if (!(condition))                              \
            tap_note(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)
#define CHECK_THAT(condition) CHECK(condition, "%s does not hold", #condition)
#define CHECK_IS(call, wanted)                                                                                     \
    do {                                                                                                           \
        const int check_got = (int)(call);                                                                         \
        CHECK(check_got == (int)(wanted), "%s gave %d, wanted %s (%d)", #call, check_got, #wanted, (int)(wanted)); \
    } while (0)

__attribute__((format(printf, 2, 3))) static inline bool tap(bool holds, const char *format, ...)
{
    va_list arguments;
    tap_program.count++;
    tap_program.failures += !holds;
    if (tap_program.is_silent)
        return holds;
    flockfile(stdout);
    printf("%s %d - ", holds ? "ok" : "not ok", tap_program.count);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    funlockfile(stdout);
    return holds;
}

static inline void tap_case(const char *name)
{
    tap(atomic_exchange(tap_notes(), 0) == 0, "%s", name);
}

static inline void tap_skip(const char *name, const char *reason)
{
    tap(true, "%s # SKIP %s", name, reason);
}

/* Instead of all lines; the exit status. */
__attribute__((format(printf, 1, 2))) static inline int tap_skip_all(const char *format, ...)
{
    va_list arguments;
    printf("1..0 # SKIP ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    return 0;
}

/* A program without a line has shown nothing. */
static inline int tap_end(void)
{
    if (!tap_program.is_silent)
        printf("1..%d\n", tap_program.count);
    return tap_program.failures != 0 || tap_program.count == 0;
}

#endif
