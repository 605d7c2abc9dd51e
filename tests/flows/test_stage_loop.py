"""The benchmarks' loop by hand takes the steps of a run: the same trajectories, scores and adapters, to the byte."""

from pathlib import Path

from tracewheel.config import load_config

ROOT = Path(__file__).parents[2]
FILES = ("trajectories.parquet", "scores.parquet", "adapter/adapter_model.safetensors")


def test_the_loop_by_hand_gives_the_bytes_of_the_run(finished, profile, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.chdir(ROOT)
    from stage_loop import curated_logs, stage_loop, warm_started

    config = load_config(profile)
    curated = curated_logs(config, tmp_path / "curated")
    assert curated_logs(config, curated) == curated  # and not made again
    start = warm_started(config, curated, tmp_path / "start")
    adapter, figures = stage_loop(config, curated, start, tmp_path / "work")
    folder, *_ = finished
    assert len(figures) == config.training.iterations
    assert all(each["rollout_s"] > 0 and each["update_s"] > 0 for each in figures)
    of_run = {path.read_bytes() for name in FILES for path in (folder / "store").glob(f"*/{name}")}
    made = [tmp_path / "work" / f"{number:03d}" / name for number in range(1, len(figures) + 1) for name in FILES]
    assert [path for path in made if path.read_bytes() not in of_run] == []
    assert adapter == made[-1].parent

    # Stopped in its last iteration, it goes on there.
    contents, times = [[of(path) for path in made] for of in (Path.read_bytes, lambda path: path.stat().st_mtime_ns)]
    (tmp_path / "work" / f"{len(figures):03d}" / "done").unlink()
    assert stage_loop(config, curated, start, tmp_path / "work")[1][:-1] == figures[:-1]
    assert [path.read_bytes() for path in made] == contents
    again = [path for path, before in zip(made, times, strict=True) if path.stat().st_mtime_ns != before]
    assert again == made[-len(FILES) :]
    # With other settings it begins anew.
    other = config.model_copy(update={"training": config.training.model_copy(update={"iterations": 1})})
    stage_loop(other, curated, start, tmp_path / "work")
    assert made[0].read_bytes() == contents[0] and made[0].stat().st_mtime_ns != times[0]
