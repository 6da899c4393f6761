/* SPDX-License-Identifier: MIT
 *
 * Libraries loaded at their first use, and never linked. A program of ours starts without them, links statically, and does
 * not pay for device code (hundreds of megabytes) that it may never run. A loaded library stays: device code is not made for
 * unloading.
 *
 * All of it is inline: the layers see nothing else of base/, and load libraries of their own.
 */
#ifndef EO_BASE_LIBRARY_H
#define EO_BASE_LIBRARY_H

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct eo_library {
    const char *title;            /* as its users call it */
    const char *file;             /* as the loader calls it: with the major version of our headers */
    const char *folder;           /* of the build; tried where the loader finds nothing. NULL or "": none */
    const char *remedy;           /* ends the text of a failure */
    const char *const *functions; /* names */
    uint32_t function_count;
    uint32_t optional_count; /* the last of the functions: NULL where the library has none */
    bool is_shared; /* one that the program has already, linked or preloaded, is taken: so its handles are ours too */
    pthread_mutex_t lock;
    bool is_loaded; /* under the lock */
};

static inline int eo_library_sees_loader(struct dl_phdr_info *program, size_t bytes, void *found)
{
    (void)bytes;
    for (uint32_t i = 0; i < program->dlpi_phnum; i++)
        *(bool *)found = *(bool *)found || program->dlpi_phdr[i].p_type == PT_INTERP;
    return 1; /* the first is the program; no others */
}

/* A static program has no loader. glibc's dlopen would bring a second C library into it, and works only beside the very
 * version that it was linked with. */
static inline bool eo_library_has_loader(void)
{
    bool found = false;
    (void)dl_iterate_phdr(eo_library_sees_loader, &found);
    return found;
}

/* dlopen. NULL: `problem` says why. `folder` as above. */
static inline void *eo_library_open(const char *file, const char *folder, int mode, char *problem, size_t problem_bytes)
{
    if (!eo_library_has_loader()) {
        snprintf(problem, problem_bytes, "this program is linked statically, and loads no %s", file);
        return NULL;
    }
    void *library = dlopen(file, mode);
    const char *why = library ? NULL : dlerror();
    snprintf(problem, problem_bytes, "%s", why ? why : "");
    if (!library && folder && folder[0] != '\0') {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", folder, file);
        library = dlopen(path, mode);
        why = library ? NULL : dlerror();
        const size_t used = strlen(problem);
        snprintf(problem + used, problem_bytes - used, "; %s", why ? why : "");
    }
    return library;
}

static inline bool eo_library_find(const struct eo_library *library, void *functions, char *text, size_t text_bytes)
{
    char problem[600];
    void *from = RTLD_DEFAULT;
    if (!library->is_shared || !dlsym(from, library->functions[0])) {
        from = eo_library_open(library->file, library->folder, RTLD_NOW | RTLD_LOCAL, problem, sizeof(problem));
        if (!from) {
            snprintf(text, text_bytes, "%s cannot be loaded: %s. %s", library->title, problem,
                     eo_library_has_loader() ? library->remedy : "Link it dynamically");
            return false;
        }
    }
    for (uint32_t i = 0; i < library->function_count - library->optional_count; i++) {
        if (!dlsym(from, library->functions[i])) {
            snprintf(text, text_bytes, "%s: the library has no %s. %s", library->title, library->functions[i],
                     library->remedy);
            return false;
        }
    }
    for (uint32_t i = 0; i < library->function_count; i++) {
        void *function = dlsym(from, library->functions[i]);
        memcpy((char *)functions + i * sizeof(function), &function, sizeof(function));
    }
    return true;
}

/* From any thread, again and again: writes the functions' addresses, once, into `functions`, an array or a struct of
 * pointers in the order of the names. false: `text` says why, and what to do. */
static inline bool eo_library_load(struct eo_library *library, void *functions, char *text, size_t text_bytes)
{
    pthread_mutex_lock(&library->lock);
    if (!library->is_loaded)
        library->is_loaded = eo_library_find(library, functions, text, text_bytes);
    const bool is_loaded = library->is_loaded;
    pthread_mutex_unlock(&library->lock);
    return is_loaded;
}

#endif
