/* SPDX-License-Identifier: MIT */
/*
 * stack_switch.h - one thread with several stacks, on x86-64: for the simulators of kernels and of
 * jobs. Other machines use ucontext, which makes a system call at each switch.
 */
#ifndef SYMM_TESTS_STACK_SWITCH_H
#define SYMM_TESTS_STACK_SWITCH_H

#include <stddef.h>

/* Defines void name(void **from, void *to): saves what a call preserves on this stack, and where in
 * *from; goes on at `to`, which another call has saved or stack_begin has returned. */
#define STACK_SWITCH(name)                                                             \
    __asm__(".text\n"                                                                  \
            ".p2align 4\n"                                                             \
            ".hidden " #name "\n"                                                      \
            ".globl " #name "\n"                                                       \
            ".type " #name ", @function\n" #name ":\n"                                 \
            "    endbr64\n"                                                            \
            "    pushq %rbp\n"                                                         \
            "    pushq %rbx\n"                                                         \
            "    pushq %r12\n"                                                         \
            "    pushq %r13\n"                                                         \
            "    pushq %r14\n"                                                         \
            "    pushq %r15\n"                                                         \
            "    movq %rsp, (%rdi)\n"                                                  \
            "    movq %rsi, %rsp\n"                                                    \
            "    popq %r15\n"                                                          \
            "    popq %r14\n"                                                          \
            "    popq %r13\n"                                                          \
            "    popq %r12\n"                                                          \
            "    popq %rbx\n"                                                          \
            "    popq %rbp\n"                                                          \
            "    ret\n"                                                                \
            ".size " #name ", . - " #name "\n")

/* Prepares the stack that ends at `end`: the first switch to it calls `entry`, which never returns. */
static inline void *stack_begin(void *end, void (*entry)(void))
{
    void **top = (void **)end;

    *--top = NULL; /* where it would return to */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = NULL; /* the registers */
    return top;
}

#endif
