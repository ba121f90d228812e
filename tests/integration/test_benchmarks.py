"""The benchmarks go on running as the product changes; their numbers are read by people."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_tapes_replays_what_it_records():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "tape.py"), "--json"),
            *("--in-flight", "2", "--rollouts", "4", "--latency-ms", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    (row,) = json.loads(told.stdout)
    assert row["num_rollouts"] == 4
    assert row["one_rollout_s"] > 0 and row["ratio"] > 0


def test_the_harness_benchmark_measures_arkdev_itself():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "harness.py"), "--json"),
            *("--in-flight", "2", "--rollouts-per-slot", "1", "--latency-ms", "1"),
            *("--variants", "endpoint,arkdev,arkdev-sync"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    assert [each["variant"] for each in measured] == ["endpoint", "arkdev", "arkdev-sync"]
    assert all(each["num_rollouts"] >= 2 for each in measured)


def test_the_traffic_benchmark_measures_every_library():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "traffic.py"), "--json"),
            *("--calls", "5", "--rounds", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    assert len(measured) == 4
    assert all(each["calls_per_s_measured"] > 0 for each in measured)


def test_a_run_with_a_fifth_of_its_calls_faulty_accounts_for_every_rollout():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "faults.py"), "--json"),
            *("--rollouts", "200", "--in-flight", "16", "--latency-ms", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    plain, faulty = json.loads(told.stdout)
    assert [plain["num_rollouts"], faulty["num_rollouts"]] == [200, 200]
    assert plain["faults"] == {}
    num_of_model_calls = sum(n for name, n in faulty["faults"].items() if name.startswith("model"))
    assert 0.12 < num_of_model_calls / faulty["num_calls"] < 0.28
    assert {"harness", "plugin"} <= faulty["handled_by"].keys()
    assert faulty["is_accounted_for"] and sum(faulty["verdicts"].values()) == 200


def test_the_benchmark_of_the_watch_for_stalls_measures_with_and_without():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "stalls.py"), "--json"),
            *("--in-flight", "2", "--rollouts-per-slot", "1", "--latency-ms", "1"),
            *("--pairs", "1", "--idle-s", "0.2"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    assert measured["on"]["cpu_ms_per_call"] > 0 < measured["off"]["cpu_ms_per_call"]
    assert measured["cpu_ratio"] > 0


def test_the_regrading_benchmark_grades_every_trajectory():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "regrading.py")),
            *("--trajectories", "64", "--tokens", "16", "--repeats", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.splitlines()) == 9
    assert "arkdev replay --diff recorded" in told.stdout


def test_the_tracing_benchmark_counts_every_span():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "tracing.py"), "--json"),
            *("--in-flight", "2", "--rollouts-per-slot", "1", "--latencies-ms", "1"),
            *("--rounds", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = {each["way"]: each for each in json.loads(told.stdout)}
    assert measured["file"]["spans_got"] == measured["otlp"]["spans_got"] == 2 * 5
    assert measured["off"]["spans_got"] == 0


def test_checking_data_takes_flat_memory():
    told = subprocess.run(
        [*(sys.executable, str(ROOT / "benchmarks" / "data.py"), "--json"), *("--mb", "12")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    grown = {name: row["grown_mb"] for name, row in measured["rows"].items()}
    assert sum(grown.values()) < 8, grown
    assert measured["rows"]["data check"]["lines_per_s"] > 0


def test_debugging_a_job_runs_what_a_test_of_its_plugins_runs():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "debug.py"), "--json"),
            *("--samples", "20", "--generations", "2", "--batch-size", "8"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    assert all(row["rollouts_per_s"] > 0 < row["early_mb"] for row in measured.values())


def test_the_benchmark_of_functions_measures_what_needs_no_engine():
    told = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "faas.py"), "--json"),
            *("--parts", "overhead,scale,forecast", "--calls", "20", "--replicas", "2"),
            *("--forecast-calls", "24"),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    measured = json.loads(told.stdout)
    assert measured["overhead"]["bare_ms"] > 0
    assert measured["scale"]["instances"] == 2
    assert len(measured["forecast"]["rows"]) == 6
