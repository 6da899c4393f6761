/* SPDX-License-Identifier: MIT */
#include "layers/reference_kernels.h"
