/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: saved and loaded by any world, damaged in every place, written to disks that fail.
 */
#include "saved_training.h"

int main(void)
{
    checkpoint_world_cases();
    checkpoint_beside_cases();
    checkpoint_damage_cases();
    checkpoint_failure_cases();
    checkpoint_folder_cases();
    checkpoint_unreadable_cases();
    return tap_end();
}
