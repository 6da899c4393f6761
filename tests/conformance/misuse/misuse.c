/* SPDX-License-Identifier: MIT
 *
 * Calls that are wrong, ranks that differ, fail or stay away: each is refused or reported by name, nothing hangs, and
 * what was refused changed nothing.
 */
#include "eo_config.h"
#include "tests/conformance/misuse/misuse.h"

int main(void)
{
    if (EO_DEBUG_ABORT)
        return tap_skip_all("refusals abort in this build");
    wrong_order(EO_MEMORY_STATIC);
    wrong_order(EO_MEMORY_DYNAMIC_POOL);
    test_report("calls out of planned order are refused by name and change nothing", 1);
    numbers_that_update_does_not_see();
    test_report("with the trainer's own update, numbers of groups that it would not see are refused", 1);
    numbers_that_nobody_reads();
    test_report("numbers of a step that the optimizer does not read are refused by name", 1);
    positions_of_one_name();
    test_report("positions of one name are told apart by their numbers", 1);
    destroyed_too_early();
    test_report("a world is not destroyed under a runtime", 1);
    exact_step_params();
    test_report("numbers of the optimizer are taken as written where that is asked for", 1);
    small_divisors();
    test_report("gradients divided by so little that floats do not hold them are told as such, and change nothing", 1);
    frozen_layer();
    test_report("a frozen layer has no gradients to begin", 1);
    late_views_and_buffers();
    test_report("views and buffers used outside their time are refused by name", 1);
    written_behind_buffers();
    test_report("what is written behind a buffer is refused by name in debug mode", 1);
    gradients_beside(false);
    gradients_beside(true);
    gradients_of_no_use();
    overwritten_sums();
    test_report("gradients not written, or written past their end, are refused by name in debug mode", 1);
    written_weights(EO_MEMORY_STATIC);
    written_weights(EO_MEMORY_DYNAMIC_POOL);
    test_report("weights written by a pass are refused by name in debug mode", 1);
    added_gradients(EO_DTYPE_FP32);
    added_gradients(EO_DTYPE_BF16);
    test_report("gradients added to, not written, are told as such in debug mode", 1);
    other_micro_batches();
    test_report("another number of micro-batches than the plan's is told", 1);
    zeroed_gradients();
    test_report("gradients are zeros to begin with, where that is asked for", 1);
    plans_that_do_not_fit();
    test_report("plans that do not fit are refused", 1);
    plan_destroyed_first();
    test_report("a plan that is destroyed before its runtimes stays until the last of them ends", 1);
    worlds_that_cannot_be();
    test_report("worlds that cannot be are refused", 1);
    what_this_device_has_not();
    test_report("what this device has not is refused by name, and ordinary steps go on", 1);
    calls_from_callbacks(EO_MEMORY_STATIC);
    calls_from_callbacks(EO_MEMORY_DYNAMIC_POOL);
    test_report("a callback of fill or visit that calls its runtime is refused, and changes nothing", 2);
    different_plans();
    test_report("ranks with different plans are told so", 3);
    one_cannot_begin();
    test_report("a rank that cannot begin says why to the others", 3);
    one_never_creates();
    one_never_joins();
    test_report("a rank that never comes is told by the log there is", 2);
    own_cause_is_told();
    test_report("what fails on a rank's own account is in its runtime's log, whatever log the world has", 1);
    memory_for_one();
    test_report("ranks that share a memory must have room together, and learn why one gives up", 3);
    no_place_to_offload();
    test_report("a rank whose folder cannot be offloaded to says so to the others", 3);
    failing_product();
    test_report("whatever Muon's product fails with, it ends all ranks, and no step goes on from its middle", 2);
    one_is_refused();
    test_report("what one rank alone is refused keeps nobody waiting", 3);
    other_numbers(EO_MEMORY_STATIC);
    other_numbers(EO_MEMORY_DYNAMIC_POOL);
    test_report("ranks that end a step with other numbers are told so", 3);
    other_counts();
    test_report("ranks that sum another number of values are told so", 2);
    one_writes_alone(EO_MEMORY_STATIC);
    one_writes_alone(EO_MEMORY_DYNAMIC_POOL);
    test_report("weights that one rank alone has written end the next step of all", 2);
    one_evaluates_alone();
    test_report("an evaluation by one rank alone is told to all by its name", 2);
    different_weights(EO_MEMORY_STATIC);
    different_weights(EO_MEMORY_DYNAMIC_POOL);
    test_report("ranks that read different weights are told so", 3);
    one_gives_up(EO_MEMORY_STATIC);
    one_gives_up(EO_MEMORY_DYNAMIC_MALLOC);
    test_report("a rank that gives up ends the others with its reason", 3);
    one_gives_up_inside();
    test_report("a rank that gives up in a world inside another keeps its number", 3);
    one_stays_away();
    test_report("a rank that stays away is named when the deadline is over", 3);
    two_ways();
    test_report("of ranks that wait for each other in two collectives each is told where the other is", 2);
    forked_child();
    test_report("a forked child is refused calls on the runtime", 1);
    not_finite(EO_MEMORY_STATIC);
    not_finite(EO_MEMORY_DYNAMIC_POOL);
    test_report("a gradient that is not finite stops all ranks, layer named", 2);
    not_finite_from(false);
    not_finite_from(true);
    test_report("a NaN is told of the layer it came from, with what debug mode knows", 1);
    for (int s = EO_STRATEGY_ZERO3 + 1; s < EO_STRATEGY_COUNT; s++) {
        strategy = (eo_strategy)s;
        wrong_order(EO_MEMORY_STATIC);
        not_finite(EO_MEMORY_STATIC);
        weights_round_trip(2, EO_MEMORY_STATIC);
        weights_round_trip(4, EO_MEMORY_STATIC);
    }
    strategy = EO_STRATEGY_ZERO3;
    test_report("all of it with every other strategy", 4);
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        weights_round_trip(ranks, EO_MEMORY_STATIC);
        weights_round_trip(ranks, EO_MEMORY_DYNAMIC_MALLOC);
        test_report("weights come back as they were filled and written", ranks);
    }
    return tap_end();
}
