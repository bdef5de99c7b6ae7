# compress.sh - defines two functions for scripts that source it: `one` compresses the model, and
# `kl` measures the KL divergence of an output. A script that uses these functions must set `model`.
# It must also set `data` before it calls `one`, and make evaluation.txt before it calls `kl`.
. "$OSH_SOURCE_DIR/tests/tools/last.sh"
one() { # arguments: recipe, output, flags
    last_wins "$ONESHOT" --model "$model" --recipe "$1.yaml" "${data[@]}" --progress none --output "$2" "${@:3}"
}
kl() { # argument: output; prints the KL divergence of its predictions from the model's
    "$ONESHOT" eval --model "$1" --reference "$model" --dataset evaluation.txt --max-seq-length 128 --progress none |
        sed -n 's/^kl divergence \([0-9.]*\).*/\1/p'
}
