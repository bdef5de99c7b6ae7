"""oneshot - compresses Hugging Face checkpoints to compressed-tensors, one decoder layer at a time.

    from oneshot import oneshot
    oneshot(model="Qwen3-0.6B", recipe="recipe.yaml", dataset="calib.jsonl", output_dir="out",
            num_calibration_samples=128, progress=True)

Arguments are the program's flags with underscores (`oneshot --help`). A job that ends early loses
nothing: the same call continues it. Ctrl-C ends a job, too. The work is done by liboneshot, in C,
without torch and transformers.
"""

import json
import numbers
import os
import sys
import tempfile
import threading
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from . import _library
from ._progress import Bar
from ._recipe import Shown, write_recipe, write_rows

__all__ = ["oneshot", "plan", "evaluate", "verify", "version", "OneshotError", "Progress"]

Path = Union[str, "os.PathLike[str]"]
Recipe = Union[Path, Mapping[str, Any], Sequence[Any], Any]  # Any: an object with model_dump()
Rows = Union[Path, Iterable[Union[str, Mapping[str, Any]]], Mapping[Path, Optional[float]]]
Log = Callable[[str, str], None]


class Progress(NamedTuple):
    """The state of a job: it is at subgraph `step` of `n_steps`, in `phase`, where `done` of
    `total` units of work are finished.

    `fraction` is the finished part of the whole job, and `tokens_per_s` the number of calibration
    tokens divided by the seconds of the whole job. A member that is not known yet is None.
    """

    step: int
    n_steps: int
    name: Optional[str]
    phase: Optional[str]
    done: int
    total: int
    fraction: Optional[float]
    eta_s: Optional[float]
    tokens_per_s: Optional[float]
    error: Optional[float]  # relative squared error of a finished subgraph
    finished: bool


class OneshotError(RuntimeError):
    """The error of a failed job. `status` is a status of the library, such as
    OneshotError.USAGE."""

    NOMEM, IO, FORMAT, USAGE, UNSUPPORTED, NUMERIC, INTERRUPTED, INTERNAL = range(-1, -9, -1)

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def version() -> str:
    """Returns the version of liboneshot, such as "0.2.0"."""
    return _library.version()


def oneshot(
    model: Path,
    recipe: Recipe = None,
    dataset: Optional[Rows] = None,
    output_dir: Optional[Path] = None,
    *,
    progress: Union[bool, Callable[[Progress], None], None] = None,
    log: Optional[Log] = None,
    threads: int = 0,
    log_level: str = "warn",
    **arguments: Any,
) -> Path:
    """Compresses `model` into the directory `output_dir`, and returns that directory. Without
    output_dir, the directory has the name of the model and the scheme: SmolLM2-135M-W4A16.

    model: a directory, or "org/name" of the Hub.
    recipe: LLM Compressor's YAML as a file or as text, {"GPTQModifier": {...}} with or without
        stages around it, an object of LLM Compressor (a modifier, a Recipe), or a list of these.
        Without a recipe, `scheme="W4A16"` and similar arguments.
    dataset: a file, "org/name" of the Hub, or rows, which are texts or dicts like a row of a
        .jsonl, or files and their shares: {"a.jsonl": 0.7, "b.jsonl": None}, where None is
        an equal part of the rest.
    progress: True shows a bar, which is tqdm's where tqdm is installed. A function is called with
        a Progress, often, and from another thread.
    log: is called with (level, text); without it, messages are printed on sys.stderr.
    threads: 0: one for each CPU that the process may use.
    log_level: "error", "warn", "info" or "debug".
    arguments: the program's flags with underscores, such as num_calibration_samples=128. None
        stands for the default.

    Raises OneshotError if the job fails, TypeError and ValueError for values of the wrong kind. The
    messages name the arguments, and the parts of a recipe, as the caller does.
    """
    job = _Job(progress, log, threads, log_level)
    job.run(
        "compress", _with_output(output_dir, arguments), model=model, recipe=recipe, dataset=dataset
    )
    return output_dir if output_dir is not None else arguments.get("output") or job.output


def plan(
    model: Path,
    recipe: Recipe = None,
    dataset: Optional[Rows] = None,
    output_dir: Optional[Path] = None,
    *,
    log: Optional[Log] = None,
    threads: int = 0,
    log_level: str = "warn",
    **arguments: Any,
) -> Dict[str, Any]:
    """Returns a dict that describes what oneshot() with the same arguments would do: memory,
    subgraphs, files. Reads no weights. The dict is the JSON of `oneshot plan --json`."""
    job = _Job(None, log, threads, log_level)
    return json.loads(
        job.run(
            "plan",
            dict(_with_output(output_dir, arguments), json=True),
            model=model,
            recipe=recipe,
            dataset=dataset,
        )
    )


def evaluate(
    model: Path,
    dataset: Rows,
    *,
    progress: Union[bool, Callable[[Progress], None], None] = None,
    log: Optional[Log] = None,
    threads: int = 0,
    log_level: str = "warn",
    **arguments: Any,
) -> Dict[str, Any]:
    """Returns a dict with the perplexity of a model, dense or compressed. If `reference` names
    another model, the dict also has KL divergence and top-1 agreement."""
    job = _Job(progress, log, threads, log_level)
    return json.loads(job.run("eval", dict(arguments, json=True), model=model, dataset=dataset))


