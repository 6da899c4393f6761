/* SPDX-License-Identifier: MIT
 *
 * A rank's part of the rendezvous, as a state machine: links come and go, messages come over them, and the rank does what
 * its own thread would. The input is a role and a list of what happens:
 *
 *     role (root, leader of a host, leaf), ranks, ranks of the host, then events: a byte each and what it takes
 *
 * What the node sends must be what a node would take the size of; what it is given back must be there.
 */
#include <stdio.h>
#include <string.h>

#include "cluster/node_internal.h"
#include "tests/fuzz/fuzz.h"

const struct fuzz_limits fuzz_limits = {.megabytes = 64, .seconds = 5, .bytes = 4096};

enum { LINKS_MAX = 12, NOT_DIALLING = -1 };
enum event {
    EVENT_COMES, EVENT_DIALLED, EVENT_MESSAGE, EVENT_ENDS, EVENT_SILENT, EVENT_GATHER, EVENT_FAIL, EVENT_BEAT, EVENT_PARTIAL,
    EVENT_MISSING, EVENT_LATE, EVENT_LEAVE, EVENT_COUNT,
};

struct scene {
    struct eo_node node;
    struct eo_node_link *links[LINKS_MAX]; /* NULL: free */
    bool dropped[LINKS_MAX];               /* the node wants no more of it */
    int dialling;                          /* an eo_link_kind */
    bool waits, left;                      /* for a gather; it has left */
    uint32_t waited_bytes;
    uint64_t seen; /* so that reads are not left out */
};

/* ---- what the node asks for ---- */

static int place_of_link(const struct scene *scene, const struct eo_node_link *link)
{
    for (int i = 0; i < LINKS_MAX; i++)
        if (scene->links[i] == link)
            return i;
    abort(); /* it is gone, or never was */
}

static void read_all_of(struct scene *scene, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        scene->seen += data[i];
}

static void scene_send(void *user, struct eo_node_link *link, enum eo_message type, const void *body, size_t bytes)
{
    struct scene *scene = user;
    (void)place_of_link(scene, link);
    FUZZ_HOLDS(type > 0 && type < EO_MESSAGE_END && bytes <= eo_message_bytes_max(type, scene->node.rank_count));
    read_all_of(scene, body, bytes);
}

static void scene_drop(void *user, struct eo_node_link *link)
{
    struct scene *scene = user;
    scene->dropped[place_of_link(scene, link)] = true;
}

static void scene_dial(void *user, const struct eo_endpoint *endpoint)
{
    struct scene *scene = user;
    scene->dialling = EO_LINK_PARENT;
    scene->seen += endpoint->port;
}

static void scene_gathered(void *user, const unsigned char *all, uint32_t bytes)
{
    struct scene *scene = user;
    FUZZ_HOLDS(scene->waits && bytes == scene->waited_bytes);
    scene->waits = false;
    read_all_of(scene, all, (size_t)scene->node.rank_count * bytes);
}

static void scene_joined(void *user, const unsigned char *all)
{
    struct scene *scene = user;
    for (uint32_t r = 0; r < scene->node.rank_count; r++) {
        char text[160];
        const struct eo_member member = eo_node_member(all, r);
        eo_member_text(&member, text, sizeof(text));
        scene->seen += (unsigned char)text[0];
    }
}

static void scene_failed(void *user, const struct eo_failure *failure)
{
    struct scene *scene = user;
    FUZZ_HOLDS(failure->status < 0 && memchr(failure->text, 0, sizeof(failure->text)));
    scene->seen++;
}

static void scene_log(void *user, eo_log_level level, const char *text)
{
    ((struct scene *)user)->seen += strlen(text);
}

static const struct eo_node_ops scene_ops = {
    .send = scene_send, .drop = scene_drop, .dial = scene_dial, .gathered = scene_gathered, .joined = scene_joined,
    .failed = scene_failed, .log = scene_log};

/* ---- what happens ---- */

/* Its other end has proved that it has this rank, and says what the link is to it. */
static void add_link_of(struct scene *scene, enum eo_link_kind kind, uint32_t rank, enum eo_link_kind role)
{
    int i = 0;
    while (i < LINKS_MAX && scene->links[i])
        i++;
    if (i == LINKS_MAX)
        return;
    scene->links[i] = calloc(1, sizeof(*scene->links[i]));
    FUZZ_HOLDS(scene->links[i] != NULL);
    scene->dropped[i] = false;
    scene->links[i]->rank = rank;
    scene->links[i]->role = role;
    eo_node_up(&scene->node, scene->links[i], kind);
}

static void end_link_at(struct scene *scene, int i, enum eo_link_end end)
{
    if (!scene->links[i])
        return;
    eo_node_down(&scene->node, scene->links[i], end, "it ended");
    free(scene->links[i]);
    scene->links[i] = NULL;
}

