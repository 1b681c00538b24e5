"""The digits network in float32: forward and backward pass, NumPy only.

    conv 3x3x16, ReLU, max pool 2, conv 3x3x32, ReLU, max pool 2, fully connected 10

Activations are NHWC and filters OHWI throughout, as in Glow's LIR. So the rows of the fully
connected weights already follow the NHWC order in which LIR flattens its input.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float32]
Tensors = dict[str, Array]

WEIGHT_SHAPES: dict[str, tuple[int, ...]] = {
    "conv1_weights": (16, 3, 3, 1),
    "conv1_bias": (16,),
    "conv2_weights": (32, 3, 3, 16),
    "conv2_bias": (32,),
    "fc_weights": (2 * 2 * 32, 10),
    "fc_bias": (10,),
}


def to_nhwc(x: Array) -> Array:
    """(N, 1, 8, 8) to (N, 8, 8, 1); with one channel this moves no value."""
    return x.reshape(len(x), 8, 8, 1)


def patches(x: Array) -> Array:
    """Lay out each 3x3 window of ``x``, zero-padded by 1, as a row: (N*H*W, 9*C)."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = sliding_window_view(padded, (3, 3), axis=(1, 2))  # (N, H, W, C, 3, 3)
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 9 * x.shape[-1])


def conv(x: Array, weights: Array, bias: Array) -> Array:
    """3x3 convolution, stride 1, pad 1."""
    y = patches(x) @ weights.reshape(len(weights), -1).T + bias
    return y.reshape(*x.shape[:3], len(weights))


def conv_gradients(x: Array, weights: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of (input, weights, bias) of :func:`conv`.

    The input's gradient is itself a convolution: of ``dy`` with the filter turned by 180 degrees
    and its input and output channels exchanged.
    """
    rows = dy.reshape(-1, len(weights))
    turned = weights[:, ::-1, ::-1, :].transpose(3, 1, 2, 0)
    dx = conv(dy, turned, np.zeros(len(turned), np.float32))
    return dx, (rows.T @ patches(x)).reshape(weights.shape), rows.sum(axis=0)


def maxpool(x: Array) -> Array:
    """2x2 maximum, stride 2."""
    n, height, width, channels = x.shape
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def relu_maxpool_gradient(x: Array, y: Array, dy: Array) -> Array:
    """Gradient of the sum before the ReLU, given the ReLU's result ``x`` and ``y = maxpool(x)``.

    Windows of zeros get nothing (ReLU); equal positive maxima, which are rare, each get all.
    """
    upsampled_y, upsampled_dy = (t.repeat(2, axis=1).repeat(2, axis=2) for t in (y, dy))
    return np.where((x == upsampled_y) & (x > 0), upsampled_dy, np.float32(0))


def forward(weights: Tensors, x: Array) -> Tensors:
    """Run NHWC images; return every activation: conv1, pool1, conv2, pool2 (after ReLU), fc."""
    conv1 = np.maximum(conv(x, weights["conv1_weights"], weights["conv1_bias"]), 0)
    pool1 = maxpool(conv1)
    conv2 = np.maximum(conv(pool1, weights["conv2_weights"], weights["conv2_bias"]), 0)
    pool2 = maxpool(conv2)
    fc = pool2.reshape(len(x), -1) @ weights["fc_weights"] + weights["fc_bias"]
    return {"data": x, "conv1": conv1, "pool1": pool1, "conv2": conv2, "pool2": pool2, "fc": fc}


def backward(weights: Tensors, a: Tensors, dfc: Array) -> Tensors:
    """Return the gradient of each weight, given the activations and the gradient of ``fc``."""
    grads = {
        "fc_weights": a["pool2"].reshape(len(dfc), -1).T @ dfc,
        "fc_bias": dfc.sum(axis=0),
    }
    dpool2 = (dfc @ weights["fc_weights"].T).reshape(a["pool2"].shape)
    dconv2 = relu_maxpool_gradient(a["conv2"], a["pool2"], dpool2)
    dpool1, grads["conv2_weights"], grads["conv2_bias"] = conv_gradients(
        a["pool1"], weights["conv2_weights"], dconv2
    )
    dconv1 = relu_maxpool_gradient(a["conv1"], a["pool1"], dpool1)
    _, grads["conv1_weights"], grads["conv1_bias"] = conv_gradients(
        a["data"], weights["conv1_weights"], dconv1
    )
    return grads


def predict(weights: Tensors, x: Array) -> NDArray[np.int64]:
    """Return the digit with the highest score for each (N, 1, 8, 8) image."""
    return forward(weights, to_nhwc(x))["fc"].argmax(axis=1)
