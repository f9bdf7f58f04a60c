"""Training real models on a GPU: time a step, activations kept, peak.

    python -m chapters.measure.gpu_transformers              all of them
    python -m chapters.measure.gpu_transformers gpt2 bert    some
    python -m chapters.measure.gpu_transformers word         see `word`

Models come from transformers, with their published shapes and random
weights, under autocast to bf16. "kept" is what a forward leaves allocated
for its backward, beside the result.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from statistics import median

import torch
import transformers
from rich.progress import track

import minicompile
from chapters.measure.timing import compare, save, turn

MIB = 2 ** 20


def gpt2(**changes):
    config = transformers.GPT2Config(use_cache=False, **changes)
    return transformers.GPT2LMHeadModel(config), (4, 512)


def bert(**changes):
    config = transformers.BertConfig(**changes)
    return transformers.BertForMaskedLM(config), (16, 128)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192,
        num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        max_position_embeddings=4096, tie_word_embeddings=True,
        use_cache=False)
    return transformers.LlamaForCausalLM(config), (4, 1024)


MODELS = {"gpt2": gpt2, "bert": bert, "llama": llama}


def forward(model, batch):
    with torch.autocast("cuda", torch.bfloat16):
        return model(input_ids=batch, labels=batch).loss


def step(model, batch):
    """A forward and its backward, gradients dropped."""
    def run():
        forward(model, batch).backward()
        model.zero_grad()
    return run


def memory(model, batch) -> dict[str, float]:
    """MiB kept by a forward for its backward, and the peak of a step."""
    model.zero_grad()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    loss = forward(model, batch)
    kept = torch.cuda.memory_allocated() - before
    loss.backward()
    peak = torch.cuda.max_memory_allocated() - before
    model.zero_grad()
    return {"kept MiB": kept / MIB, "peak MiB": peak / MIB}


def ways(model) -> dict:
    """The same model as three compilers run it."""
    return {"eager": model, "torch.compile": torch.compile(model),
            "minicompile": minicompile.compile(model)}


def measure(name: str) -> list[dict]:
    """A row for each way of running one model."""
    model, shape = MODELS[name]()
    model = model.cuda().train()
    batch = torch.randint(model.config.vocab_size, shape, device="cuda")
    rows, calls = [], {}
    for who, run in ways(model).items():
        start = time.perf_counter()
        try:
            step(run, batch)()
            torch.cuda.synchronize()
        except Exception:
            traceback.print_exc()
            continue
        row = {"model": name, "what": who,
               "first call s": time.perf_counter() - start}
        calls[who] = step(run, batch)
        for _ in range(2):
            calls[who]()
        rows.append(row | memory(run, batch))
        print(rows[-1], flush=True)
        if who == "minicompile":
            print(run.stats(), flush=True)
    seconds = compare(calls, rounds=7, seconds=0.2, cuda=True)
    for row in rows:
        row["step ms"] = seconds[row["what"]] * 1e3
    return rows


def word() -> None:
    """A word of the Llama after 200 others; mode "reduce-overhead".

    The cache is static, with room for 1024 words.
    """
    model = llama()[0].to("cuda", torch.bfloat16).eval()
    config, calls = model.config, {}
    one, at = (torch.tensor(each, device="cuda") for each in ([[5]], [200]))

    def answers(run):
        cache = transformers.StaticCache(config=config, max_cache_len=1024)
        torch.manual_seed(1)
        model(torch.randint(900, (1, 200), device="cuda"), use_cache=True,
              past_key_values=cache)
        return lambda: run(one, past_key_values=cache, use_cache=True,
                           position_ids=at[None], cache_position=at).logits

    def wrapped(compiler):
        return compiler(lambda *args, **more: model(*args, **more),
                        mode="reduce-overhead")

    ways = {"eager": model, "torch.compile": wrapped(torch.compile),
            "minicompile": wrapped(minicompile.compile)}
    with torch.no_grad():
        for who, run in ways.items():
            calls[who] = answers(run)
            for _ in range(3):
                calls[who]()
        # A cache counts its words: each gets as many calls as the others.
        turns = {who: [] for who in calls}
        for _ in track(range(15), "turns of 20 words"):
            for who, run in calls.items():
                turns[who].append(turn(run, 20, torch.cuda.synchronize))
        found = {who: run().float() for who, run in calls.items()}
    eager = found["eager"]
    rows = [{"who": who, "word ms": median(turns[who]) * 1e3,
             "far": float((each - eager).norm() / eager.norm())}
            for who, each in found.items()]
    print(*rows, sep="\n", flush=True)
    save("gpu_word", rows)


def main(chosen: list[str]) -> None:
    found = []
    for name in chosen or MODELS:
        found += measure(name)
        gc.collect()
        torch._dynamo.reset()
        minicompile.reset()
        torch.cuda.empty_cache()
    save("gpu_transformers", found)


if __name__ == "__main__":
    if sys.argv[1:] == ["word"]:
        word()
    else:
        main(sys.argv[1:])
