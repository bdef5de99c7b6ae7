"""_progress.py - shows the progress bar for progress=True. If tqdm is installed, the bar is tqdm's,
in a notebook as a widget. Otherwise it is a line of text on stderr."""

import sys
import time
from typing import Any, Optional

SHORTEST = 0.1  # seconds between two changes of the bar


def make_tqdm() -> Optional[Any]:
    """Returns a bar of tqdm, or None without tqdm."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=100.0, bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}{postfix}")


def seconds(n: float) -> str:
    n = int(n + 0.5)
    return (
        "%d:%02d:%02d" % (n // 3600, n // 60 % 60, n % 60)
        if n >= 3600
        else "%d:%02d" % (n // 60, n % 60)
    )


def percent_of(p: Any) -> float:
    """Returns the percentage of finished work. Without p.fraction, computes it from the number of
    finished subgraphs."""
    if p.fraction is not None:
        return 100.0 * p.fraction
    part = 1.0 if p.finished else p.done / p.total if p.total else 0.0
    return 100.0 * (max(p.step - 1, 0) + part) / max(p.n_steps, 1)


class Bar:
    """Shows the progress of a job. close() ends the last line."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty() or "ipykernel" in sys.modules  # both understand \r
        self._tqdm = make_tqdm() if stream is None else None
        self._shown, self._width, self._percent = 0.0, 0, 0.0

    def __call__(self, p: Any) -> None:
        self._percent = max(self._percent, percent_of(p))
        now = time.monotonic()
        if not p.finished and (
            now - self._shown < SHORTEST or not (self._live or self._tqdm is not None)
        ):
            return
        self._shown = now
        left = "" if p.eta_s is None else seconds(p.eta_s) + " left"
        name = "[%d/%d] %s" % (p.step, p.n_steps, p.name or "")
        if self._tqdm is None:
            return self._line(name, p, left)
        self._tqdm.n = self._percent
        self._tqdm.set_description_str(name, refresh=False)
        self._tqdm.set_postfix_str(left, refresh=False)
        self._tqdm.refresh()

    def _line(self, name: str, p: Any, left: str) -> None:
        counted = (
            "%s %d/%d" % (p.phase, p.done, p.total)
            if p.phase and p.total and not p.finished
            else p.phase or ""
        )
        text = "  ".join(part for part in ("%3.0f%%" % self._percent, name, counted, left) if part)
        if self._live:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Erases the bar, so that a message can be printed; the next progress draws it again."""
        if self._tqdm is not None:
            self._tqdm.clear()
        elif self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()
        elif self._width:
            self._stream.write("\n")
