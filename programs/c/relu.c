/* An activation of your own: y = max(x, 0) on the real values, one element at a time.
 *
 * Each core computes an equal share of the elements. A share starts at a multiple of 4 bytes, so
 * that no two cores store to the same word.
 */
#include "nmp.h"

static int32_t load(const nmp_tensor_t *tensor, uint32_t index)
{
    if (tensor->type == NMP_TYPE_INT8)
        return ((const int8_t *)tensor->data)[index];
    return ((const int16_t *)tensor->data)[index];
}

static void store(const nmp_tensor_t *tensor, uint32_t index, int32_t value)
{
    if (tensor->type == NMP_TYPE_INT8)
        ((int8_t *)tensor->data)[index] = (int8_t)value;
    else
        ((int16_t *)tensor->data)[index] = (int16_t)value;
}

NMP_KERNEL void kernel(const nmp_layer_t *layer, uint32_t core, uint32_t cores)
{
    const nmp_tensor_t *tensors = layer->tensors, *y = &tensors[0], *x = &tensors[1];
    uint32_t count = y->size_0 * y->size_1 * y->size_2 * y->size_3;
    uint32_t share = ((count + cores - 1) / cores + 3) & ~3u;
    uint32_t begin = core * share, end = begin + share < count ? begin + share : count;

    for (uint32_t i = begin; i < end; i++) {
        int32_t value = load(x, i);
        store(y, i, value > x->offset ? value : x->offset);
    }
}
