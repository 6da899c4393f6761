#!/bin/sh
# SPDX-License-Identifier: MIT
# Writes the C source of a stand-in for libcuda.so.1: every function of NVIDIA's stub, none of which does anything. It is
# enough for cuDNN to build plans for a device that is described by a text. Usage: make_fake_libcuda.sh STUB OUT.c
set -eu
nm -D --defined-only "$1" | awk '
BEGIN {
    print "/* SPDX-License-Identifier: MIT */"
    special["cuInit"] = "return 100; /* no device */"
    special["cuGetExportTable"] = "return 500;"
    special["cuDriverGetVersion"] = "*(int *)a = 13000; return 0;"
    n = split("cuLibraryLoadData cuLibraryGetKernel cuLibraryGetModule cuKernelGetFunction cuModuleGetFunction cuModuleGetGlobal_v2", names, " ")
    for (i = 1; i <= n; i++)
        special[names[i]] = "static long dummy[64]; *(void **)a = dummy; return 0;"
    count = 0
}
$2 ~ /^[TW]$/ && $3 ~ /^cu[A-Z]/ {
    body = $3 in special ? special[$3] : "return 0;"
    printf "int %s(void *a);\nint %s(void *a) { (void)a; %s }\n", $3, $3, body
    count++
}
END { if (count < 100) { print "too few functions in the stub" > "/dev/stderr"; exit 1 } }
' >"$2"
