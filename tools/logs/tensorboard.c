/* SPDX-License-Identifier: MIT */
#include "tools/logs/tensorboard.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- protocol-buffer messages ------------------------------------------------------------------------------------- */

enum { MESSAGE_BYTES_MAX = 1024 };

struct message {
    uint8_t bytes[MESSAGE_BYTES_MAX];
    size_t count;
};

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Field numbers of TensorFlow's event.proto and summary.proto. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    SESSION_LOG_STATUS = 1,
    SESSION_LOG_START = 1,
};

static void add_bytes(struct message *m, const void *bytes, size_t count)
{
    if (count > sizeof(m->bytes) - m->count) /* tags are ours, and short */
        count = 0;
    memcpy(m->bytes + m->count, bytes, count);
    m->count += count;
}

static void add_varint(struct message *m, uint64_t value)
{
    uint8_t bytes[10];
    size_t count = 0;
    do {
        bytes[count++] = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
    } while (value);
    add_bytes(m, bytes, count);
}

static void add_key(struct message *m, uint32_t field, enum wire wire)
{
    add_varint(m, field << 3 | (uint32_t)wire);
}

/* Numbers lie with the lowest byte first, as on the machines that this runs on. */
static void add_double(struct message *m, uint32_t field, double value)
{
    add_key(m, field, WIRE_FIXED64);
    add_bytes(m, &value, sizeof(value));
}

static void add_float(struct message *m, uint32_t field, float value)
{
    add_key(m, field, WIRE_FIXED32);
    add_bytes(m, &value, sizeof(value));
}

static void add_number(struct message *m, uint32_t field, uint64_t value)
{
    add_key(m, field, WIRE_VARINT);
    add_varint(m, value);
}

static void add_field(struct message *m, uint32_t field, const void *bytes, size_t count)
{
    add_key(m, field, WIRE_BYTES);
    add_varint(m, count);
    add_bytes(m, bytes, count);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* CRC-32C (Castagnoli), "masked" as the record format asks. Records are short: a bit at a time will do. */
static uint32_t masked_checksum(const void *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void write_record(struct tool_tensorboard *board, const struct message *m)
{
    const uint64_t count = m->count;
    const uint32_t of_count = masked_checksum(&count, sizeof(count)), of_bytes = masked_checksum(m->bytes, m->count);
    fwrite(&count, sizeof(count), 1, board->file);
    fwrite(&of_count, sizeof(of_count), 1, board->file);
    fwrite(m->bytes, 1, m->count, board->file);
    fwrite(&of_bytes, sizeof(of_bytes), 1, board->file);
    if (fflush(board->file) == 0 && !ferror(board->file))
        return;
    fprintf(stderr, "%s: --tensorboard %s: cannot be written: %s; training continues without it\n",
            program_invocation_short_name, board->folder, strerror(errno));
    fclose(board->file);
    board->file = NULL;
    board->is_lost = true;
}

static struct message event_now(uint64_t step)
{
    struct message m = {.count = 0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    add_double(&m, EVENT_WALL_TIME, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    add_number(&m, EVENT_STEP, step);
    return m;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static FILE *create_file(const char *folder)
{
    enum { TRIES = 100, PATH_BYTES_MAX = 4096 };
    char path[PATH_BYTES_MAX], host[64] = "localhost";
    FILE *file = NULL;
    (void)gethostname(host, sizeof(host) - 1);
    for (int i = 0; !file && i < TRIES; i++) {
        if (snprintf(path, sizeof(path), "%s/events.out.tfevents.%010lld.%s.%d.%d", folder, (long long)time(NULL), host,
                     (int)getpid(), i) >= (int)sizeof(path)) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        file = fopen(path, "wxe");
        if (!file && errno != EEXIST)
            return NULL;
    }
    return file;
}

eo_status tool_tensorboard_open(struct tool_tensorboard *board, const char *folder, uint64_t first_step,
                                struct tool_problem *problem)
{
    static const char version[] = "brain.Event:2";
    *board = (struct tool_tensorboard){.folder = folder};
    if (!folder)
        return EO_OK;
    if (mkdir(folder, 0777) == 0 || errno == EEXIST)
        board->file = create_file(folder);
    if (!board->file)
        return tool_problem_set(problem, EO_ERR_IO, "--tensorboard %s: cannot create a file in it: %s; choose another folder",
                                folder, strerror(errno));
    struct message m = event_now(0);
    add_field(&m, EVENT_FILE_VERSION, version, sizeof(version) - 1);
    write_record(board, &m);
    if (!first_step || !board->file)
        return EO_OK;
    struct message start = {.count = 0};
    add_number(&start, SESSION_LOG_STATUS, SESSION_LOG_START);
    m = event_now(first_step + 1);
    add_field(&m, EVENT_SESSION_LOG, start.bytes, start.count);
    write_record(board, &m);
    return EO_OK;
}

void tool_tensorboard_write(struct tool_tensorboard *board, uint64_t step, const struct tool_tensorboard_scalar *scalars,
                            uint32_t count)
{
    struct message summary = {.count = 0};
    if (!board->file)
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct message value = {.count = 0};
        add_field(&value, VALUE_TAG, scalars[i].tag, strlen(scalars[i].tag));
        add_float(&value, VALUE_SIMPLE, (float)scalars[i].value);
        add_field(&summary, SUMMARY_VALUE, value.bytes, value.count);
    }
    struct message m = event_now(step);
    add_field(&m, EVENT_SUMMARY, summary.bytes, summary.count);
    write_record(board, &m);
}

void tool_tensorboard_close(struct tool_tensorboard *board)
{
    if (board->file && fclose(board->file) != 0) {
        board->is_lost = true;
        fprintf(stderr, "%s: --tensorboard %s: the end may be missing: %s\n", program_invocation_short_name, board->folder,
                strerror(errno));
    }
    board->file = NULL;
}
