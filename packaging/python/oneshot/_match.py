"""_match.py - finds ops of templates that compute given arrays, or the outputs of given modules."""

import math

import numpy

EXACT, CLOSE = 2e-6, 2e-5  # largest differences, relative to the largest value

_erf = numpy.vectorize(math.erf, otypes=[float])


def _tanh_gelu(x):
    return 0.5 * x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


ACTS = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": lambda x: numpy.maximum(x, 0),
    "relu2": lambda x: numpy.maximum(x, 0) ** 2,
}
GATED = ("silu", "gelu", "gelu_pytorch_tanh")  # activations of the op glu


def off(a, b):
    """Returns the largest difference of two arrays, divided by the largest |b|."""
    if a.shape != b.shape:
        return math.inf
    return float(numpy.abs(a - b).max() / max(numpy.abs(b).max(), 1e-30))


def rows(array, n):
    """Returns a value as an array [n, width] for n tokens, or None if no dimension is n."""
    shape = array.shape
    if array.ndim == 4 and shape[0] == 1 and shape[2] == n and shape[1] != n:
        return array[0].transpose(1, 0, 2).reshape(n, -1)
    if array.ndim > 1 and shape[0] == 1 and shape[1] == n:
        return array[0].reshape(n, -1)
    if array.ndim > 1 and shape[0] == n:
        return array.reshape(n, -1)
    if array.ndim > 1 and shape[-1] and math.prod(shape[:-1]) % n == 0:  # [T * H, Dh]
        return array.reshape(n, -1)
    return None


