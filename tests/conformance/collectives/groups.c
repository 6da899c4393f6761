/* SPDX-License-Identifier: MIT
 *
 * Goal: all-reduces have the bits of a plain sum on every rank, in a group and in groups inside it, and what fails in
 * one group fails in all that come from the same.
 * Method: values that differ for every rank and index, counts that do not divide; splits by color and key, compared
 * with the places told by hand; an abort while a rank of another group waits.
 */
#include "tests/conformance/collectives/collectives.h"

#include <stdlib.h>
#include <string.h>

#include "tests/conformance/ranks.h"

static const uint64_t counts[] = {0, 1, 3, 63, 64, 65, 129, 1000, 4099, 300007};

/* Whole numbers and quarters: exact in bf16 too, so that any order has the same sum ... */
static float easy(uint64_t salt, uint32_t rank, uint64_t index)
{
    return (float)(test_hash(salt, rank, index) % 16) * 0.25f;
}

/* ... and these are not: the sum in rank order, in fp32, is the only one with its bits. */
static float hard(uint64_t salt, uint32_t rank, uint64_t index)
{
    const uint64_t hash = test_hash(salt, rank, index);
    return ((float)(hash & 0xffffff) / 16777216.0f - 0.5f) * (float)(1u << (hash >> 40) % 24);
}

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* `members`: the ranks of the whole group that are summed, in order. */
static void reduce_all(struct test_rank *self, struct eo_comm *comm, const uint32_t *members, uint32_t member_count,
                       uint64_t count)
{
    float *values = malloc((count + 2) * sizeof(*values));
    uint16_t *halves = malloc((count + 2) * sizeof(*halves));
    for (uint64_t i = 0; i < count; i++) {
        values[i] = hard(count, self->rank, i);
        halves[i] = bf16_of(easy(count, self->rank, i));
    }
    values[count] = values[count + 1] = 77.0f;
    halves[count] = halves[count + 1] = 77;
    TEST_HOLDS(self, self->ops->all_reduce(comm, values, count, EO_DTYPE_FP32, "values", NULL) == EO_OK);
    TEST_HOLDS(self, self->ops->all_reduce(comm, halves, count, EO_DTYPE_BF16, "halves", NULL) == EO_OK);
    TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_OK);
    for (uint64_t i = 0; i < count; i++) {
        float sum = 0, easy_sum = 0;
        for (uint32_t m = 0; m < member_count; m++) {
            sum = m == 0 ? hard(count, members[m], i) : sum + hard(count, members[m], i);
            easy_sum += easy(count, members[m], i);
        }
        TEST_EXPECT(self, memcmp(&values[i], &sum, sizeof(sum)) == 0, "element %llu of %llu is %a, not %a",
                    (unsigned long long)i, (unsigned long long)count, (double)values[i], (double)sum);
        TEST_EXPECT(self, halves[i] == bf16_of(easy_sum), "bf16 element %llu of %llu", (unsigned long long)i,
                    (unsigned long long)count);
    }
    TEST_EXPECT(self, values[count] == 77.0f && halves[count] == 77, "what lies behind the buffer was written");
    free(values);
    free(halves);
}

static void all_reduce_body(struct test_rank *self)
{
    static const uint32_t everybody[TEST_RANKS_MAX] = {0, 1, 2, 3};
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
        reduce_all(self, self->reduce, everybody, self->rank_count, counts[k]);
}

/* Odd and even ranks, the higher rank first; then once more, each alone; then rank 0 in none. */
static void split_body(struct test_rank *self)
{
    struct eo_group *group;
    struct eo_group_place place;
    struct eo_comm *comm;
    const uint32_t color = self->rank % 2, key = 100 - self->rank;
    uint32_t members[TEST_RANKS_MAX], count = 0, mine = 0;
    for (uint32_t r = self->rank_count; r-- > 0;) {
        if (r % 2 == color) {
            mine = r == self->rank ? count : mine;
            members[count++] = r;
        }
    }
    TEST_HOLDS(self, self->ops->group_split(&group, &place, self->group, self->rank, color, key) == EO_OK);
    TEST_EXPECT(self, place.rank == mine && place.rank_count == count, "rank %u of %u, not %u of %u", place.rank,
                place.rank_count, mine, count);
    TEST_HOLDS(self, self->ops->open(&comm, group, place.rank, self->device, EO_QUEUE_REDUCE, true) == EO_OK);
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
        reduce_all(self, comm, members, count, counts[k]);
    self->ops->close(comm);
    self->ops->group_release(group);

    TEST_HOLDS(self, self->ops->group_split(&group, &place, self->group, self->rank, self->rank, 0) == EO_OK);
    TEST_HOLDS(self, place.rank == 0 && place.rank_count == 1);
    self->ops->group_release(group);

    const uint32_t none = self->rank == 0 ? EO_GROUP_NO_COLOR : 7;
    TEST_HOLDS(self, self->ops->group_split(&group, &place, self->group, self->rank, none, 0) == EO_OK);
    TEST_HOLDS(self, (group == NULL) == (self->rank == 0));
    TEST_HOLDS(self, self->rank == 0 || (place.rank == self->rank - 1 && place.rank_count == self->rank_count - 1));
    self->ops->group_release(group);
}

