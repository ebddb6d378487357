/* SPDX-License-Identifier: MIT */
/*
 * images.h - kernels for the fake CUDA driver in a build that has none: it asks only that a
 * module looks like one, and finds functions by their names in itself.
 */
#ifndef SYMM_TESTS_IMAGES_H
#define SYMM_TESTS_IMAGES_H

/* Sets SYMM_KERNELS to a new folder if the library has no kernels built in. */
void images_provide(void);
void images_remove(void); /* the folder, if this process has made one */

#endif