def columns(target, value):
    """Finds the columns of `target` in `value`: parts of `width` columns that begin at first,
    first + period, ... Returns {first, width, period, count}, or None."""
    n = target.shape[1]
    if value.shape[1] < n:
        return None
    at = [int(numpy.abs(value[0] - x).argmin()) for x in target[0]]
    if off(value[:, at], target) > EXACT or len(set(at)) != n:
        return None
    width = next((j for j in range(1, n) if at[j] != at[j - 1] + 1), n)
    period = at[width] - at[0] if width < n else value.shape[1]
    wanted = [at[0] + j // width * period + j % width for j in range(n)]
    if n % width or at != wanted:
        return None
    return {"first": at[0], "width": width, "period": period, "count": n // width}


def act_of(target, value):
    """Returns the name of the activation f with f(value) = target, or None."""
    return next((name for name, f in ACTS.items() if off(f(value), target) < CLOSE), None)


def glu_of(target, gate, up):
    """Returns the name of the activation with act(gate) * up = target, or None."""
    return next((name for name in GATED if off(ACTS[name](gate) * up, target) < CLOSE), None)


class Norm:
    """Holds the op of a norm, with its eps, offset and bias. `plain`: the norm has no weight.
    `off`: the difference between the module and the formula of the op."""

    def __init__(self, call, parameters, width):
        generator = numpy.random.default_rng(3)
        large, small = generator.normal(size=(24, width)), generator.normal(size=(24, width)) * 1e-2
        made = [call(large), call(small)]
        weights = {n: p for n, p in parameters.items() if p.ndim == 1 and p.size == width}
        bias = weights.pop("bias", None)
        found = [self._fit(centred, large, small, made, weights, bias) for centred in (False, True)]
        best = min(found, key=lambda f: f[0])
        self.off, self.op, self.eps, self.offset, self.plain = best
        self.bias = bias is not None
        self.leaf = next(iter(weights), "weight")

    @staticmethod
    def _fit(centred, large, small, made, weights, bias):
        op, shift = ("layer_norm" if centred else "rms_norm"), 0 if bias is None else bias
        if made[0].shape != large.shape:
            return (math.inf, op, 0, 0, False)
        x, tiny = (v - v.mean(1, keepdims=True) * centred for v in (large, small))
        unit = x / numpy.sqrt((x**2).mean(1, keepdims=True))
        gain = (unit * (made[0] - shift)).sum(0) / (unit**2).sum(0)
        weight = next(iter(weights.values()), None)
        offset = 0.0 if weight is None else float(round(numpy.median(gain - weight)))
        exact = (0 if weight is None else weight) + (1.0 if weight is None else offset)
        square = (tiny**2).mean(1)
        y = made[1] - shift
        ratio = (y * tiny * exact).sum(1) / ((tiny * exact) ** 2).sum(1)
        eps = float(numpy.median(1 / numpy.maximum(ratio, 1e-30) ** 2 - square))
        eps = max(eps, 0.0)
        again = [
            v / numpy.sqrt((v**2).mean(1, keepdims=True) + eps) * exact + shift for v in (x, tiny)
        ]
        difference = max(off(a, b) for a, b in zip(again, made))
        return (difference, op, eps, offset, weight is None)


def linear_off(x, y, weight, bias):
    """Returns the largest difference of y and x W^T + b, divided by the largest |y|."""
    if weight.ndim != 2 or x.shape[1] != weight.shape[1] or y.shape[1] != weight.shape[0]:
        return math.inf
    return off(x @ weight.T + (0 if bias is None else bias), y)


# ---- attention ----


def rotate(x, angles, interleaved):
    """Rotates the first elements of x [T, H, Dh] by angles [T, R / 2]."""
    n, y = angles.shape[1], x.copy()
    c, s = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None]
    one, two = (
        (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleaved else (slice(0, n), slice(n, 2 * n))
    )
    y[..., one], y[..., two] = x[..., one] * c - x[..., two] * s, x[..., two] * c + x[..., one] * s
    return y


def angles_of(cosine, sine):
    """Returns the angles [T, R / 2] that the cosines and sines of a rotary module stand for."""
    angle = numpy.arctan2(sine, cosine)
    n = angle.shape[1]
    if n % 2 == 0 and off(angle[:, : n // 2], angle[:, n // 2 :]) < 1e-9:
        return angle[:, : n // 2]
    if n % 2 == 0 and off(angle[:, ::2], angle[:, 1::2]) < 1e-9:
        return angle[:, ::2]
    return angle


def scores_fit(query, key, scores, caps):
    """Finds (scale, cap) for scores that are not masked: scores = s with s = scale * q k^T (cap 0),
    or scores = cap * tanh(s / cap). Returns None if neither fits. query [T, H, Dh], key [T, K, Dh],
    scores [H, T, T]."""
    n, n_heads = query.shape[:2]
    key = numpy.repeat(key, n_heads // key.shape[1], axis=1)
    product = numpy.einsum("thd,shd->hts", query, key)
    seen = numpy.tril(numpy.ones((n, n), bool))[None] & (scores > -1e6)
    p, s = product[seen], scores[seen]
    found = []
    for cap in (0, *caps):
        if cap and numpy.abs(s).max() >= cap:
            continue
        t = cap * numpy.arctanh(s / cap) if cap else s
        scale = float((p * t).sum() / (p * p).sum())
        made = cap * numpy.tanh(scale * p / cap) if cap else scale * p
        found.append((off(made, s), scale, cap))
    best = min(found)
    return best[1:] if best[0] < CLOSE else None


def value_columns(target, value, n_heads):
    """Finds the columns of `value` that are the values of attention with the output `target`. (The
    first token sees only itself, so its output is its value.) Returns (head width, first column,
    distance of two heads, number of heads), or None."""
    width = target.shape[1] // n_heads
    at = []
    for head in range(n_heads):
        part = target[0, head * width : (head + 1) * width]
        fits = [
            j
            for j in range(value.shape[1] - width + 1)
            if off(value[0, j : j + width], part) < CLOSE
        ]
        if len(fits) != 1:
            return None
        at.append(fits[0])
    own = sorted(set(at))
    steps = {b - a for a, b in zip(own, own[1:])}
    if (
        len(steps) > 1
        or n_heads % len(own)
        or at != [own[h // (n_heads // len(own))] for h in range(n_heads)]
    ):
        return None
    return width, own[0], steps.pop() if steps else width, len(own)
