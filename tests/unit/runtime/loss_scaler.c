/* SPDX-License-Identifier: MIT
 *
 * Goal: dynamic loss scaling changes its scale where torch.amp.GradScaler does.
 * Method: reports made by hand; the scales are GradScaler(init_scale=1024, growth_interval=3)'s for the same sequence.
 */
#include <criterion/criterion.h>

#include <evenodd/runtime.h>

Test(loss_scaler, changes_its_scale_where_pytorch_does)
{
    static const bool skipped[] = {false, false, true, false, false, false, false, true, true, false};
    static const float scales[] = {1024, 1024, 512, 512, 512, 1024, 1024, 512, 256, 256};
    eo_loss_scaler scaler = {.scale = 1024, .growth_interval = 3};
    for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++) {
        eo_loss_scaler_update(&scaler, &(eo_step_report){.skipped = skipped[i], .loss_scale = scaler.scale});
        cr_assert_eq(scaler.scale, scales[i], "step %d: scale %g", (int)i, (double)scaler.scale);
    }
}

Test(loss_scaler, begins_with_defaults_and_takes_late_reports_once)
{
    eo_loss_scaler scaler = {0};
    eo_loss_scaler_update(&scaler, NULL);
    cr_assert_eq(scaler.scale, 65536.0f);
    cr_assert_eq(scaler.growth_interval, 2000);
    for (int late = 0; late < 2; late++) /* both steps ran with the first scale */
        eo_loss_scaler_update(&scaler, &(eo_step_report){.skipped = true, .loss_scale = 65536});
    cr_assert_eq(scaler.scale, 32768.0f);
    eo_loss_scaler_update(NULL, NULL);
}

Test(loss_scaler, keeps_its_scale_where_the_next_is_no_normal_float)
{
    static const float last[] = {0x1p127f, 0x1p-126f};
    for (int skipped = 0; skipped < 2; skipped++) {
        eo_loss_scaler scaler = {.scale = last[skipped], .growth_interval = 1};
        eo_loss_scaler_update(&scaler, &(eo_step_report){.skipped = skipped, .loss_scale = scaler.scale});
        cr_assert_eq(scaler.scale, last[skipped], "scale %g", (double)scaler.scale);
    }
}
