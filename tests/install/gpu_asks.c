/* SPDX-License-Identifier: MIT
 *
 * A foreign program that asks for a GPU and for an id of NCCL, and prints the answers.
 */
#include <evenodd/evenodd.h>
#include <stdio.h>

static void write_line(void *user, eo_log_level level, const char *text)
{
    (void)user, (void)level;
    puts(text);
}

int main(void)
{
    const eo_log log = {.write = write_line, .level = EO_LOG_ERROR};
    eo_device_facts facts;
    eo_nccl_id id;
    printf("device: %s\n", eo_status_text(eo_device_ask(&facts, "cuda", 0, &log)));
    printf("id: %s\n", eo_status_text(eo_nccl_id_create(&id, &log)));
    return 0;
}
