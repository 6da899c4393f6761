/* SPDX-License-Identifier: MIT
 *
 * Goal: worlds of up to 16,384 ranks come together, exchange and learn of a loss, and no rank has more to do than its
 * place in the tree says.
 * Method: the node of every rank, as it is in a process, with messages that are carried by a queue instead of sockets.
 * Time is virtual: a message leaves a host's link at 1 gigabyte a second, one after the other, and takes 50 us; handling
 * it takes 2 us. Messages are counted.
 */
#include <stdlib.h>
#include <string.h>

#include "cluster/node_internal.h"
#include "tests/tap/tap.h"

struct payload {
    unsigned char *data;
    size_t bytes;
    uint32_t references;
};

struct wire { /* one direction */
    struct eo_node_link link; /* at `owner`; first: the node knows it by this */
    uint32_t owner;
    struct wire *other;
    bool gone;
};

struct event {
    double at_us;
    uint64_t order;
    struct wire *to; /* the link at which it comes in; NULL: a dial */
    uint32_t rank, target;
    enum eo_message type;
    struct payload *payload;
};

struct rank {
    struct eo_node node;
    double free_us, link_free_us; /* its thread, its host's link */
    uint64_t in_count, in_bytes, out_bytes;
    uint32_t joined, failed, gathered;
    uint64_t sum;
    struct eo_failure failure;
};

static struct rank *ranks;
static uint32_t rank_count, host_ranks;
static struct event *heap;
static size_t heap_count, heap_capacity;
static uint64_t order;
static double now_us;
static uint32_t current;
static struct payload *delivering;
static uint64_t joins_at_root;
static uint32_t unreachable; /* whom nobody can dial; 0: all can be */
static struct wire **wires;
static size_t wire_count, wire_capacity;

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_us < b->at_us || (!(a->at_us > b->at_us) && a->order < b->order);
}

