"""Every operator and module that PyTorch tests, through our split.

Each sample runs eager and compiled, side by side (tests/split/operators);
where ours leaves one to eager, and once for each operator, torch.compile
is asked whether it takes it. One line of JSON a sample is appended to
build/sweep/<backend>.jsonl, so a run goes on where the last one stopped.
Writes chapters/results/sweep.json. Run: python -m chapters.measure.sweep
    --suites operators modules   --dtypes float32   --samples 4
    --backend fused   --only sort   --fresh   --table   --device cuda
"""

from __future__ import annotations

import argparse
import faulthandler
import fcntl
import json
import logging
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import torch
from tqdm import tqdm

from chapters.measure.timing import save
from tests.split import operators

BUILD = Path(__file__).parents[2] / "build" / "sweep"


def arguments() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=[*operators.MAKERS],
                        choices=[*operators.MAKERS])
    parser.add_argument("--dtypes", nargs="+",
                        default=["float32", "float64"])
    parser.add_argument("--samples", type=int, help="at most, an operator")
    parser.add_argument("--backend", default="split")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--fresh", action="store_true",
                        help="forget what earlier runs found")
    parser.add_argument("--table", action="store_true",
                        help="only sum up what there is")
    parser.add_argument("--worker", action="store_true",
                        help=argparse.SUPPRESS)
    return parser.parse_args()


def entries(asked: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(suite, dtype, name) of all that is to be run."""
    return [(suite, dtype, name) for suite in asked.suites
            for dtype in (asked.dtypes if suite == "operators"
                          else asked.dtypes[:1])
            for name in operators.names(suite, dtype, asked.device)
            if asked.only in name]


def read(path: Path) -> list[dict]:
    """The lines there are; half a line, from a run that was stopped, not."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def work(asked: argparse.Namespace, path: Path) -> None:
    """Run what has no result yet; an entry that ended a process is wrong."""
    faulthandler.enable()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    lines = read(path)
    ended = {tuple(line["ended"]) for line in lines if "ended" in line}
    begun = {tuple(line["begun"]) for line in lines if "begun" in line}
    left = [entry for entry in entries(asked) if entry not in ended]
    with path.open("a") as out:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one at a time
        def write(line: dict) -> None:
            print(json.dumps(line), file=out, flush=True)

        for entry in (progress := tqdm(left, smoothing=0)):
            suite, dtype, name = entry
            progress.set_description(f"{suite} {name}"[:40].ljust(40))
            if entry in begun:
                write({"suite": suite, "dtype": dtype, "name": name,
                       "sample": -1, "status": "wrong",
                       "reason": "the process died"})
            else:
                write({"begun": entry})
                for line in judged(suite, dtype, name, asked):
                    write(line)
            write({"ended": entry})


def judged(suite: str, dtype: str, name: str, asked):
    """A line for each sample; `theirs`: whether torch.compile takes it."""
    reasons = set()
    for case in operators.cases(suite, name, dtype, asked.samples,
                                device=asked.device):
        verdict = operators.examine(case, asked.backend)
        line = operators.told(case, verdict)
        if verdict.reason not in reasons:  # '' of the first one compiled
            reasons.add(verdict.reason)
            if suite in ("operators", "modules"):
                line["theirs"] = operators.asked(case)
        yield line


def summary(lines: list[dict]) -> list[dict]:
    """One row for each suite and dtype."""
    groups = defaultdict(list)
    for line in lines:
        if "status" in line:
            groups[line["suite"], line["dtype"]].append(line)
    return [row(suite, dtype, group)
            for (suite, dtype), group in groups.items()]


def row(suite: str, dtype: str, lines: list[dict]) -> dict:
    """Counts of samples, and of entries that each compiler takes whole.

    An entry is torch.compile's if it takes a sample of it, and then ours
    if we compile every sample that torch.compile does not refuse.
    """
    count = dict.fromkeys(operators.STATUSES, 0)
    theirs, missed = set(), defaultdict(set)
    refused = {(line["name"], line["reason"]) for line in lines
               if line.get("theirs") is False}
    for line in lines:
        count[line["status"]] += 1
        if line.get("theirs"):
            theirs.add(line["name"])
        known = (line["name"], line["reason"]) in refused
        if line["status"] != "compiled" and not known:
            missed[line["name"]].add(line["reason"])
    whole = {line["name"] for line in lines} - {
        line["name"] for line in lines if line["status"] != "compiled"}
    taken = theirs - set(missed)
    return {"suite": suite, "dtype": dtype,
            "entries": len({line["name"] for line in lines}),
            "samples": len(lines), **count, "whole": len(whole),
            "torch.compile": len(theirs), "of these ours": len(taken),
            "share": round(len(taken) / len(theirs), 4) if theirs else None}


def why(lines: list[dict]) -> dict[str, list[str]]:
    """The operators that are left to eager, by reason."""
    found = defaultdict(set)
    for line in lines:
        if line.get("status") == "refused" and line["suite"] in (
                "operators", "modules"):
            kind, _, _ = line["reason"].partition(":")
            found[kind].add(line["name"])
    return {kind: sorted(names) for kind, names in sorted(
        found.items(), key=lambda item: -len(item[1]))}


def main() -> None:
    asked = arguments()
    BUILD.mkdir(parents=True, exist_ok=True)
    name = asked.backend + f"_{asked.device}" * (asked.device != "cpu")
    path = BUILD / f"{name}.jsonl"
    if asked.worker:
        work(asked, path)
        return
    if asked.fresh:
        path.unlink(missing_ok=True)
    code = 0 if asked.table else -1
    while code < 0:  # ended by a signal: what ran then is written down
        code = subprocess.run(
            [sys.executable, "-m", "chapters.measure.sweep", "--worker",
             *(each for each in sys.argv[1:] if each != "--fresh")],
            check=False).returncode
    lines = read(path)
    for line in lines:
        if line.get("status") == "wrong":
            print(f"wrong: {line['suite']} {line['name']} {line['dtype']} "
                  f"{line['sample']}: {line['reason'][:300]}")
    if name == "split" and not asked.only:
        save("sweep", summary(lines), left_to_eager=why(lines))
    sys.exit(code or any(line.get("status") == "wrong" for line in lines))


if __name__ == "__main__":
    main()