/* A body of exact size, so that a read past its end is seen. */
static void give_message(struct scene *scene, int i, struct eo_reader *r)
{
    const enum eo_message type = (enum eo_message)(1 + eo_get(r, 1) % (EO_MESSAGE_END - 1));
    size_t bytes = (size_t)eo_get(r, 2);
    const size_t left = (size_t)(r->end - r->at), most = eo_message_bytes_max(type, scene->node.rank_count);
    bytes = bytes > left ? left : bytes;
    bytes = bytes > most ? most : bytes;
    const unsigned char *data = eo_get_bytes(r, bytes);
    if (r->overran || !scene->links[i] || scene->dropped[i])
        return;
    unsigned char *body = malloc(bytes ? bytes : 1);
    FUZZ_HOLDS(body != NULL);
    if (bytes)
        memcpy(body, data, bytes);
    if (!eo_node_take(&scene->node, scene->links[i], type, body, bytes))
        end_link_at(scene, i, EO_END_BROKEN);
    free(body);
}

static void gather_blob(struct scene *scene, struct eo_reader *r)
{
    static const unsigned char blob[EO_GATHER_BYTES_MAX];
    const uint32_t bytes = 1 + (uint32_t)eo_get(r, 2) % EO_GATHER_BYTES_MAX;
    if (scene->waits || !scene->node.joined || scene->node.failure.status != EO_OK)
        return;
    scene->waits = true;
    scene->waited_bytes = bytes;
    FUZZ_HOLDS(eo_node_gather(&scene->node, blob, bytes) >= 0);
}

static void let_happen(struct scene *scene, enum event event, struct eo_reader *r)
{
    char text[700];
    const int i = (int)(eo_get(r, 1) % LINKS_MAX);
    switch (event) {
    case EVENT_COMES: {
        const uint32_t rank = (uint32_t)eo_get(r, 1), role = (uint32_t)eo_get(r, 1) % (EO_LINK_PARENT + 1);
        if (!eo_node_is_leaf(&scene->node))
            add_link_of(scene, EO_LINK_NEW, rank, (enum eo_link_kind)role);
        break;
    }
    case EVENT_DIALLED: {
        const uint32_t rank = (uint32_t)eo_get(r, 1);
        if (scene->dialling != NOT_DIALLING) {
            const enum eo_link_kind kind = (enum eo_link_kind)scene->dialling;
            scene->dialling = NOT_DIALLING;
            add_link_of(scene, kind, rank, EO_LINK_NEW);
        }
        break;
    }
    case EVENT_MESSAGE: give_message(scene, i, r); break;
    case EVENT_ENDS: end_link_at(scene, i, EO_END_CLOSED); break;
    case EVENT_SILENT: end_link_at(scene, i, EO_END_CLOSED + (enum eo_link_end)(eo_get(r, 2) % 4)); break;
    case EVENT_GATHER: gather_blob(scene, r); break;
    case EVENT_FAIL:
        eo_node_fail(&scene->node, &(struct eo_failure){.status = EO_ERR_DEVICE, .rank = scene->node.self.rank,
                                                        .text = "it failed"});
        break;
    case EVENT_BEAT: eo_node_beat(&scene->node, "step 3, all-gather of block.1"); break;
    case EVENT_PARTIAL: eo_node_tell_partial(&scene->node); break;
    case EVENT_MISSING:
        eo_node_missing(&scene->node, text, sizeof(text));
        FUZZ_HOLDS(memchr(text, 0, sizeof(text)));
        break;
    case EVENT_LATE: eo_node_gather_is_late(&scene->node, 1.5, i % 2); break;
    case EVENT_LEAVE:
        eo_node_leave(&scene->node);
        scene->left = true;
        break;
    case EVENT_COUNT: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct eo_reader r = {data, data + bytes, false};
    struct scene scene = {.dialling = NOT_DIALLING};
    const uint32_t role = (uint32_t)eo_get(&r, 1) % 3;
    const uint32_t rank_count = 1 + (uint32_t)eo_get(&r, 1) % 24 + (role != 0);
    const uint32_t local_count = 1 + (uint32_t)eo_get(&r, 1) % (rank_count - (role == 1)) + (role == 2 && rank_count > 1);
    const struct eo_node_params params = {
        .self = {.rank = role == 0 ? 0 : rank_count - 1, .pid = 4711, .host = "lab-2", .machine = 7},
        .rank_count = rank_count, .local_rank = role == 2 ? 1 : 0,
        .local_count = local_count > rank_count ? rank_count : local_count, .endpoint = {.family = 4, .port = 29500},
    };
    FUZZ_HOLDS(eo_node_init(&scene.node, &params, &scene_ops, &scene) >= 0);
    scene.dialling = role == 0 ? NOT_DIALLING : role == 1 ? EO_LINK_ROOT : EO_LINK_LEADER;
    eo_node_start(&scene.node);
    while (!r.overran && r.at < r.end && !scene.left)
        let_happen(&scene, (enum event)(eo_get(&r, 1) % EVENT_COUNT), &r);
    for (int i = 0; i < LINKS_MAX; i++)
        end_link_at(&scene, i, EO_END_CLOSED);
    eo_node_fini(&scene.node);
    return 0;
}
