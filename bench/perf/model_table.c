/* SPDX-License-Identifier: MIT */
/* model_table.c - the cost table that symm-perf model reads without --costs. */
#include "perf/model.h"

__asm__(".pushsection .rodata\n"
        ".globl perf_model_table, perf_model_table_end\n"
        ".hidden perf_model_table, perf_model_table_end\n"
        "perf_model_table:\n"
        ".incbin \"" PERF_MODEL_TABLE "\"\n"
        "perf_model_table_end: .byte 0\n"
        ".popsection\n");
