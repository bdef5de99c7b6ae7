# lint.sh - tests scripts/lint.py and scripts/check_subjects.py. lint.py must find each fault of a
# small tree, and nothing else.
set -euo pipefail
[ -z "$SANITIZED" ] || { echo "this test runs scripts only"; exit 77; }
command -v python3 >/dev/null || { echo "wants python3"; exit 77; }
fail() { echo "$*"; cat said; exit 1; }
lint() { python3 "$OSH_SOURCE_DIR/scripts/lint.py" tree >said 2>&1; }
file() { # arguments: directory, file, text
    mkdir -p "tree/$1"
    printf '%s\n' "$3" >"tree/$1/$2"
}
words=()
fault() { # arguments: part of the message, directory, file, text
    file "${@:2}"
    words+=("$2/$3:$1")
}
for dir in src/base src/ranks src/mpi include tests/unit tests/tools; do
    file $dir good.h $'/* good.h - reads names. */\n/* Reads names. */\nvoid names(void);\n/* True if a is a name. */\nint is_name(void);'
done
file src/base good.c $'/* good.c - reads names. */\n/* ---- names ---- */\n\nvoid names(void);\n/* The names. */\nint names[2];'
for dir in . docs examples examples/model; do file $dir README.md 'The program reads names.'; done
lint || fail "the tree without faults does not pass"

for dir in src/base src/ranks src/mpi include tests/unit tests/tools; do
    fault '1: the comment has no verb: the table of names.' $dir a.h '/* a.h - the table of names. */'
    fault '2: the comment has no verb: With the lock.' $dir b.h $'/* b.h - reads names. */\n/* With the lock. */\nvoid names(void);'
    fault '2: the comment has no verb: The reads of the names.' $dir c.h $'/* c.h - reads names. */\n/* The reads of\n * the names. */\nint\nnames(int a,\n      int b);'
    fault "2: the comment begins with 'Those'" $dir d.h $'/* d.h - reads names. */\nint a; // Those that read names.'
    fault "2: the comment has the retired word 'ahead of'" $dir e.h $'/* e.h - reads names. */\nint a; // It reads ahead of b.'
done
fault "2: the text has the retired word 'so many'" src/base g.h $'/* g.h - reads names. */\nconst char *a = "so "\n                "many names";'
fault '1: the comment has no verb: the table of names' scripts a.py '"""a.py - the table of names."""'
fault '2: the comment has no verb: The names.' scripts b.py $'"""b.py - reads names."""\ndef names():\n    """The names."""'
fault '1: the comment has no verb: the names of a file' scripts a.sh '# a.sh - the names of a file'
fault '2: 101 characters' tests/play a.cc "// a.cc - reads names."$'\n'"int $(printf 'a%.0s' {1..96});"
for dir in docs examples examples/model; do
    fault '1: a sentence without a verb: The best lock.' $dir a.md 'The best lock.'
done
if lint; then fail "the tree with faults passes"; fi
for word in "${words[@]}"; do grep -qF -- "$word" said || fail "wanted '$word':"; done
grep -q ", ${#words[@]} wrong$" said || fail "wanted ${#words[@]} faults:"

command -v git >/dev/null || { echo "without git, the history is not tested"; exit 0; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
subjects() { (cd "$1" && env -u GITHUB_ACTIONS ${2:-} python3 scripts/check_subjects.py) >said 2>&1; }
mkdir -p all/scripts
cp "$OSH_SOURCE_DIR/scripts/check_subjects.py" all/scripts
git -C all init -q && git -C all add -A && git -C all commit -qm "all: add files"
git -C all commit -q --allow-empty -m "all: read names"
subjects all GITHUB_ACTIONS=true || fail "the full history does not pass"
git -C all commit -q --allow-empty -m "names"
if subjects all; then fail "the subject 'names' passes"; fi
git clone -q --depth 1 "file://$PWD/all" last
subjects last && grep -q 'no subject is checked' said || fail "a history of one commit does not pass"
if subjects last GITHUB_ACTIONS=true; then fail "a history of one commit passes on GitHub"; fi
