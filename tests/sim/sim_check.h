/* SPDX-License-Identifier: MIT
 *
 * TAP for the simulator's plain programs: expectations are counted, a case ends with a line.
 */
#ifndef EO_TESTS_SIM_CHECK_H
#define EO_TESTS_SIM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

void check_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define CHECK(condition, ...)                                                                                         \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            check_fail(__FILE__, __LINE__, __VA_ARGS__);                                                              \
    } while (0)
#define CHECK_THAT(condition) CHECK(condition, "%s does not hold", #condition)
#define CHECK_IS(call, wanted)                                                                                        \
    do {                                                                                                              \
        const int check_got = (int)(call);                                                                            \
        CHECK(check_got == (int)(wanted), "%s gave %d, wanted %s (%d)", #call, check_got, #wanted, (int)(wanted));      \
    } while (0)

/* Ends the case: one TAP line. */
void check_case(const char *name);
/* The plan; the exit status. */
int check_end(void);

#endif
