"""oneshot - compresses Hugging Face checkpoints to compressed-tensors, one decoder layer at a time.

    from oneshot import oneshot
    oneshot(model="Qwen3-0.6B", recipe="recipe.yaml", dataset="calib.jsonl", output_dir="out",
            num_calibration_samples=128, progress=print)

Arguments are the program's flags with underscores (`oneshot --help`). A job that ends early loses
nothing: the same call continues it. Ctrl-C ends a job, too. The work is done by liboneshot, in C,
without torch and transformers.
"""
import collections
import json
import os
import tempfile
import threading

from . import _library

__all__ = ["oneshot", "plan", "evaluate", "verify", "version", "OneshotError", "Progress"]

Progress = collections.namedtuple(
    "Progress", "step n_steps name phase done total fraction eta_s tokens_per_s error finished")
Progress.__doc__ = """Where a job is: subgraph `step` of `n_steps`, and inside it `phase`, `done` of `total`; `fraction` of
the whole job and `eta_s` are None while unknown, as `error` of a finished subgraph is. `tokens_per_s`
is the number of calibration tokens divided by the seconds of the whole job."""


class OneshotError(RuntimeError):
    """A job failed; `status` is one of the library's, such as OneshotError.USAGE."""
    NOMEM, IO, FORMAT, USAGE, UNSUPPORTED, NUMERIC, INTERRUPTED, INTERNAL = range(-1, -9, -1)

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def version():
    return _library.version()


def oneshot(model, recipe=None, dataset=None, output_dir=None, *, progress=None, log=None, threads=0, log_level="warn",
            **arguments):
    """Compresses `model` into the directory `output_dir`, and returns that directory.

    recipe: LLM Compressor's YAML as a file, as text, or as dicts; without a recipe,
    `scheme="W4A16"` and similar arguments. dataset: a file, or rows, which are texts or dicts like
    a row of a .jsonl, or files and their shares: {"a.jsonl": 0.7, "b.jsonl": None}, where None is
    an equal part of the rest. progress: is called with a Progress, often, and from another thread.
    log: is called with (level, text), instead of stderr.
    """
    with tempfile.TemporaryDirectory(prefix="oneshot-") as there:
        arguments.update(model=model, output=output_dir, recipe=_recipe(recipe, there), dataset=_rows(dataset, there))
        _run("compress", arguments, progress=progress, log=log, threads=threads, log_level=log_level)
    return output_dir


def plan(model, recipe=None, dataset=None, output_dir=None, *, log=None, threads=0, log_level="warn", **arguments):
    """Describes what oneshot() with the same arguments would do: memory, subgraphs, files. Reads no
    weights."""
    with tempfile.TemporaryDirectory(prefix="oneshot-") as there:
        arguments.update(model=model, output=output_dir, recipe=_recipe(recipe, there), dataset=_rows(dataset, there))
        arguments["json"] = True
        return json.loads(_run("plan", arguments, log=log, threads=threads, log_level=log_level))


def evaluate(model, dataset, *, progress=None, log=None, threads=0, log_level="warn", **arguments):
    """Returns a dict with the perplexity of a model, dense or compressed; with `reference` also KL
    divergence and top-1 agreement."""
    with tempfile.TemporaryDirectory(prefix="oneshot-") as there:
        arguments.update(model=model, dataset=_rows(dataset, there), json=True)
        return json.loads(_run("eval", arguments, progress=progress, log=log, threads=threads, log_level=log_level))


def verify(directory, model=None, *, log=None, threads=0, log_level="warn", **arguments):
    """Checks an output against its manifest, its config and `model`, its source. Raises
    OneshotError with the findings."""
    arguments.update(model=model)
    return _run("verify", arguments, directory=directory, log=log, threads=threads, log_level=log_level)


def _recipe(recipe, there):
    if recipe is None or isinstance(recipe, os.PathLike) or (isinstance(recipe, str) and "\n" not in recipe):
        return recipe
    path = os.path.join(there, "recipe.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(recipe if isinstance(recipe, str) else json.dumps(recipe))  # JSON is YAML
    return path


def _rows(dataset, there):
    if dataset is None or isinstance(dataset, (str, os.PathLike)):
        return dataset
    if isinstance(dataset, dict):
        return [os.fspath(file) + ("" if share is None else f":{share:.9f}") for file, share in dataset.items()]
    path = os.path.join(there, "dataset.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        for row in dataset:
            f.write(json.dumps({"text": row} if isinstance(row, str) else dict(row)) + "\n")
    return path


def _words(arguments):
    """Yields name and text of each argument; a list yields its items."""
    for name, value in arguments.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is None:
                continue
            text = str(item).lower() if isinstance(item, bool) else os.fspath(item) if isinstance(item, os.PathLike) \
                else str(item)
            yield name, text


def _run(job, arguments, directory=None, progress=None, log=None, threads=0, log_level="warn"):
    """Runs the job on its own thread, so that Ctrl-C is handled; returns its text."""
    context = _library.Context(threads, log_level, log, progress and (lambda values: progress(Progress(*values))))
    try:
        done, ended = {}, threading.Event()
        words = list(_words(arguments))
        if directory is not None:
            directory = os.fspath(directory)

        def work():
            try:
                done["status"] = context.run(job, words, directory)
            except BaseException as e:
                context.raised = e
            finally:
                ended.set()

        threading.Thread(target=work, name="oneshot").start()
        try:
            # join() would take a thread for ended when it is interrupted (seen in 3.11)
            ended.wait()
        except BaseException:
            context.interrupt()
            while not ended.is_set():  # it uses the context until then
                try:
                    ended.wait()
                except KeyboardInterrupt:
                    pass
            raise
        if context.raised:
            raise context.raised
        if done["status"]:
            text = context.text() if job == "verify" else ""
            raise OneshotError(done["status"], context.error() + (":\n" + text if text else ""))
        return context.text()
    finally:
        context.close()
