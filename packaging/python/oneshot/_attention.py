"""_attention.py - explains the output of attention: finds the queries, keys and values, the
rotation by rope, and the scale, window and cap of the scores."""

import numpy

from ._match import CLOSE, rotate, scores_fit, value_columns


def part_columns(p):
    """Returns the columns of a part of a value, as a list."""
    return [p["first"] + i * p["period"] + j for i in range(p["count"]) for j in range(p["width"])]


class Attention:
    """The part of a Builder (_explain.py) that explains attention."""

    def attention(self, target, of):
        """Explains the output of attention by the recorded inputs of softmax (the scores)."""
        for scores in self.scores:
            n_heads = scores.shape[0]
            if target.shape[1] % n_heads or scores.shape[1:] != (len(target), len(target)):
                continue
            for name in reversed(list(self.values)):
                found = value_columns(target, self.values[name], n_heads)
                out = found and self.attend(target, of, scores, name, found)
                if out:
                    return out
        return None

    def attend(self, target, of, scores, source, found):
        width, first, period, n_kv = found
        n_heads = scores.shape[0]
        part = dict(first=first, width=width, period=period, count=n_kv)
        if period == width:
            part.update(width=width * n_kv, count=1)
        for q, k in self.pairs(source, part, width, n_heads, n_kv):
            fit = self.rotation(self.cut(q), self.cut(k), scores, n_heads, n_kv, width)
            if fit:
                query, key = (
                    self.slice(x[0], x[1], of, out=letter) for x, letter in ((q, "q"), (k, "k"))
                )
                value = self.slice(source, part, of, out="v")
                return self.attended(
                    target, of, scores, (query, key, value), fit, (n_heads, n_kv, width)
                )
        return None

    def cut(self, part):
        name, p = part
        return self.values[name][:, part_columns(p)]

    def pairs(self, source, part, width, n_heads, n_kv):
        """Yields pairs of parts of values that may be queries and keys."""

        def whole(name):
            wide = self.values[name].shape[1]
            return name, dict(first=0, width=wide, period=wide, count=1)

        names = list(reversed(list(self.values)))
        queries = [n for n in names if self.values[n].shape[1] == n_heads * width]
        keys = [n for n in names if self.values[n].shape[1] == n_kv * width]
        for q in queries:
            for k in keys:
                if q != k:
                    yield whole(q), whole(k)
        period = part["period"]
        if self.values[source].shape[1] == (n_heads + 2 * n_kv) * width:
            q, k = n_heads * width, n_kv * width
            yield (
                (source, dict(first=0, width=q, period=q, count=1)),
                (source, dict(first=q, width=k, period=k, count=1)),
            )
            each = n_heads // n_kv * width
            if part["count"] == n_kv and period == each + 2 * width:
                yield (
                    (source, dict(first=0, width=each, period=period, count=n_kv)),
                    (source, dict(first=each, width=width, period=period, count=n_kv)),
                )

    def rotation(self, query, key, scores, n_heads, n_kv, width):
        """Returns (angles or None, interleaved, scale, cap) that make the scores, or None."""
        n = len(query)
        q, k = query.reshape(n, n_heads, width), key.reshape(n, n_kv, width)
        for angles in (*self.model.angles, None):
            for interleaved in (False, True) if angles is not None else (False,):
                if angles is not None and 2 * angles.shape[1] > width:
                    continue
                turned = (
                    (q, k)
                    if angles is None
                    else (rotate(q, angles, interleaved), rotate(k, angles, interleaved))
                )
                fit = scores_fit(*turned, scores, self.model.caps)
                if fit:
                    return (angles, interleaved, *fit)
        return None

    def attended(self, target, of, scores, inputs, fit, heads):
        angles, interleaved, scale, cap = fit
        n_heads, n_kv, width = heads
        query, key, value = inputs
        names, size = self.model.names, lambda n: self.model.names.size(n, ("Dh", "H", "K"))
        if angles is not None:
            attr = {"head_dim": size(width), **self.model.rope_attr(angles, width, interleaved)}
            for name, out in ((query, "qr"), (key, "kr")):
                self.op(
                    of,
                    "rope",
                    [name],
                    self.add(numpy.full((len(target), 1), numpy.nan), out),
                    **attr
                )
            query, key = self.entries[-2]["out"], self.entries[-1]["out"]
        attr = {
            "n_heads": names.size(n_heads, ("H",)),
            "n_kv_heads": names.size(n_kv, ("K", "H")),
            "head_dim": size(width),
        }
        scale /= self.model.rope_factor(angles)
        if abs(scale * width**0.5 - 1) > CLOSE:
            attr["scale"] = names.number(scale)
        seen = int((scores[0, -1] > -1e6).sum())
        self.window = seen if seen < len(target) else 0
        if cap:
            attr["softcap"] = names.number(cap)
        return self.op(of, "attention", [query, key, value], self.add(target, "attended"), **attr)
