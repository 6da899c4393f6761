/* SPDX-License-Identifier: MIT */
#include "alone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { PIECES = 1024 };

static struct {
    unsigned char *at, *before, *after;
    uint64_t bytes;
} allowed[PIECES];
static uint32_t allowed_count, objections;
static char first_objection[700], told[700];
static cudaError_t last_error;

void alone_allow(const void *at, uint64_t bytes)
{
    for (uint32_t i = 0; i < allowed_count; i++)
        if (allowed[i].at == at)
            return;
    if (bytes == 0)
        return;
    if (allowed_count == PIECES)
        abort();
    allowed[allowed_count].at = (unsigned char *)(uintptr_t)at;
    allowed[allowed_count].before = malloc(bytes);
    allowed[allowed_count].after = malloc(bytes);
    allowed[allowed_count++].bytes = bytes;
}

void alone_allow_nothing(void)
{
    for (; allowed_count > 0; allowed_count--) {
        free(allowed[allowed_count - 1].before);
        free(allowed[allowed_count - 1].after);
    }
}

uint32_t alone_objections(void)
{
    return objections;
}

const char *alone_objection(void)
{
    memcpy(told, first_objection, sizeof(told));
    first_objection[0] = '\0';
    return told;
}

static void object(const char *text)
{
    if (first_objection[0] == '\0')
        snprintf(first_objection, sizeof(first_objection), "%s", text);
    objections++;
    last_error = cudaErrorIllegalAddress;
}

const char *kernel_memory_at(uintptr_t at, uintptr_t *from, uintptr_t *to)
{
    for (uint32_t i = 0; i < allowed_count; i++)
        if (at - (uintptr_t)allowed[i].at < allowed[i].bytes) {
            *from = (uintptr_t)allowed[i].at;
            *to = *from + allowed[i].bytes;
            return NULL;
        }
    return "outside all arrays";
}

void *kernel_host_address(void *device_address)
{
    return device_address;
}

static const char *run(const struct kernel_launch *launch, const void *arguments, size_t argument_bytes, uint64_t seed,
                       bool unchecked)
{
    static _Alignas(16) unsigned char copy[4096];
    memcpy(copy, arguments, argument_bytes);
    return kernel_run(launch, copy, argument_bytes, &(struct kernel_options){.seed = seed, .unchecked = unchecked});
}

void kernel_enqueue(const struct kernel_launch *launch, const void *arguments, size_t argument_bytes, cudaStream_t stream)
{
    static uint64_t seed;
    char text[200];
    (void)stream;
    const char *fault = kernel_launch_fault(launch, argument_bytes, text, sizeof(text));
    if (fault) {
        object(fault);
        return;
    }
    for (uint32_t i = 0; i < allowed_count; i++)
        memcpy(allowed[i].before, allowed[i].at, allowed[i].bytes);
    /* Barriers and shuffles order the same accesses in every order of threads: one look is enough. The other run gives bits to
     * compare; no access of it is looked at but those to shared memory, which must stay inside. */
    fault = run(launch, arguments, argument_bytes, ++seed, false);
    for (uint32_t i = 0; i < allowed_count && !fault; i++) {
        memcpy(allowed[i].after, allowed[i].at, allowed[i].bytes);
        memcpy(allowed[i].at, allowed[i].before, allowed[i].bytes);
    }
    if (!fault)
        fault = run(launch, arguments, argument_bytes, 0, true);
    for (uint32_t i = 0; i < allowed_count && !fault; i++)
        if (memcmp(allowed[i].after, allowed[i].at, allowed[i].bytes) != 0) {
            snprintf(text, sizeof(text), "kernel %s: other bits in another order of threads, by seed %llu", launch->name,
                     (unsigned long long)seed);
            fault = text;
        }
    if (fault)
        object(fault);
}

/* --- the calls of CUDA's runtime beside launches --- */

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "a kernel failed"; }

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind, (void)stream;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}
