/* SPDX-License-Identifier: MIT
 *
 * Names of kernels as CUPTI gives them, without what the C++ compiler put around them; whatever the bytes are.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tools/run/machine/gpu_watch.h"

Test(gpu_watch, names_of_kernels)
{
    static const struct { const char *name, *short_name; } cases[] = {
        {"_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE", "ncclDevKernel_AllGather_RING_LL"},
        {"_ZL12sum_in_orderPfPKf", "sum_in_order"},
        {"_ZN7cutlass6KernelI4gemmEEvT_", "Kernel"},
        {"_ZN12_GLOBAL__N_13fooEv", "foo"},
        {"sm90_xmma_gemm_bf16bf16", "sm90_xmma_gemm_bf16bf16"},
        {"void kernel<float>(float*)", "void kernel"},
        {"_Z", "_Z"}, {"_Z99short", "_Z99short"}, {"_ZN", "_ZN"}, {"", ""}, {"_Z18446744073709551617x", "_Z18446744073709551617x"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[96];
        cr_expect_str_eq(tool_kernel_name(cases[i].name, name, sizeof(name)), cases[i].short_name, "%s gives %s", cases[i].name,
                         name);
    }
    char tight[4];
    cr_assert_str_eq(tool_kernel_name("_Z6kernelv", tight, sizeof(tight)), "ker");
}
