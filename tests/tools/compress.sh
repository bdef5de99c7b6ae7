# compress.sh - sourced: one, kl. The script has model, for one data, and for kl evaluation.txt.
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
one() { # recipe, output, flags
    last_wins "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --progress none --output "$2" "${@:3}"
}
kl() { # output: how far its predictions are from the model's
    "$ONESHOT" eval --model "$1" --reference "$model" --dataset evaluation.txt --max-seq-length 128 --progress none |
        sed -n 's/^kl divergence \([0-9.]*\).*/\1/p'
}
