"""rng.py - implements the counter RNG of src/base/rng.h, for the gen.py of the goldens."""
import numpy as np

U64 = np.uint64


def rng_u64(seed, stream, n):
    """Returns the values 0 to n - 1 of a stream."""
    with np.errstate(over="ignore"):
        x = U64(seed) + U64(0x9E3779B97F4A7C15) * ((U64(stream) << U64(32)) + np.arange(n, dtype=U64) + U64(1))
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
        return x ^ (x >> U64(31))


def rng_sym(seed, stream, n):
    """Returns n uniform numbers in [-1, 1), exact in f32."""
    return (rng_u64(seed, stream, n) >> U64(40)).astype(np.float32) * np.float32(1 / 8388608) - np.float32(1)
