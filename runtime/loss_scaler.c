/* SPDX-License-Identifier: MIT */
#include <evenodd/runtime.h>

#include <float.h>

void eo_loss_scaler_update(eo_loss_scaler *scaler, const eo_step_report *report)
{
    if (!scaler)
        return;
    scaler->scale = scaler->scale > 0 ? scaler->scale : 65536;
    scaler->growth = scaler->growth > 0 ? scaler->growth : 2;
    scaler->backoff = scaler->backoff > 0 ? scaler->backoff : 0.5f;
    scaler->growth_interval = scaler->growth_interval ? scaler->growth_interval : 2000;
    if (!report || report->loss_scale != scaler->scale)
        return;
    scaler->finite_steps = report->skipped ? 0 : scaler->finite_steps + 1;
    const float next = scaler->scale * (report->skipped ? scaler->backoff : scaler->growth);
    if (!report->skipped && scaler->finite_steps < scaler->growth_interval)
        return;
    scaler->finite_steps = 0;
    if (next >= FLT_MIN && next <= FLT_MAX)
        scaler->scale = next;
}
