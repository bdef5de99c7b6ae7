"""template.py - writes the template of a model that oneshot does not know.

    python -m oneshot.template MODEL_DIR --output templates/mine.json

Needs torch and transformers. The program makes a small model with random weights from config.json,
and runs one sample through it. It explains each value by an op of oneshot and earlier values, and
each constant by a key of config.json. The template is proven if `oneshot check-model` computes the
same logits with it as transformers. Parts of the model that have no op are listed."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Largest accepted difference of logits, divided by the largest |logit|.
LIMIT = 5e-6
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "oneshot")


def arguments(words=None):
    parser = argparse.ArgumentParser(
        prog="python -m oneshot.template",
        description="Writes the template of a model that oneshot does not know, and proves it with "
        "the logits of transformers.",
    )
    parser.add_argument(
        "model_dir", metavar="MODEL_DIR", help="directory with config.json; weights are not needed"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="file of the template (default: standard output)"
    )
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="runs the Python code of MODEL_DIR (auto_map)",
    )
    parser.add_argument(
        "--oneshot",
        metavar="PROGRAM",
        default=PROGRAM if os.path.exists(PROGRAM) else "oneshot",
        help="the program oneshot (default: that of the wheel, else that of PATH)",
    )
    return parser.parse_args(words)


def architecture_of(directory):
    """Returns the architecture that config.json names."""
    path = os.path.join(directory, "config.json")
    try:
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
    except (OSError, ValueError) as e:
        raise SystemExit("template: cannot read %s: %s" % (path, e))
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise SystemExit(
            "template: %s: architectures is %r, want a list with the name of a class"
            % (path, names)
        )
    return names[0], "auto_map" in config


def needed():
    """Imports the packages that this program needs. If one is missing, exits with a message."""
    for name in ("numpy", "torch", "transformers", "safetensors"):
        try:
            __import__(name)
        except ImportError as e:
            raise SystemExit(
                "template: cannot import %s: %s; want torch, transformers and safetensors, "
                "such as by `pip install torch transformers`" % (name, e)
            )


def run_check(program, *words):
    """Runs `oneshot check-model`, and returns its exit code and its text."""
    try:
        done = subprocess.run([program, "check-model", *words], capture_output=True, text=True)
    except OSError as e:
        raise SystemExit(
            "template: cannot run %s: %s; --oneshot names the program" % (program, e.strerror)
        )
    return done.returncode, done.stdout + done.stderr


def logits_off(text):
    """Returns the difference of logits that check-model printed, or None."""
    found = re.search(r"by at most (\S+) of the largest", text)
    return float(found.group(1)) if found else None


class Proof:
    """The result of a comparison of logits: if they agree (`holds`), and the text of
    check-model."""

    def __init__(self, program, small, text):
        file = os.path.join(small.home, "logits.safetensors-of-transformers")
        models = os.path.join(small.home, "templates")
        os.makedirs(models, exist_ok=True)
        with open(os.path.join(models, "made.json"), "w", encoding="utf-8") as f:
            f.write(text)
        small.write_logits(file)
        code, self.said = run_check(program, small.home, "--models-dir", models, "--logits", file)
        self.off = logits_off(self.said)
        self.holds = code == 0 and self.off is not None and self.off <= LIMIT


def attempt(a, architecture, home, perturbed):
    """Returns (result, text of the template, proof) of one small model."""
    from ._assemble import assemble
    from ._model import Model
    from ._names import print_template
    from ._trace import Small

    small = Small(a.model_dir, home, a.trust_remote_code, perturbed)
    model = Model(small, a.trust_remote_code)
    result = assemble(model, architecture)
    text = print_template(result.template)
    return model, result, text, Proof(a.oneshot, small, text)


def sizes(a, template):
    """Returns texts about weights whose sizes in the user's model and in the template differ. The
    model is made without memory for its weights."""
    from ._model import flat
    from ._sizes import wrong_sizes
    from ._trace import load_config, meta_shapes

    config = load_config(a.model_dir, a.trust_remote_code)[1]
    return wrong_sizes(template, flat(config.to_dict()), meta_shapes(config, a.trust_remote_code))


def write(path, text):
    if path is None:
        sys.stdout.write(text)
        return
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def tell(text):
    print(text, file=sys.stderr, flush=True)


def probes(a, model, home):
    """Compares each class of norms and activations with its op in liboneshot, and prints the
    results."""
    from ._probe import probe_act, probe_norm

    check = lambda *words: run_check(a.oneshot, *words)
    kinds = [(kind, name, norm.op, norm) for kind, (name, norm) in sorted(model.norms.items())]
    kinds += [(kind, name, act, None) for kind, (name, act) in sorted(model.functions.items())]
    for i, (kind, name, op, norm) in enumerate(kinds):
        there, module = os.path.join(home, "probe%d" % i), model.modules[name]
        call = lambda x, module=module: model.call(module, x)
        done = (
            probe_norm(check, there, norm, model.parameters(module), call)
            if norm
            else probe_act(check, there, op, call)
        )
        if done:
            off = logits_off(done[1])
            tell(
                "%s is %s%s: liboneshot differs by %s"
                % (
                    kind,
                    op,
                    " with offset %g" % norm.offset if norm and norm.offset else "",
                    "%.1e of the largest value" % off if off is not None else done[1].strip(),
                )
            )


def report(architecture, result, proof, wrong):
    """Prints the parts that have no op and the result of the proof. Returns the exit code."""
    for text in [*dict.fromkeys(re.sub(r"\.\d+\b", ".N", f) for f in result.faults), *wrong[:8]]:
        tell("no op: " + text if text not in wrong else "wrong size: " + text)
    if not proof.holds:
        tell("check-model refuses the template of %s: %s" % (architecture, proof.said.strip()))
        return 1
    tell("logits of oneshot and transformers differ by %.1e of the largest" % proof.off)
    if result.faults or wrong:
        return 1
    tell("the template of %s is proven for the settings of this config.json" % architecture)
    return 0


def check_source(a, path):
    """Runs check-model on the user's own weights, if the directory has weights."""
    if path is None or not any(n.endswith(".safetensors") for n in os.listdir(a.model_dir)):
        return 0
    with tempfile.TemporaryDirectory(prefix="oneshot-template-") as models:
        shutil.copy(path, os.path.join(models, "template.json"))
        code, said = run_check(a.oneshot, a.model_dir, "--models-dir", models)
    tell("check-model %s: %s" % (a.model_dir, said.strip()))
    return code


def main(words=None):
    a = arguments(words)
    architecture, has_code = architecture_of(a.model_dir)
    needed()
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    home = tempfile.mkdtemp(prefix="oneshot-template-")
    try:
        tries = []
        for perturbed in (True, False):
            try:
                tries.append(
                    attempt(a, architecture, os.path.join(home, str(perturbed)), perturbed)
                )
            except Exception as e:
                if has_code and not a.trust_remote_code:
                    raise SystemExit(
                        "template: %s: the model is Python code of the directory (auto_map); "
                        "--trust-remote-code runs it" % a.model_dir
                    )
                tries.append(e)
            if not isinstance(tries[-1], Exception) and tries[-1][-1].holds:
                break
        made = [t for t in tries if not isinstance(t, Exception)]
        if not made:
            raise SystemExit(
                "template: %s: a small model of its config.json cannot be made or explained: %s: %s"
                % (a.model_dir, type(tries[0]).__name__, tries[0])
            )
        model, result, text, proof = made[-1] if made[-1][-1].holds else made[0]
        write(a.output, text)
        probes(a, model, home)
        code = report(architecture, result, proof, sizes(a, result.template))
        return code or check_source(a, a.output)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
