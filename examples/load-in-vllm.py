#!/usr/bin/env python3
"""load-in-vllm.py - serves an output of oneshot with vLLM: loads the directory and continues a few
prompts. vLLM finds the scheme in the directory's config.json. Needs vLLM, and a GPU that has the
scheme's kernels: `oneshot inspect DIR` names them. No test runs it.
Usage: load-in-vllm.py DIR [PROMPT ...]"""
import sys

from vllm import LLM, SamplingParams


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    prompts = sys.argv[2:] or ["The capital of France is", "To sort a list in Python,"]
    llm = LLM(model=sys.argv[1], max_model_len=1024)
    for out in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=32)):
        print(repr(out.prompt), repr(out.outputs[0].text))


if __name__ == "__main__":
    main()
