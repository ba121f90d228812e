"""Options that several commands have, each with one name, one meaning and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arkdev.faas_emulator.choices import InstanceKind, NetworkPolicy

AdaptiveOption = Annotated[
    bool,
    typer.Option("--adaptive", help="Find out how many model calls the endpoint takes at once."),
]
ApiKeyEnvOption = Annotated[
    str | None, typer.Option("--api-key-env", metavar="NAME", help="Variable that holds the key.")
]
FaasEngineOption = Annotated[
    InstanceKind | None,
    typer.Option(
        "--faas-engine", help="Where instances run: containers, or child processes (default auto)."
    ),
]
FaasOption = Annotated[
    bool, typer.Option("--faas", help="Run the plugins in instances, as cloud functions do.")
]
InjectOption = Annotated[
    str | None,
    typer.Option(
        "--inject",
        metavar="KIND=RATE%,...",
        help="Make calls fail, e.g. timeout=5%,429=10%,slow=5%:10s.",
    ),
]
JobOption = Annotated[
    Path | None,
    typer.Option("--job", metavar="FILE", help="The job file, in place of job.yaml or job.py."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
MaxInFlightOption = Annotated[
    int | None,
    typer.Option("--max-in-flight", metavar="N", min=1, help="Model calls under way at most."),
]
MaxNewTokensOption = Annotated[
    int | None,
    typer.Option("--max-new-tokens", metavar="N", help="Over the sample's and the job's."),
]
MinRewardMeanOption = Annotated[
    float | None,
    typer.Option(
        "--min-reward-mean",
        metavar="X",
        help="End with 3 unless mean reward - 1.645 standard errors is at least X.",
    ),
]
MinSuccessRateOption = Annotated[
    float | None,
    typer.Option(
        "--min-success-rate",
        metavar="X",
        min=0,
        max=1,
        help="The same for the share of graded rollouts that succeed.",
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The endpoint's model.")
]
NetworkOption = Annotated[
    NetworkPolicy | None, typer.Option("--network", help="What instances reach (default open).")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The run's folder, new or empty.")
]
RealArkSdkOption = Annotated[
    bool, typer.Option("--real-ark-sdk", help="Import the installed ark_sdk, not arkdev's.")
]
RequestsPerMinuteOption = Annotated[
    int | None,
    typer.Option("--requests-per-minute", metavar="N", min=1, help="Limit of model calls, evenly."),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Go on with a run that was cut short: its id, a path, or latest.",
    ),
]
ScriptOption = Annotated[
    Path | None,
    typer.Option("--script", metavar="FILE", help="A script file for the scripted model."),
]
SkillOption = Annotated[
    float | None,
    typer.Option(
        "--skill", metavar="0..1", min=0, max=1, help="How often the scripted model is right."
    ),
]
StallThresholdOption = Annotated[
    str | None,
    typer.Option(
        "--stall-threshold",
        metavar="MS|DURATION|off",
        help="Name code that holds others up for so long (default 100ms).",
    ),
]
SuccessThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--success-threshold",
        metavar="X",
        help="Weighted reward of a success in pass@k (default: sum of the weights above 0).",
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option("--temperature", metavar="T", help="Over the sample's and the job's."),
]
TokensPerMinuteOption = Annotated[
    int | None,
    typer.Option(
        "--tokens-per-minute",
        metavar="N",
        min=1,
        help="Limit of their prompts and answers together.",
    ),
]
TopPOption = Annotated[
    float | None, typer.Option("--top-p", metavar="P", help="Over the sample's and the job's.")
]
TraceOption = Annotated[
    bool,
    typer.Option(
        "--trace", help="Write what happened when into the run folder: show RUN ID --trace."
    ),
]
