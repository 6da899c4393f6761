/* SPDX-License-Identifier: MIT */
#ifndef EO_TESTS_SIMULATOR_CUBLASLT_CUBLASLT_H
#define EO_TESTS_SIMULATOR_CUBLASLT_CUBLASLT_H

/* Of all handles since the program's start. refused: calls that cuBLASLt would refuse, or that would compute nonsense. */
struct sim_cublaslt_counts {
    int handles, heuristics, checks, products, refused;
    char first_refusal[96];
};
struct sim_cublaslt_counts sim_cublaslt_counts(void);

#endif
