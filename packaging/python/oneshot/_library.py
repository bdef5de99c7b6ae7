"""_library.py - calls the functions of include/oneshot.h with ctypes."""
import ctypes
import os

# ONESHOT_LIBRARY names another library than the installed one, for tests and for users who build
# their own.
_lib = ctypes.CDLL(os.environ.get("ONESHOT_LIBRARY") or os.path.join(os.path.dirname(__file__), "lib", "liboneshot.so.0"))

LEVELS = ("error", "warn", "info", "debug")
MOST_THREADS = 4096  # the limit of oneshot_new; ctypes would wrap a larger number


class _Progress(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("step", ctypes.c_int64), ("n_steps", ctypes.c_int64),
                ("name", ctypes.c_char_p), ("phase", ctypes.c_char_p), ("done", ctypes.c_int64),
                ("total", ctypes.c_int64), ("fraction", ctypes.c_double), ("eta_s", ctypes.c_double),
                ("tokens_per_s", ctypes.c_double), ("error", ctypes.c_double), ("finished", ctypes.c_int)]


_on_log = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_on_progress = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Progress))
_on_text = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int), ("log_level", ctypes.c_int), ("on_log", _on_log),
                ("on_progress", _on_progress), ("on_text", _on_text), ("user", ctypes.c_void_p),
                ("owns_process", ctypes.c_int), ("variable", ctypes.c_void_p), ("temporary", ctypes.c_char_p)]


class _Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p)]


def _declare(name, result, *arguments):
    f = getattr(_lib, name)
    f.restype, f.argtypes = result, arguments
    return f


_new = _declare("oneshot_new", ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Options))
_free = _declare("oneshot_free", None, ctypes.c_void_p)
_error = _declare("oneshot_error", ctypes.c_char_p, ctypes.c_void_p)
_output = _declare("oneshot_output", ctypes.c_char_p, ctypes.c_void_p)
_version = _declare("oneshot_version", ctypes.c_char_p)
_interrupt = _declare("oneshot_interrupt", None, ctypes.c_void_p)
_jobs = {name: _declare("oneshot_" + name, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Argument))
         for name in ("compress", "plan", "eval")}
_verify = _declare("oneshot_verify", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(_Argument))


def version():
    return _version().decode()


def _text(value):
    return value.decode("utf-8", "replace") if value is not None else None


def _bytes(name, value):
    """Encodes a text for C. Refuses a NUL, because C would read the text only up to it."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError("%s: a NUL at byte %d of %r, want text without one" % (name, encoded.index(b"\0"), value))
    return encoded


class Context:
    """Runs one job at a time. An exception in a callback ends the job, and is in `raised`."""

    def __init__(self, threads, log_level, log, progress, temporary):
        self.raised, self._texts, self._o = None, [], ctypes.c_void_p()
        self._log = _on_log(lambda user, level, text: self._call(log, LEVELS[level], _text(text))) if log else _on_log()
        self._progress = _on_progress(
            lambda user, p: self._call(progress, self._values(p.contents))) if progress else _on_progress()
        self._on_text = _on_text(lambda user, text, n: self._texts.append(ctypes.string_at(text, n)))
        if log_level not in LEVELS:
            raise ValueError("log_level: want one of %s, got %r" % (", ".join(LEVELS), log_level))
        if not isinstance(threads, int) or not 0 <= threads <= MOST_THREADS:
            raise ValueError("threads: want a whole number from 0 to %d, got %r" % (MOST_THREADS, threads))
        self._temporary = os.fsencode(temporary)
        getenv = ctypes.cast(ctypes.CDLL(None).getenv, ctypes.c_void_p)
        options = _Options(ctypes.sizeof(_Options), threads, LEVELS.index(log_level), self._log, self._progress,
                           self._on_text, None, 0, getenv, self._temporary)
        status = _new(ctypes.byref(self._o), ctypes.byref(options))
        if status:
            raise MemoryError("no memory") if status == -1 else ValueError("oneshot_new gives %d" % status)

    def _call(self, function, *arguments):
        try:
            if not self.raised:
                function(*arguments)
        except BaseException as e:  # no exception may pass through C
            self.raised = e
            self.interrupt()

    @staticmethod
    def _values(p):
        return (p.step, p.n_steps, _text(p.name), _text(p.phase), p.done, p.total,
                p.fraction if p.fraction >= 0 else None, p.eta_s if p.eta_s >= 0 else None,
                p.tokens_per_s if p.tokens_per_s > 0 else None, p.error if p.error >= 0 else None, bool(p.finished))

    def run(self, job, words, directory=None):
        self._texts.clear()
        arguments = (_Argument * (len(words) + 1))(*[(_bytes("an argument's name", n), _bytes(n, v)) for n, v in words])
        if job == "verify":
            return _verify(self._o, _bytes("directory", directory), arguments)
        return _jobs[job](self._o, arguments)

    def interrupt(self):
        _interrupt(self._o)

    def error(self):
        return _text(_error(self._o))

    def output(self):
        return os.fsdecode(_output(self._o))

    def text(self):
        return b"".join(self._texts).decode("utf-8", "replace")

    def close(self):
        _free(self._o)
        self._o = ctypes.c_void_p()
