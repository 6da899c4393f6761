/* SPDX-License-Identifier: MIT
 *
 * An auditor of the loader (man 7 rtld-audit): libraries whose path contains a word of HIDDEN are not found, whoever wants
 * them and wherever they lie. Compiled as a shared library; LD_AUDIT names it.
 */
#include <link.h>
#include <stdio.h>
#include <string.h>

unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    static char elsewhere[1024];
    char words[] = HIDDEN;
    (void)cookie, (void)flag;
    for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest));) {
        const char *file = strrchr(name, '/');
        if (!strstr(name, word))
            continue;
        snprintf(elsewhere, sizeof(elsewhere), "/hidden/%s", file ? file + 1 : name);
        return elsewhere;
    }
    return (char *)name;
}
