# terminal.sh - tests progress on a terminal. One progress line is updated in place. The line fits
# the terminal, even after the terminal gets narrower. It is erased after Ctrl-Z, after Ctrl-C, and
# at the end. Without a terminal, a job without data prints one line.
set -euo pipefail
model=$OSH_SOURCE_DIR/examples/docs-llama-3m
cat >watch.py <<'P'
"""Runs a command on a terminal and keeps its screen. python watch.py WHAT WIDTH COMMAND..."""
import fcntl, os, pty, re, select, signal, struct, sys, termios
what, width, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
rows, x = [""], 0  # the rows of the screen, and the column of the cursor
pid, fd = pty.fork()
if not pid:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    os.execv(command[0], command)
y = 0
def feed(text):
    global x, y
    for m in re.finditer(r"\x1b\[(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n])", text):
        n, letter, control, char = m.groups()
        if letter == "K": rows[y] = rows[y][:x]
        elif letter == "J": rows[y] = rows[y][:x]; del rows[y + 1:]
        elif letter == "A": y = max(0, y - int(n or 1))
        elif letter == "m": pass
        elif letter: sys.exit(f"an unknown sequence: {m.group(0)!r}")
        elif control == "\r": x = 0
        elif control == "\n":
            y += 1
            if y == len(rows): rows.append("")
        else:
            rows[y] = rows[y][:x].ljust(x) + char + rows[y][x + 1:]
            x += 1
longest, state, code = 0, "started", None
seen = ""
while code is None:
    if select.select([fd], [], [], 0.05)[0]:
        try: data = os.read(fd, 65536)
        except OSError: data = b""
        if not data:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            break
        seen += data.decode()
        feed(data.decode())
        if re.search(r"\d/\d", rows[y]): longest = max(longest, len(rows[y]))
    live = re.search(r"[0-9]/6  model\.layers", rows[y])
    if state == "started" and live:
        state = "seen"
        assert longest <= width - 1, (longest, width, rows)
        if what == "interrupt": os.write(fd, b"\x03")
        if what == "suspend":
            os.write(fd, b"\x1a")
            _, status = os.waitpid(pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            while select.select([fd], [], [], 0.2)[0]: feed(os.read(fd, 65536).decode()) # reads all output
            assert "/6 " not in rows[y], ("the line is left behind", rows)
            os.kill(pid, signal.SIGCONT)
        if what == "narrow": # acts like a terminal that wraps lines which no longer fit
            width = 30
            old = rows[y]
            rows[y:] = [old[i:i + width] for i in range(0, len(old), width)]
            y = len(rows) - 1
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
assert state == "seen", ("no live line", rows)
assert ("\x1b[1m" in seen) == (not os.environ.get("NO_COLOR")), "colours"
screen = [r for r in rows if r.strip()]
print(code)
print("\n".join(screen))
P
job=(--model "$model" --recipe "$OSH_SOURCE_DIR/examples/w4a16-gptq.yaml" --dataset "$model/data/calibration.jsonl"
     --num-calibration-samples 40 --max-seq-length 256 --output out --overwrite --restart --threads 1)
fail() { echo "$1"; cat screen; exit 1; }
for what in nothing suspend narrow; do
    if [ $what = nothing ]; then export NO_COLOR=1; else unset NO_COLOR; fi
    python3 watch.py $what 70 "$ONESHOT" "${job[@]}" >screen || fail "$what"
    [ "$(head -n 1 screen)" = 0 ] || fail "$what: exit code"
    sed -n 3p screen | grep -q '^out: 28 modules' && sed -n 4p screen | grep -q '^loss ' ||
        fail "$what: other lines than the last one before the summary"
    grep -qE '^(took [0-9ms]+ .*)?(6/6|100%)  the output' screen && grep -q '^out: 28 modules' screen || fail "$what"
done
python3 watch.py interrupt 70 "$ONESHOT" "${job[@]}" >screen || fail interrupt
[ "$(head -n 1 screen)" = 1 ] && sed -n 2p screen | grep -q "^oneshot: interrupted" || fail "interrupt: the screen is not clean"
[ "$(wc -l <screen)" -le 3 ] || fail "interrupt: more than the message and its hint"

fail_log() { cat free/oneshot.log; echo "the log does not say who, when and where"; exit 1; }
"$ONESHOT" --model "$model" --scheme W8A16 --output free >/dev/null 2>lines
[ "$(wc -l <lines)" = 1 ] && grep -q '^\[29/29\] the output ' lines || { cat lines; echo "data-free: not one line"; exit 1; }
head -n 1 free/oneshot.log | grep -q " command .*oneshot --model .* --scheme W8A16 --output free$" || fail_log
grep -qE " begin   oneshot [0-9.]+ on $(uname -n), [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} UTC: datafree, 28 modules" free/oneshot.log || fail_log
[ "$(grep -c ' progress ' free/oneshot.log)" = 29 ] || { echo "the log has no line of each module"; exit 1; }