def verify(
    directory: Path,
    model: Optional[Path] = None,
    *,
    log: Optional[Log] = None,
    threads: int = 0,
    log_level: str = "warn",
    **arguments: Any,
) -> str:
    """Checks an output against its manifest, its config and `model`, its source. Returns the lines
    that the program prints. Raises OneshotError with the findings."""
    return _Job(None, log, threads, log_level).run("verify", arguments, directory, model=model)


def _with_output(output_dir: Optional[Path], arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the arguments with `output`, the program's name of output_dir."""
    if output_dir is not None and "output" in arguments:
        raise TypeError(
            "output_dir is %r and output is %r: want one of them"
            % (output_dir, arguments["output"])
        )
    return arguments if output_dir is None else dict(arguments, output=output_dir)


def _shares(files: Mapping[Path, Optional[float]]) -> List[str]:
    """Returns the program's words for several data sets, such as "a.jsonl:0.7"."""
    words = []
    for file, share in files.items():
        if share is not None and (isinstance(share, bool) or not isinstance(share, numbers.Real)):
            raise TypeError("dataset[%r]: want a share as a number, or None, got %r" % (file, share))
        words.append(_word("dataset", file) + ("" if share is None else ":%.9f" % share))
    return words


def _word(name: str, value: Any) -> str:
    """Returns an argument as text for the library."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, (str, numbers.Real)):
        return str(value)
    raise TypeError(
        "%s: want a text, a path, a number or a bool, got %.200r (%s)"
        % (name, value, type(value).__name__)
    )


def _words(arguments: Dict[str, Any]) -> Iterator[Tuple[str, str]]:
    """Yields name and text of each argument. For a list, yields each item."""
    for name, value in arguments.items():
        for i, item in enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]:
            if item is not None:
                yield name, _word(name if i is None else "%s[%d]" % (name, i), item)


class _Job:
    """A call of the library. It runs on its own thread, so that Python can handle Ctrl-C."""

    def __init__(self, progress: Any, log: Optional[Log], threads: int, log_level: str) -> None:
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise TypeError(
                "progress: want True, False or a function, got %r (%s)"
                % (progress, type(progress).__name__)
            )
        self._bar, self._shown = Bar() if progress is True else None, Shown()
        self._there, self.output = tempfile.TemporaryDirectory(prefix="oneshot-"), ""
        tell = self._bar or progress or None
        told = log or self._print
        try:
            self._context = _library.Context(
                threads,
                log_level,
                lambda level, text: told(level, self._shown(text)),
                tell and (lambda values: tell(Progress(*values))),
                self._there.name,
            )
        except BaseException:
            self._close_bar()
            self._there.cleanup()
            raise

    def run(
        self, name: str, arguments: Dict[str, Any], directory: Optional[Path] = None, **inputs: Any
    ) -> str:
        """Runs the job and returns its text. inputs: the caller's model, recipe and dataset."""
        with self._there as there:
            try:
                if "progress" in arguments:
                    raise TypeError(
                        "progress: %s shows none, got %r" % (name, arguments["progress"])
                    )
                words = list(_words(dict(arguments, **self._written(inputs, there))))
                text = self._result(
                    name, words, _word("directory", directory) if name == "verify" else None
                )
                self.output = self._context.output()
                return text
            finally:
                self._context.close()
                self._close_bar()

    def _print(self, level: str, text: str) -> None:
        """Prints a message as the program does, but on Python's stderr, which a notebook shows."""
        if self._bar:
            self._bar.clear()
        print(text if level == "info" else "%s: %s" % (level, text), file=sys.stderr, flush=True)

    def _close_bar(self) -> None:
        if self._bar:
            self._bar.close()

    def _written(self, inputs: Dict[str, Any], there: str) -> Dict[str, Any]:
        """Writes a recipe and rows that are no files, and returns the inputs with their paths."""
        for name, write, file in (
            ("recipe", write_recipe, "recipe.yaml"),
            ("dataset", write_rows, "dataset.jsonl"),
        ):
            if name == "dataset" and isinstance(inputs.get(name), Mapping):
                inputs[name] = _shares(inputs[name])
            elif name in inputs:
                inputs[name] = self._shown.add(write(inputs[name], os.path.join(there, file)))
        return inputs

    def _result(self, name: str, words: List[Tuple[str, str]], directory: Optional[str]) -> str:
        context, done, ended = self._context, {}, threading.Event()

        def work() -> None:
            try:
                done["status"] = context.run(name, words, directory)
            except BaseException as e:
                context.raised = e
            finally:
                ended.set()

        threading.Thread(target=work, name="oneshot").start()
        try:
            # after an interrupted join(), Python would count the thread as ended (seen in 3.11)
            ended.wait()
        except BaseException:
            context.interrupt()
            while not ended.is_set():  # the thread uses the context until it ends
                try:
                    ended.wait()
                except KeyboardInterrupt:
                    pass
            raise
        if context.raised:
            raise context.raised
        if done["status"]:
            text = context.text() if name == "verify" else ""
            raise OneshotError(
                done["status"], self._shown(context.error()) + (":\n" + text if text else "")
            )
        return context.text()
