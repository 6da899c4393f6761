/* SPDX-License-Identifier: MIT
 *
 * IDX files, the format of MNIST: images of bytes, and a label each.
 */
#ifndef MNIST_IDX_H
#define MNIST_IDX_H

#include <stdbool.h>
#include <stdint.h>

struct images {
    uint32_t count, height, width;
    uint8_t *pixels; /* [count][height][width] */
    uint8_t *labels; /* [count], each below 10 */
};

/* FOLDER/PART-images-idx3-ubyte and FOLDER/PART-labels-idx1-ubyte; PART is "train" or "t10k". False: said on standard error. */
bool images_read(struct images *images, const char *folder, const char *part);
void images_free(struct images *images);

#endif
