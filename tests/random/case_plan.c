/* SPDX-License-Identifier: MIT */
#include "runtime/plan/internal.h"
#include "runtime/plan/proof/proof.h"
#include "tests/random/case_accesses.h"
#include "tests/unit/plan/check.h"

#define FIRST   EO_LIST_FIRST
#define STEADY  EO_LIST_STEADY
#define FORWARD EO_LIST_FORWARD
#define UPDATES EO_LIST_UPDATES
#define INPUTS  EO_LIST_INPUTS

static void keep_first(void *user, eo_log_level level, const char *text)
{
    struct case_outcome *out = user;
    (void)level;
    if (out->text[0] == '\0')
        snprintf(out->text, sizeof(out->text), "%s", text);
}

/* Five steps in a row, and turns that stand in no plan's own proof: graph upon graph, evaluations and checkpoints between;
 * late updates that are left come before them. */
static void prove_longer(const struct eo_plan *plan, struct case_outcome *out)
{
    enum { QUIET = EO_TURN_QUIET, LEAVE = EO_TURN_QUIET | EO_TURN_ORDER, ORDER = EO_TURN_ORDER, GRAPH = EO_TURN_GRAPH, SAVE = EO_TURN_SAVE };
    static const eo_list steps[] = {FIRST, STEADY, STEADY, STEADY, STEADY};
    static const eo_list turned[] = {FIRST,  FORWARD, INPUTS, INPUTS, FORWARD, FIRST,
                                     STEADY, STEADY,  STEADY, FIRST,  FORWARD, FIRST};
    static const uint8_t turns[] = {SAVE,  LEAVE,        LEAVE, LEAVE,        LEAVE,        LEAVE,
                                    GRAPH, GRAPH | SAVE, GRAPH, ORDER | SAVE, LEAVE | SAVE, LEAVE};
    static const eo_list late[] = {FIRST,  UPDATES, FORWARD, INPUTS, FORWARD, FIRST,   STEADY,
                                   STEADY, STEADY,  UPDATES, FIRST,  UPDATES, FORWARD, FIRST};
    static const uint8_t late_turns[] = {SAVE, QUIET, LEAVE, LEAVE,        LEAVE, LEAVE | SAVE, 0,
                                         0,    0,     QUIET, LEAVE | SAVE, QUIET, LEAVE,        LEAVE};
    const bool is_late = plan->params.late_updates;
    const struct eo_proof_params sequences[] = {
        {.schedule = &plan->schedule, .sequence = steps, .sequence_count = 5},
        {.schedule = &plan->schedule,
         .sequence = is_late ? late : turned,
         .turns = is_late ? late_turns : turns,
         .sequence_count = is_late ? sizeof(late_turns) : sizeof(turns)},
    };
    for (int i = 0; i < 2 && out->text[0] == '\0'; i++) {
        struct eo_hazard hazard;
        if (eo_proof_run(&sequences[i], &hazard) < 0)
            snprintf(out->text, sizeof(out->text), "proof: %s", hazard.text);
    }
}

static void check_map(const struct eo_plan *plan, struct case_outcome *out)
{
    struct plan_check check;
    if (!eo_plan_check(plan, &check))
        snprintf(out->text, sizeof(out->text), "memory: %s", check.text);
    else if (check.lower_bound_bytes != plan->lower_bound_bytes)
        snprintf(out->text, sizeof(out->text), "memory: lower bound %llu, by hand %llu",
                 (unsigned long long)plan->lower_bound_bytes, (unsigned long long)check.lower_bound_bytes);
}

bool case_plan(const struct random_case *c, bool closely, struct case_outcome *out)
{
    const eo_log log = {.write = keep_first, .user = out, .level = EO_LOG_ERROR}; /* a setting without effect is legal */
    eo_plan_params settings = c->settings;
    eo_model *model = NULL;
    eo_plan *plan = NULL;
    out->text[0] = '\0';
    settings.log = &log;
    eo_status status = random_case_model(c, &log, &model);
    if (status >= 0)
        status = eo_plan_create(&plan, model, &settings);
    if (status < 0 && out->text[0] == '\0')
        snprintf(out->text, sizeof(out->text), "not planned: %s", eo_status_text(status));
    if (status >= 0)
        prove_longer(plan, out);
    if (status >= 0 && out->text[0] == '\0')
        case_accesses(c, plan, out);
    if (status >= 0 && closely && out->text[0] == '\0')
        check_map(plan, out);
    eo_plan_destroy(&plan);
    eo_model_destroy(&model);
    return out->text[0] == '\0';
}
