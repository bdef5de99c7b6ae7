#!/usr/bin/env python3
"""release.py - checks and sets the version number, which is in several files, and tags a release.

Without arguments the script only checks. It fails in these cases: a file has another version than
CMakeLists.txt; CHANGELOG.md does not begin with this version; the Dockerfile or the workflow call a
script, a preset or an option that does not exist.

Usage: release.py              checks
       release.py --set X.Y.Z  writes the version to all files; if the newest part of CHANGELOG.md
                               has a date, adds a new part
       release.py --notes      prints the release notes, which are the newest part of CHANGELOG.md
       release.py --tag        makes the tag vX.Y.Z of a clean tree whose CHANGELOG.md has a date;
                               pushes nothing"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUMBER = r"\d+\.\d+\.\d+"
PLACES = {  # {file: the text before and after the version number}
    "CMakeLists.txt": r"(project\(oneshot VERSION )({})( )",
    "docs/reference/oneshot.1": r'(^\.TH ONESHOT 1 "" "oneshot )({})(")',
    **{f"docs/reference/man/{p.name}": r'(^\.TH ONESHOT-[A-Z-]+ 1 "" "oneshot )({})(")'
       for p in sorted((ROOT / "docs/reference/man").glob("*.1"))},
    **{f"docs/how-to/{page}.md": r"(oneshot[:_-])({})([_-](?:amd64|linux|py3)| --model)" for page in ("packages", "python")},
}
HEAD = re.compile(rf"^## \[({NUMBER})\] - (unreleased|\d{{4}}-\d\d-\d\d)$", re.M)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def places(name):
    return re.compile(PLACES[name].replace("{}", NUMBER), re.M)


def current():
    return places("CMakeLists.txt").search(read("CMakeLists.txt")).group(2)


def check_numbers(version, wrong):
    for name in PLACES:
        found = [m.group(2) for m in places(name).finditer(read(name))]
        wrong += [f"{name}: found version {n}, wanted {version} of CMakeLists.txt" for n in found if n != version]
        if not found:
            wrong.append(f"{name}: found no version")
    heads = HEAD.findall(read("CHANGELOG.md"))
    if not heads or heads[0][0] != version:
        wrong.append(f"CHANGELOG.md: begins with {heads[0][0] if heads else 'no version'}, wanted {version}")
    wrong += [f"CHANGELOG.md: {n} follows {version} and is unreleased" for n, date in heads[1:] if date == "unreleased"]


def check_calls(wrong):
    """Checks the files that only other machines use (Dockerfile, workflow)."""
    presets = {p["name"] for p in json.loads(read("CMakePresets.json"))["configurePresets"]}
    cmake = "\n".join(p.read_text(encoding="utf-8") for p in [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")])
    for name in ("Dockerfile", ".github/workflows/ci.yml", ".ci/run", "scripts/test.sh"):
        text = "\n".join(line for line in read(name).split("\n") if not line.lstrip().startswith("#"))
        for script in re.findall(r"(?<![\w/$])((?:scripts|packaging)/[\w.-]+|\.ci/\w+)", text):
            if not (ROOT / script).exists():
                wrong.append(f"{name}: calls {script}, which does not exist")
        for preset in re.findall(r"--preset ([a-z]+)", text):
            if preset not in presets:
                wrong.append(f"{name}: no preset {preset}")
        for option in re.findall(r"-D(OSH_\w+)=", text):
            if not re.search(rf"option\({option}\b|set\({option}\b", cmake):
                wrong.append(f"{name}: no option {option}")
    deb = re.search(r"COPY --from=build \S+/(oneshot\S+\.deb)", read("Dockerfile")).group(1)
    if not pathlib.PurePath(f"oneshot_{current()}_amd64.deb").match(deb):
        wrong.append(f"Dockerfile: copies {deb}, which cpack does not make")


def check():
    wrong = []
    check_numbers(current(), wrong)
    check_calls(wrong)
    print("\n".join(wrong + [f"version {current()}, {len(wrong)} wrong"]))
    return 1 if wrong else 0


def set_version(version):
    if not re.fullmatch(NUMBER, version):
        return f"release.py: '{version}' is not X.Y.Z"
    for name in PLACES:
        (ROOT / name).write_text(places(name).sub(rf"\g<1>{version}\g<3>", read(name)), encoding="utf-8")
    log = read("CHANGELOG.md")
    last, date = HEAD.search(log).groups()
    if last != version:  # the last version was never released, so its number is replaced
        rest = "" if date == "unreleased" else f"\n\n## [{last}] - {date}"
        log = HEAD.sub(f"## [{version}] - unreleased{rest}", log, count=1)
        (ROOT / "CHANGELOG.md").write_text(log, encoding="utf-8")
    return check()


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout


def notes():
    """Returns the part of CHANGELOG.md about the newest version."""
    return re.split(rf"^## \[{NUMBER}\]", read("CHANGELOG.md"), flags=re.M)[1].split("\n", 1)[1].strip()


def tag():
    if check():
        return 1
    version, date = HEAD.search(read("CHANGELOG.md")).groups()
    if date == "unreleased":
        return f"release.py: CHANGELOG.md says '[{version}] - unreleased': want the day, such as [{version}] - 2026-01-31"
    if git("status", "--porcelain"):
        return "release.py: the tree has changes that are not committed"
    git("tag", "-a", f"v{version}", "--cleanup=verbatim", "-m", f"oneshot {version}\n\n{notes()}")
    print(f"made v{version}; publish it with: git push origin v{version}")
    return 0


def main():
    if sys.argv[1:2] == ["--set"] and len(sys.argv) == 3:
        return set_version(sys.argv[2])
    if sys.argv[1:] == ["--notes"]:
        print(notes())
        return 0
    if sys.argv[1:] == ["--tag"]:
        return tag()
    return check() if len(sys.argv) == 1 else __doc__


sys.exit(main())
