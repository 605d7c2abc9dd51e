"""Libraries that hold a text to a JSON schema, side by side: what they compile, whether they judge rightly, and how fast.

Each library is asked for the mask of allowed tokens before every token of an instance, as an engine would, and the instance
counts as accepted where each token was allowed and the text may end after it. A worker process that takes longer than the
limit for a schema, or dies of it, is replaced and counted.

    python -m benchmarks.grammar_libraries TOKENIZER test-suite/tests/draft2020-12 maskbench/data

The folders are those of json-schema-org/JSON-Schema-Test-Suite and of guidance-ai/jsonschemabench. The libraries that are not
installed are left out (`pip install llguidance xgrammar outlines-core`).
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LIMIT = 10.0  # seconds for a schema and its instances
Case = tuple[Any, list[tuple[str, bool]]]  # a schema, and texts with whether they are valid
Steps = Callable[[list[int]], tuple[bool, list[float]]]  # of a compiled schema


def suite(folder: Path) -> list[Case]:
    """The cases of the JSON Schema Test Suite, required ones."""
    groups = [group for path in sorted(folder.glob("*.json")) for group in json.loads(path.read_text())]
    return [(group["schema"], [(json.dumps(one["data"]), one["valid"]) for one in group["tests"]]) for group in groups]


def maskbench(folder: Path) -> list[Case]:
    """Schemas of JSONSchemaBench with the instances of MaskBench."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [(one["schema"], [(json.dumps(test["data"], indent=None), test["valid"]) for test in one["tests"]]) for one in found]


