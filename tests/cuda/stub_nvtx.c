/* SPDX-License-Identifier: MIT
 *
 * A profiler as NVTX knows it: the library of NVTX_INJECTION64_PATH. It takes the place of two functions and writes what
 * they are told to the file of EO_STUB_NVTX, a line each: "push NAME", "pop".
 */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static _Thread_local int depth;

static void write_line(const char *what, const char *name)
{
    pthread_mutex_lock(&mutex);
    if (file) {
        fprintf(file, "%s%s\n", what, name);
        fflush(file);
    }
    pthread_mutex_unlock(&mutex);
}

static int NVTX_API on_push(const char *name)
{
    write_line("push ", name);
    return depth++;
}

static int NVTX_API on_pop(void)
{
    write_line("pop", "");
    return --depth;
}

__attribute__((visibility("default"))) int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    const char *path = getenv("EO_STUB_NVTX");
    if (!callbacks || !path || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
        size <= NVTX_CBID_CORE_RangePop)
        return 0;
    file = fopen(path, "we");
    *(int (**)(const char *))(void *)table[NVTX_CBID_CORE_RangePushA] = on_push;
    *(int (**)(void))(void *)table[NVTX_CBID_CORE_RangePop] = on_pop;
    return file != NULL;
}