static void push(struct event event)
{
    if (heap_count == heap_capacity)
        heap = realloc(heap, (heap_capacity = heap_capacity * 2 + 1024) * sizeof(*heap));
    event.order = order++;
    size_t i = heap_count++;
    for (; i > 0 && is_before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = event;
}

static struct event pop(void)
{
    const struct event first = heap[0], last = heap[--heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap_count)
            break;
        if (child + 1 < heap_count && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

static void release(struct payload *payload)
{
    if (--payload->references == 0) {
        free(payload->data);
        free(payload);
    }
}

static bool same_host(uint32_t a, uint32_t b)
{
    return a / host_ranks == b / host_ranks;
}

static void on_send(void *user, struct eo_node_link *link, enum eo_message type, const void *body, size_t bytes)
{
    struct wire *wire = (struct wire *)link;
    struct rank *rank = user;
    struct payload *payload = delivering;
    if (wire->gone)
        return;
    if (!payload || body != payload->data || bytes != payload->bytes) { /* what is passed on is not copied */
        payload = calloc(1, sizeof(*payload));
        payload->data = malloc(bytes + 1);
        if (bytes)
            memcpy(payload->data, body, bytes);
        payload->bytes = bytes;
    }
    payload->references++;
    const bool inside = same_host(wire->owner, wire->other->owner);
    const double start_us = rank->link_free_us > now_us ? rank->link_free_us : now_us;
    const double sent_us = start_us + (double)bytes / (inside ? 5000 : 1000);
    rank->link_free_us = sent_us;
    rank->out_bytes += bytes;
    push((struct event){.at_us = sent_us + (inside ? 10 : 50), .to = wire->other, .type = type, .payload = payload});
}

static struct wire *connect_ranks(uint32_t from, uint32_t to, enum eo_link_kind role)
{
    struct wire *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    *a = (struct wire){.link.rank = to, .owner = from, .other = b};
    *b = (struct wire){.link = {.rank = from, .role = role}, .owner = to, .other = a};
    if (wire_count + 2 > wire_capacity)
        wires = realloc(wires, (wire_capacity = wire_capacity * 2 + 64) * sizeof(struct wire *));
    wires[wire_count++] = a;
    wires[wire_count++] = b;
    return a;
}

static void on_drop(void *user, struct eo_node_link *link)
{
    (void)link;
}

static void on_dial(void *user, const struct eo_endpoint *endpoint)
{
    uint32_t target;
    memcpy(&target, endpoint->address, sizeof(target));
    push((struct event){.at_us = now_us + 150, .rank = current, .target = target}); /* three ways for the handshake */
}

static void on_gathered(void *user, const unsigned char *all, uint32_t bytes)
{
    struct rank *rank = user;
    rank->gathered++;
    rank->sum = 0;
    for (uint32_t r = 0; r < rank_count; r++) {
        uint32_t value;
        memcpy(&value, all + (size_t)r * bytes, sizeof(value));
        rank->sum += (uint64_t)value * (r + 1);
    }
}

static void on_joined(void *user, const unsigned char *all)
{
    ((struct rank *)user)->joined += eo_node_member(all, rank_count - 1).pid == rank_count - 1;
}

static void on_failed(void *user, const struct eo_failure *failure)
{
    ((struct rank *)user)->failed++;
    ((struct rank *)user)->failure = *failure;
}

static void on_log(void *user, eo_log_level level, const char *text)
{
    (void)text;
}

static const struct eo_node_ops ops = {on_send, on_drop, on_dial, on_gathered, on_joined, on_failed, on_log};

static void deliver(const struct event *event)
{
    struct wire *wire = event->to;
    struct rank *rank = &ranks[wire->owner];
    if (!wire->gone) {
        rank->in_count++;
        rank->in_bytes += event->payload->bytes;
        joins_at_root += wire->owner == 0 && event->type == EO_MESSAGE_JOIN;
        if (rank->free_us > now_us)
            now_us = rank->free_us;
        rank->free_us = now_us + 2;
        delivering = event->payload;
        current = wire->owner;
        if (!eo_node_take(&rank->node, &wire->link, event->type, event->payload->data, event->payload->bytes))
            tap(false, "rank %u cannot take message %d", wire->owner, (int)event->type);
        delivering = NULL;
    }
    release(event->payload);
}

static double run(void)
{
    double end_us = now_us;
    while (heap_count) {
        const struct event event = pop();
        now_us = event.at_us;
        if (event.to) {
            deliver(&event);
        } else if (!unreachable || event.target != unreachable) {
            struct wire *wire = connect_ranks(event.rank, event.target, EO_LINK_PARENT);
            eo_node_up(&ranks[event.target].node, &wire->other->link, EO_LINK_NEW);
            current = event.rank;
            eo_node_up(&ranks[event.rank].node, &wire->link, EO_LINK_PARENT);
        }
        end_us = now_us > end_us ? now_us : end_us;
    }
    now_us = end_us;
    return end_us;
}

static void come(uint32_t from)
{
    const uint32_t to = from % host_ranks ? from / host_ranks * host_ranks : 0;
    const enum eo_link_kind kind = from % host_ranks ? EO_LINK_LEADER : EO_LINK_ROOT;
    struct wire *wire = connect_ranks(from, to, kind);
    eo_node_up(&ranks[to].node, &wire->other->link, EO_LINK_NEW);
    current = from;
    eo_node_up(&ranks[from].node, &wire->link, kind);
}

/* The last `absent` ranks do not come. */
static void start(uint32_t count, uint32_t of_host, uint32_t absent)
{
    rank_count = count;
    host_ranks = of_host;
    ranks = calloc(count, sizeof(*ranks));
    now_us = 0;
    joins_at_root = 0;
    for (uint32_t r = 0; r < count; r++) {
        const uint32_t local_count = of_host < count - r / of_host * of_host ? of_host : count - r / of_host * of_host;
        struct eo_node_params params = {.self = {.rank = r, .pid = r}, .rank_count = count,
                                        .local_rank = r % of_host, .local_count = local_count, .endpoint = {.family = 4}};
        memcpy(params.endpoint.address, &r, sizeof(r));
        snprintf(params.self.host, sizeof(params.self.host), "host%u", r / of_host);
        if (eo_node_init(&ranks[r].node, &params, &ops, &ranks[r]) < 0)
            exit(1);
    }
    for (uint32_t r = 0; r < count; r++)
        eo_node_start(&ranks[r].node);
    for (uint32_t r = 1 + absent; r < count; r++) /* leaders last come first: any order must do */
        come(count - r);
}

static void finish(void)
{
    for (uint32_t r = 0; r < rank_count; r++)
        eo_node_fini(&ranks[r].node);
    for (size_t i = 0; i < wire_count; i++)
        free(wires[i]);
    wire_count = 0;
    free(ranks);
}

static uint64_t most(size_t offset, bool with_root)
{
    uint64_t value = 0;
    for (uint32_t r = !with_root; r < rank_count; r++) {
        uint64_t here;
        memcpy(&here, (char *)&ranks[r] + offset, sizeof(here));
        value = here > value ? here : value;
    }
    return value;
}

static void clear_counts(void)
{
    for (uint32_t r = 0; r < rank_count; r++)
        ranks[r].in_count = ranks[r].in_bytes = ranks[r].out_bytes = 0;
}

/* The process of rank `lost` ends: its links close. */
static void lose(uint32_t lost)
{
    for (size_t i = 0; i < wire_count; i++)
        if (wires[i]->owner == lost && !wires[i]->gone) {
            struct wire *other = wires[i]->other;
            wires[i]->gone = other->gone = true;
            current = other->owner;
            eo_node_down(&ranks[other->owner].node, &other->link, EO_END_CLOSED, "connection closed");
        }
}

static void try_world(uint32_t count, uint32_t of_host)
{
    const uint32_t hosts = (count + of_host - 1) / of_host;
    char rank_text[64];
    start(count, of_host, 0);
    const double joined_us = run();
    uint32_t joined = 0, exchanged = 0, told = 0;
    for (uint32_t r = 0; r < count; r++)
        joined += ranks[r].joined == 1 && ranks[r].failed == 0;
    tap(joined == count, "%u ranks on %u hosts: all have joined and know the last one's name", count, hosts);
    tap(joins_at_root == hosts - 1 + (of_host < count ? of_host : count) - 1,
        "%u ranks: one message of joining from each other host reaches the root (%u), and one from each rank of its own",
        count, hosts - 1);
    printf("# %u ranks, %u hosts: joined after %.1f ms; root: %llu messages in, %.2f MB in, %.2f MB out; others at most: "
           "%llu messages in, %.2f MB out\n", count, hosts, joined_us / 1000, (unsigned long long)ranks[0].in_count,
           (double)ranks[0].in_bytes / 1e6, (double)ranks[0].out_bytes / 1e6,
           (unsigned long long)most(offsetof(struct rank, in_count), false),
           (double)most(offsetof(struct rank, out_bytes), false) / 1e6);
    clear_counts();

    uint64_t sum = 0;
    const double begin_us = now_us;
    for (uint32_t r = 0; r < count; r++) {
        unsigned char blob[128] = {0};
        const uint32_t value = r * 2654435761u;
        memcpy(blob, &value, sizeof(value));
        sum += (uint64_t)value * (r + 1);
        current = r;
        if (eo_node_gather(&ranks[r].node, blob, sizeof(blob)) < 0)
            exit(1);
    }
    const double gathered_us = run() - begin_us;
    for (uint32_t r = 0; r < count; r++)
        exchanged += ranks[r].gathered == 1 && ranks[r].sum == sum;
    tap(exchanged == count, "%u ranks: each has what all gave in an exchange of 128 bytes", count);
    tap(most(offsetof(struct rank, in_count), true) <= EO_NODE_FANOUT + of_host,
        "%u ranks: no rank takes more than %u messages for it", count, EO_NODE_FANOUT + of_host);
    printf("# %u ranks: exchange of 128 bytes each: %.1f ms; root: %llu messages in\n", count, gathered_us / 1000,
           (unsigned long long)ranks[0].in_count);

    const uint32_t lost = count / 2;
    clear_counts();
    const double before_us = now_us;
    lose(lost);
    const double told_us = run() - before_us;
    for (uint32_t r = 0; r < count; r++)
        told += r == lost || (ranks[r].failed == 1 && ranks[r].failure.rank == lost && ranks[r].failure.lost);
    snprintf(rank_text, sizeof(rank_text), "rank %u (host host%u, process %u)", lost, lost / of_host, lost);
    tap(told == count && strstr(ranks[0].failure.text, rank_text), "%u ranks: all learn that %s is lost", count, rank_text);
    printf("# %u ranks: rank %u lost, all told after %.1f ms\n", count, lost, told_us / 1000);
    finish();
}

/* Of the ranks before `end`, all but `lost` itself where it `is_lost`. */
static bool all_told(uint32_t end, uint32_t lost, bool is_lost)
{
    bool good = true;
    for (uint32_t r = 0; r < end; r++)
        good = good && ((r == lost && is_lost) ||
                        (ranks[r].failed == 1 && ranks[r].failure.rank == lost && ranks[r].failure.lost == is_lost));
    return good;
}

/* A host that lacks a rank has not joined, and a failure may be older than the link that has to tell it. */
static void fail_while_joining(void)
{
    start(6, 3, 1);
    run();
    lose(4);
    run();
    tap(all_told(5, 4, true), "a loss on a host that is not complete is told to all who have come");
    come(5);
    run();
    tap(all_told(6, 4, true), "and to who comes later");
    finish();
    start(4, 2, 2);
    run();
    eo_node_give_up(&ranks[2].node, EO_ERR_IO, "it cannot listen for other hosts");
    come(2);
    run();
    tap(all_told(3, 2, false), "a leader that gives up before it has reached the root tells it then");
    finish();
}

/* Rank 10 comes first, so ranks 1 and 2, the last to come, belong to it. */
static void start_without_links_to_10(void)
{
    unreachable = 10;
    start(11, 1, 0);
    run();
    unreachable = 0;
}

static void fail_before_the_tree_is_whole(void)
{
    char text[700];
    start_without_links_to_10();
    eo_node_missing(&ranks[0].node, text, sizeof(text));
    tap(strstr(text, ": rank 1 (host host1, process 1), rank 2 (host host2, process 2) could not connect to another host"),
        "the root names the hosts that cannot reach the one above them: %s", text);
    eo_node_missing(&ranks[2].node, text, sizeof(text));
    tap(strstr(text, "rank 10, over which"), "these name the one that they cannot reach: %s", text);
    lose(10);
    run();
    tap(all_told(10, 10, true), "its loss is told to all, also to those who were to be linked with it");
    finish();
    start_without_links_to_10();
    lose(2);
    run();
    tap(all_told(11, 2, true), "the loss of a host between root and parent is told to all");
    finish();
    start(6, 3, 1);
    run();
    eo_node_tell_partial(&ranks[3].node);
    run();
    lose(3);
    run();
    tap(all_told(5, 3, true), "the loss of a leader that has told who it waits for is told to all");
    finish();
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    try_world(2, 1);
    try_world(2, 2);
    try_world(7, 2);
    try_world(64, 4);
    try_world(90, 1);
    try_world(1000, 8);
    try_world(16384, 8);
    fail_while_joining();
    fail_before_the_tree_is_whole();
    free(heap);
    free(wires);
    return tap_end();
}
