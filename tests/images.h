/* SPDX-License-Identifier: MIT */
/*
 * images.h - modules for the fake CUDA driver in a build without kernels: the driver checks
 * only their form, and finds functions by name in itself.
 */
#ifndef SYMM_TESTS_IMAGES_H
#define SYMM_TESTS_IMAGES_H

/* Sets SYMM_KERNELS to a new folder if the library has no kernels built in. */
void images_provide(void);
void images_remove(void); /* the folder, if this process made it */

#endif