def llguidance(tokenizer: Any) -> Callable[[Any], Steps]:
    """Microsoft's, as the gateway uses it."""
    from llguidance import LLMatcher, LLTokenizer

    wrapped = LLTokenizer(tokenizer.backend_tokenizer.to_str(), eos_token=[tokenizer.eos_token_id])

    def compiled(schema: Any) -> Steps:
        first = LLMatcher(wrapped, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
        if first.is_error():
            raise ValueError(first.get_error())

        def steps(ids: list[int]) -> tuple[bool, list[float]]:
            matcher, times = first.deep_copy(), []
            for token in ids:
                started = time.perf_counter()
                mask = matcher.compute_bitmask()
                times.append(time.perf_counter() - started)
                if not mask[token // 8] >> token % 8 & 1 or not matcher.consume_token(token):
                    return False, times
            return matcher.is_accepting(), times

        return steps

    return compiled


def xgrammar(tokenizer: Any) -> Callable[[Any], Steps]:
    """MLC's, as vLLM uses it."""
    import xgrammar as xgr

    info = xgr.TokenizerInfo.from_huggingface(tokenizer, stop_token_ids=[tokenizer.eos_token_id])
    compiler = xgr.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compiled(schema: Any) -> Steps:
        grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)
        bits = xgr.allocate_token_bitmask(1, info.vocab_size)

        def steps(ids: list[int]) -> tuple[bool, list[float]]:
            matcher, times = xgr.GrammarMatcher(grammar), []
            for token in [*ids, tokenizer.eos_token_id]:
                started = time.perf_counter()
                matcher.fill_next_token_bitmask(bits)
                times.append(time.perf_counter() - started)
                if not int(bits[0, token // 32]) >> token % 32 & 1 or not matcher.accept_token(token):
                    return False, times
            return True, times

        return steps

    return compiled


def outlines_core(tokenizer: Any) -> Callable[[Any], Steps]:
    """Outlines': the schema as a regular expression, the expression as an index of all its states."""
    import outlines_core as oc
    from outlines_core.json_schema import build_regex_from_schema

    eos, words = tokenizer.eos_token_id, {}
    for token in range(len(tokenizer)):
        if token != eos:
            words.setdefault(tokenizer.decode([token]), []).append(token)
    vocabulary = oc.Vocabulary(eos, words)

    def compiled(schema: Any) -> Steps:
        index = oc.Index(build_regex_from_schema(json.dumps(schema)), vocabulary)

        def steps(ids: list[int]) -> tuple[bool, list[float]]:
            guide, times = oc.Guide(index), []
            for token in ids:
                started = time.perf_counter()
                allowed = guide.get_tokens()
                times.append(time.perf_counter() - started)
                if token not in allowed:
                    return False, times
                guide.advance(token, return_tokens=False)
            return eos in guide.get_tokens(), times

        return steps

    return compiled


LIBRARIES = {each.__name__: each for each in (llguidance, xgrammar, outlines_core)}


def work(name: str, folder: str, pipe: Any) -> None:
    """Answer cases until the pipe closes: compile seconds or an error, and for each text its verdict and times."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    compiled = LIBRARIES[name](tokenizer)
    pipe.send("ready")
    while True:
        schema, texts = pipe.recv()
        started = time.perf_counter()
        try:
            steps = compiled(schema)
        except Exception as error:  # the library's own
            pipe.send((None, " ".join(str(error).split())[:200], []))
            continue
        seconds = time.perf_counter() - started
        pipe.send((seconds, "", [steps(tokenizer.encode(text, add_special_tokens=False)) for text, _ in texts]))


def answers(name: str, folder: str, cases: list[Case]) -> Iterator[Any]:
    """What a library says of each case; None where it took too long or died."""
    spawn = multiprocessing.get_context("spawn")
    worker = pipe = None
    for case in cases:
        if worker is None:
            pipe, end = spawn.Pipe()
            worker = spawn.Process(target=work, args=(name, folder, end), daemon=True)
            worker.start()
            end.close()
            pipe.recv()
        try:
            pipe.send(case)
            found = pipe.recv() if pipe.poll(LIMIT) else None
        except (EOFError, BrokenPipeError):
            found = None
        yield found
        if found is None:
            worker.kill()
            worker = None
    if worker is not None:
        worker.kill()


def figures(name: str, folder: str, cases: list[Case]) -> dict[str, Any]:
    """A line of the table."""
    compiled, failed, lost, right, invalid_passed, valid_refused = 0, 0, 0, 0, 0, 0
    compile_times: list[float] = []
    times: list[float] = []
    sound = 0
    for found, (_, texts) in zip(answers(name, folder, cases), cases, strict=True):
        if found is None:
            lost += 1
            continue
        seconds, _, verdicts = found
        if seconds is None:
            failed += 1
            continue
        compiled += 1
        compile_times.append(seconds)
        pairs = [(accepted, valid) for (accepted, _), (_, valid) in zip(verdicts, texts, strict=True)]
        right += sum(accepted == valid for accepted, valid in pairs)
        invalid_passed += sum(accepted and not valid for accepted, valid in pairs)
        valid_refused += sum(valid and not accepted for accepted, valid in pairs)
        sound += not any(accepted and not valid for accepted, valid in pairs)
        times += [each for _, taken in verdicts for each in taken]
    times.sort()
    return {
        "library": name,
        "schemas": len(cases),
        "compiled": compiled,
        "refused": failed,
        "lost": lost,
        "no invalid text passed": sound,
        "texts judged right": right,
        "invalid passed": invalid_passed,
        "valid refused": valid_refused,
        "compile ms p50": 1000 * statistics.median(compile_times),
        "compile ms max": 1000 * max(compile_times),
        "mask us p50": 1e6 * times[len(times) // 2],
        "mask us p99": 1e6 * times[int(0.99 * len(times))],
        "mask us max": 1e6 * times[-1],
        "mask us mean": 1e6 * statistics.fmean(times),
    }


def main() -> None:
    """Print a line of figures for each library and collection."""
    folder, *collections = sys.argv[1:]
    for name in LIBRARIES:
        if find_spec(name) is None:
            continue
        for at, read in zip(collections, (suite, maskbench), strict=True):
            line = {
                key: round(value, 1) if isinstance(value, float) else value
                for key, value in figures(name, folder, read(Path(at))).items()
            }
            print(read.__name__, json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