/* The last rank is alone in its group and gives up there; the others wait for each other in theirs in vain. */
static void family_body(struct test_rank *self)
{
    struct eo_group *group;
    struct eo_group_place place;
    struct eo_comm *comm;
    const bool is_last = self->rank + 1 == self->rank_count;
    float value = 1;
    char text[512] = "";
    if (self->rank_count < 3)
        return;
    TEST_HOLDS(self, self->ops->group_split(&group, &place, self->group, self->rank, is_last, 0) == EO_OK);
    TEST_HOLDS(self, self->ops->open(&comm, group, place.rank, self->device, EO_QUEUE_REDUCE, true) == EO_OK);
    test_barrier(self); /* a failure ends splits as well */
    if (is_last) {
        self->ops->group_abort(group, self->rank, "it has had enough");
    } else if (self->rank == 0) { /* rank 1 never comes */
        TEST_HOLDS(self, self->ops->all_reduce(comm, &value, 1, EO_DTYPE_FP32, "in vain", NULL) == EO_OK);
        TEST_HOLDS(self, test_await(self, EO_QUEUE_REDUCE) == EO_ERR_COMM);
    }
    test_barrier(self);
    self->ops->group_failure(self->group, text, sizeof(text));
    char expected[64];
    snprintf(expected, sizeof(expected), "rank %u gave up: it has had enough", self->rank_count - 1);
    TEST_EXPECT(self, strcmp(text, expected) == 0, "the failure of the whole is '%s'", text);
    struct eo_group *another;
    TEST_HOLDS(self, self->ops->group_split(&another, &place, self->group, self->rank, 0, 0) == EO_ERR_COMM);
    self->ops->close(comm);
    self->ops->group_release(group);
}

/* The last rank is alone; in the group of the others two disagree. */
static void disagreeing_body(struct test_rank *self)
{
    struct eo_group *group;
    struct eo_group_place place;
    struct eo_comm *comm;
    float values[2] = {1, 1};
    char text[512] = "";
    const bool is_last = self->rank + 1 == self->rank_count;
    if (self->rank_count < 3)
        return;
    TEST_HOLDS(self, self->ops->group_split(&group, &place, self->group, self->rank, is_last, 0) == EO_OK);
    TEST_HOLDS(self, self->ops->open(&comm, group, place.rank, self->device, EO_QUEUE_REDUCE, true) == EO_OK);
    test_barrier(self);
    if (!is_last) {
        const eo_status status = self->ops->all_reduce(comm, values, 1 + self->rank % 2, EO_DTYPE_FP32, "values", NULL);
        TEST_HOLDS(self, status == EO_OK && test_await(self, EO_QUEUE_REDUCE) == EO_ERR_COMM);
    }
    test_barrier(self);
    self->ops->group_failure(self->group, text, sizeof(text));
    TEST_EXPECT(self, strstr(text, "ranks disagree") && strstr(text, "(ranks are numbered as in a split world)"),
                "the failure of the whole is '%s'", text);
    self->ops->close(comm);
    self->ops->group_release(group);
}

void groups_cases(uint32_t rank_count)
{
    const struct test_settings settings = {.rank_count = rank_count};
    test_run_ranks(&settings, all_reduce_body);
    test_report("an all-reduce has the bits of a plain sum on every rank and touches nothing else", rank_count);
    test_run_ranks(&settings, split_body);
    test_report("a split puts each rank where color and key say, and its group sums its members alone", rank_count);
    test_run_ranks(&settings, family_body);
    test_report("a rank that gives up in one group is heard in all that come from the same, by its first number", rank_count);
    test_run_ranks(&settings, disagreeing_body);
    test_report("a failure in one group says in all that come from the same how it numbers ranks", rank_count);
}
