/* SPDX-License-Identifier: MIT
 *
 * Inputs for who reads files of flight recorders, without the zeros: the head, a line for each note and name, the entries.
 */
#ifndef EO_TESTS_FUZZ_FLIGHT_FILE_H
#define EO_TESTS_FUZZ_FLIGHT_FILE_H

#include <string.h>

#include "runtime/flight/recorder.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_FLIGHT_BYTES_MAX = 1 << 17 };

/* The file of this name, as long as its head says where that is not absurd. */
static inline const char *fuzz_flight_file(const char *name, const uint8_t *data, size_t bytes)
{
    static unsigned char image[FUZZ_FLIGHT_BYTES_MAX];
    struct flight_head head = {0};
    const uint8_t *end = data + bytes;
    const size_t head_bytes = bytes < sizeof(head) ? bytes : sizeof(head);
    memset(image, 0, sizeof(image));
    if (bytes)
        memcpy(&head, data, head_bytes);
    memcpy(image, &head, sizeof(head));
    data += head_bytes;
    const uint64_t name_count = FLIGHT_NOTES + (uint64_t)head.name_count;
    const uint64_t entries = FLIGHT_PAGE + (name_count * FLIGHT_NAME_BYTES + 63) / 64 * 64;
    const uint64_t wanted = entries + head.capacity * (uint64_t)sizeof(struct eo_timeline_entry);
    for (uint64_t i = 0; i < name_count && data < end && FLIGHT_PAGE + (i + 1) * FLIGHT_NAME_BYTES <= sizeof(image); i++) {
        const uint8_t *line_end = memchr(data, '\n', (size_t)(end - data));
        const size_t length = (size_t)((line_end ? line_end : end) - data);
        memcpy(image + FLIGHT_PAGE + i * FLIGHT_NAME_BYTES, data, length < FLIGHT_NAME_BYTES ? length : FLIGHT_NAME_BYTES);
        data += length + (line_end != NULL);
    }
    const size_t left = (size_t)(end - data);
    if (left && entries < sizeof(image))
        memcpy(image + entries, data, left < sizeof(image) - entries ? left : sizeof(image) - entries);
    return fuzz_file(name, image, head_bytes < sizeof(head) ? head_bytes : wanted <= sizeof(image) ? wanted : 2 * FLIGHT_PAGE);
}

#endif
