#!/usr/bin/env python3
"""check_subjects.py - fails on commit subjects that are not of the form `area: verb object`.

A subject has at most 72 characters. The area is one or more lower-case words, divided by commas. A
verb in the imperative follows (VERBS), and then its object; there is no period at the end. Merges,
reverts and fixups are not checked.

  check_subjects.py                  every commit since this file was added
  check_subjects.py RANGE            the commits of a range of git log
  check_subjects.py --message FILE   the message in FILE; scripts/install-hooks.sh installs this
                                     command as git's commit-msg hook

Without git or without the history, the script checks nothing and passes. On GitHub
($GITHUB_ACTIONS) it fails, because the workflow there fetches the history."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 72
SUBJECT = re.compile(r"[a-z0-9_.*/-]+(?:, [a-z0-9_.*/-]+)*: ([a-z]+(?:-[a-z]+)?)(?: (\S+))?")
VERBS = set("""
    accept account add adjust admit adopt align allow answer append apply ask assert assign
    avoid batch begin bind block bound break bring build bump cache calibrate call cap carry
    catch change charge check choose claim clamp clean clear close collect combine compare
    compile complete compress compute connect convert copy correct count cover create cut deal
    decide declare decode default define delete depend derive describe detect divide do document
    double download draw drop embed emit enable encode end erase escape estimate exclude execute
    exit expand expect explain export extend extract factor fail feed fetch fill filter find fit
    fix flip flush fold follow forget format free fuse gather generate give grow guard halve
    hand handle hide hold ignore implement import include increase index infer inherit
    initialize inline insert install invert introduce join judge keep know label learn leave let lift
    limit link list load lock log look lower make map mark match measure mend mention merge
    migrate move multiply name need normalize note number obey observe offer omit open order
    overlap pack pad parse pass pick pin place plan plant point predict prefer prefix prepare
    print probe prove prune pull push put quantize query quote raise read rebuild recognize
    record reduce refer refresh refuse regenerate register reject release reload remove rename
    reorder repair repeat replace report request require rerun reserve reset resolve restore
    restrict resume retire retry return reuse reveal revert reword rewrite rotate round route
    run sample save say scale scan schedule seal search select send separate serve set share
    shorten show shrink shut sign simplify simulate size skip solve sort speed split stage start
    state stop store stream strike strip subtract suggest sum support survive swap switch sync
    take teach tell test throw tie tighten time tokenize trace track translate treat trim
    truncate try tune turn unify unite unlock unpack untie update upgrade use validate vary
    verify wait walk warn weigh widen wire work wrap write yield preload
""".split())
# A word of VERBS before a word of AFTER_NOUNS is a noun: "state of a run", "time is measured".
AFTER_NOUNS = set("""are can could does had has have is may must of should was were will
    would""".split())


def complaint(subject):
    """Returns the fault of the subject; None if it has none."""
    if re.match(r"(Merge|Revert|fixup!|squash!)", subject):
        return None
    if len(subject) > MOST:
        return f"{len(subject)} characters, at most {MOST}"
    m = SUBJECT.match(subject)
    if not m:
        return "want 'area: verb object'"
    if m[1] not in VERBS:
        return f"'{m[1]}' is not a verb in the imperative that scripts/check_subjects.py knows"
    if not m[2]:
        return f"'{m[1]}' has no object"
    if m[2] in AFTER_NOUNS and (m[1], m[2]) != ("warn", "of"):
        return f"'{m[1]}' is a noun before '{m[2]}': want a verb in the imperative"
    if subject.endswith("."):
        return "ends with a period"
    return None


def git(*args):
    return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True)


def subjects(arguments):
    """Returns pairs of a commit's name and its subject, or None if there is no history to check."""
    if arguments[:1] == ["--message"]:
        lines = [x for x in pathlib.Path(arguments[1]).read_text().splitlines() if not x.startswith("#")]
        return [("the message", lines[0] if lines else "")]
    span = arguments[0] if arguments else ""
    if not shutil.which("git") or git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return None
    if not span:
        added = git("log", "--diff-filter=A", "--format=%H", "--", "scripts/check_subjects.py").stdout.split()
        if not added:
            return None
        span = added[-1] + "..HEAD"
    log = git("log", "--no-merges", "--format=%h %s", span)
    if log.returncode:
        sys.exit(f"git log {span}: {log.stderr.strip()}")
    return [line.split(" ", 1) for line in log.stdout.splitlines()]


def main():
    found = subjects(sys.argv[1:])
    if found is None:
        print("git or the history of this file is missing: no subject is checked")
        return 1 if os.environ.get("GITHUB_ACTIONS") else 0
    wrong = [f"{name}: {why}: {subject}" for name, subject in found if (why := complaint(subject))]
    print("\n".join(wrong + [f"{len(found)} subjects, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
