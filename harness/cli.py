"""The command line: commands and their help. What they do is in `harness.commands`, imported when asked for."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.output import Output
from harness.errors import ExitCode, HarnessError

app = typer.Typer(
    name="harness",
    help="Which training backend is faster on your VLA model and machine, does it still learn the same thing, "
    "and did last night's change make it worse?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Start with `harness doctor`, then `harness run suites/smoke.toml`. "
    "Exit codes: 0 shown, 2 bad input, 10 regressed, 11 not shown, 12 a run failed, 130 interrupted.",
)
baseline_app = typer.Typer(
    help="Accept and show the reference values a later run is compared with.", no_args_is_help=True
)
app.add_typer(baseline_app, name="baseline")

SuiteFile = Annotated[Path, typer.Argument(help="A suite, such as suites/fsdp2.toml.", metavar="SUITE")]
ResultName = Annotated[
    str, typer.Argument(help="A result's folder, SUITE/ID, ID, or a suite's name for its newest.", metavar="RESULT")
]
Results = Annotated[Path, typer.Option("--results", help="Where results are kept.", metavar="DIR")]
Baselines = Annotated[Path, typer.Option("--baselines", help="Where baselines are kept.", metavar="DIR")]
Models = Annotated[str | None, typer.Option("--models", help="Only these of the suite's models: a,b.")]
Backends = Annotated[str | None, typer.Option("--backends", help="Only these of the suite's backends: a,b.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one value: --set throughput.steps=10. May be repeated.", metavar="KEY=VALUE"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Profile = Annotated[
    bool, typer.Option("--profile", help="Leave a trace of two further steps of each cell's first timing run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the final summary only.")]

RESULTS, BASELINES = Path("results"), Path("baselines")


@app.command()
def plan(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Show what a suite would do here: cells, order, time and disk needed. Runs nothing."""
    from harness.commands import suites as commands

    commands.show_plan(commands.Request(suite, models, backends, sets or []), results, json)


@app.command()
def run(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    profile: Profile = False,
    plant: Annotated[
        str | None,
        typer.Option(help="Make a cell worse on purpose: pi0-fsdp2=sleep:0.2.", metavar="CELL=KIND:AMOUNT"),
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, evaluate, compare and report a suite. Run it again after any interruption: it goes on where it was."""
    from harness.commands import suites as commands

    request = commands.Request(suite, models, backends, sets or [])
    raise SystemExit(commands.run_suite_file(request, Output(results, baselines, json, quiet), profile, plant))


@app.command()
def train(
    model: Annotated[str, typer.Option(help="Model.")] = "pi0",
    train_backend: Annotated[str, typer.Option(help="deepspeed, fsdp, fsdp2 or ddp.")] = "fsdp2",
    size: Annotated[str, typer.Option(help="Size of the model.")] = "micro",
    zero_stage: Annotated[int, typer.Option(help="DeepSpeed's ZeRO stage.")] = 3,
    steps: Annotated[int, typer.Option(help="Measured steps, after 5 of warm-up.")] = 30,
    ranks: Annotated[int, typer.Option(help="Processes.")] = 2,
    micro_batch: Annotated[int, typer.Option(help="Samples per rank and step.")] = 8,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    sets: Sets = None,
    profile: Profile = False,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time one model under one backend, on synthetic data unless --set data.… says otherwise."""
    from harness.commands import suites as commands

    tables = commands.single_run_suite(
        model=model,
        size=size,
        backend=train_backend,
        zero_stage=zero_stage,
        steps=steps,
        settings={"ranks": ranks, "micro_batch": micro_batch, "precision": precision},
    )
    raise SystemExit(commands.run_tables("train", tables, sets or [], Output(results, BASELINES, json, quiet), profile))


@app.command()
def evaluate(
    policy: Annotated[
        str,
        typer.Option(
            help="expert, still, the export folder of a learning run, or a server: ws://HOST:PORT (openpi), "
            "vla-eval+ws://…, dexbotic+http://…, dexbotic-v1+http://…"
        ),
    ],
    task_suite: Annotated[
        str, typer.Option(help="libero_spatial, _object, _goal, _10, _90, or a variant such as libero_goal_swap.")
    ],
    tasks: Annotated[str, typer.Option(help='Task numbers: "0,3,5-9", or all.')] = "all",
    episodes: Annotated[int, typer.Option(help="Episodes per task, from initial state 0 on.")] = 10,
    protocol: Annotated[str, typer.Option(help="Preset of the evaluation protocol.")] = "micro",
    replan_steps: Annotated[int | None, typer.Option(help="Actions executed per chunk, if not the preset's.")] = None,
    control: Annotated[str | None, typer.Option(help="Run a control beside the policy: expert or still.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of scenes and policy noise.")] = 7,
    workers: Annotated[int, typer.Option(help="Simulator processes.")] = 2,
    executor: Annotated[str, typer.Option(help="Where they run: local, or ray for a Ray cluster.")] = "local",
    max_errors: Annotated[int, typer.Option(help="Errors after which the policy's evaluation ends.")] = 20,
    pass_mark: Annotated[float | None, typer.Option(help="Success rate that the policy must reach: 0.9.")] = None,
    stop_early: Annotated[
        bool, typer.Option("--stop-early", help="Stop when no outcome of the rest could change who passes.")
    ] = False,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a policy in LIBERO and report its success rate with its interval. Goes on where it was."""
    from harness.commands import jobs as commands

    request = commands.EvaluationRequest(
        policy=policy,
        task_suite=task_suite,
        tasks=tasks,
        episodes=episodes,
        protocol=protocol,
        seed=seed,
        workers=workers,
        replan_steps=replan_steps,
        max_errors=max_errors,
        control=control,
        executor=executor,
        pass_mark=pass_mark,
        stop_early=stop_early,
    )
    raise SystemExit(commands.evaluate(request, Output(results, BASELINES, json, quiet)))


@app.command()
def serve(
    checkpoint: Annotated[Path, typer.Argument(help="The export folder of a learning run.", metavar="CHECKPOINT")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; whoever reaches it can use the model.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    threads: Annotated[int, typer.Option(help="Threads of the model.")] = 1,
) -> None:
    """Serve a checkpoint by openpi's protocol, for other evaluators; GET /healthz says that it is there."""
    from harness.commands import policies as commands

    commands.serve(checkpoint, host, port, threads)


@app.command()
def replay(
    episode: Annotated[
        str,
        typer.Argument(
            help="An episode's file: RESULT/evaluate/ARM/actions/….npz. With --failures a result.", metavar="EPISODE"
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Video to write, or picture with --failures.")],
    cameras: Annotated[str, typer.Option(help="Cameras side by side: a,b.")] = "agentview,robot0_eye_in_hand",
    size: Annotated[int, typer.Option(help="Pixels of each camera, in height and in width.", min=16, max=2048)] = 256,
    failures: Annotated[bool, typer.Option("--failures", help="A contact sheet of all episodes that failed.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare what the policy was shown, too.")] = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Render an episode again from its record, at any size and from any camera, exactly as it happened."""
    from harness.commands import policies as commands
    from harness.store import Store

    request = commands.ReplayRequest(episode, output, cameras, size, failures, check)
    commands.replay(request, Store(results), json)


@app.command()
def demos(
    task_suite: Annotated[str, typer.Option(help="LIBERO task suite.")] = "libero_object",
    tasks: Annotated[str, typer.Option(help='Task numbers: "0,1".')] = "0,1",
    episodes: Annotated[int, typer.Option(help="Successful episodes per task.")] = 25,
    action_noise: Annotated[float, typer.Option(help="Noise on the executed action, in every other episode.")] = 0.25,
    frame_stride: Annotated[
        int | None, typer.Option(help="Store camera frames at every n-th step.", show_default="3; lerobot: 1")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of scenes and noise.")] = 7,
    workers: Annotated[int, typer.Option(help="Simulator processes.")] = 2,
    file_format: Annotated[
        str, typer.Option("--format", help="hdf5: LIBERO's own layout. lerobot: a LeRobot v3.0 data set as well.")
    ] = "hdf5",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="With --format lerobot: the folder to write.", metavar="DIR")
    ] = None,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make demonstrations with the scripted expert, as HDF5 in LIBERO's own layout. Resumes; never makes one twice."""
    from harness.commands import jobs as commands

    request = commands.DemosRequest(
        task_suite,
        tasks,
        episodes,
        action_noise,
        frame_stride,
        seed,
        workers,
        lerobot=commands.lerobot_folder(file_format, output),
    )
    commands.demos(request, Output(results, BASELINES, json, quiet))


@app.command()
def compare(
    result: Annotated[str | None, typer.Argument(help="As for `harness report`.", metavar="RESULT")] = None,
    published: Annotated[bool, typer.Option("--published", help="Judge other people's tables instead.")] = False,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Compare a stored result again, with the baseline there is now. Ends with the verdict's exit code."""
    from harness.commands import results as commands

    if published:
        commands.compare_published_tables(result, json)
    else:
        raise SystemExit(commands.compare_again(result, Output(results, baselines, json, quiet=False)))


@app.command()
def gate(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here too.", metavar="FILE")] = None,
    bridge: Annotated[
        str | None,
        typer.Option(help="Run another environment's software beside this one's, block by block.", metavar="PYTHON"),
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a suite as a nightly check: refused when blind, alarms measured again, the exit code is the verdict."""
    from harness.commands import gate as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    raise SystemExit(commands.gate(request, junit, bridge, Output(results, baselines, json, quiet)))


@app.command()
def calibrate(
    suite: SuiteFile,
    repeats: Annotated[int, typer.Option(help="Fresh processes of each cell to time now; 0: only stored results.")] = 0,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Say how much like runs differ on this machine, and how many of them each effect needs here."""
    from harness.commands import drills as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    commands.calibrate(request, repeats, Output(results, baselines, json, quiet=False))


@app.command()
def drill(
    suite: SuiteFile,
    real: Annotated[int, typer.Option(help="Nights of each kind to run for real; 0: recorded runs only.")] = 0,
    nights: Annotated[int, typer.Option(help="Nights of each kind to put together from recorded runs.")] = 100,
    baseline: Annotated[int, typer.Option(help="Fresh processes of the drill's baseline.")] = 10,
    processes: Annotated[int, typer.Option(help="Fresh processes of a night.")] = 3,
    cell: Annotated[str | None, typer.Option(help="The cell that gets the faults; the last when left out.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 7,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Plant faults and see whether the gate finds them, and whether it is quiet without. 11 when a promise breaks."""
    from harness.commands import drills as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    wanted = commands.DrillRequest(real, nights, baseline, processes, cell, seed)
    raise SystemExit(commands.drill(request, wanted, Output(results, BASELINES, json, quiet)))


@app.command()
def report(
    result: Annotated[str | None, typer.Argument(help="As for `harness compare`.", metavar="RESULT")] = None,
    table: Annotated[
        str | None,
        typer.Option(help="One table alone: throughput, memory, success, checkpoint, parity or verdicts."),
    ] = None,
    width: Annotated[int, typer.Option(help="Columns a table may take; narrow ones leave columns out.")] = 100,
    plots: Annotated[
        Path | None, typer.Option(help="Write the plots here, PNG and SVG, light and dark.", metavar="DIR")
    ] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option("--compare", help="Two results beside each other instead.", metavar="RESULT RESULT"),
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Other people's tables instead.")] = False,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Print a stored result's report as Markdown, and write it as a page (report.html) beside it."""
    from harness.commands import reports as commands

    request = commands.ReportRequest(result, table, width, plots, pair, published)
    commands.report(request, Output(results, baselines, json, quiet=False))


@app.command("export")
def export_result(
    result: ResultName,
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            help="csv, parquet, junit, pytest-benchmark, github-benchmark, wandb, mlflow or tensorboard.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File or folder to write.", metavar="PATH")
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
) -> None:
    """Write a stored result for another program: tables, benchmark files, or an experiment tracker, offline."""
    from harness.commands import reports as commands

    commands.export(result, format_name, output, Output(results, baselines, json=False, quiet=False))


@app.command()
def history(
    suite: Annotated[str | None, typer.Argument(help="Only this suite's results.", metavar="SUITE")] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write, three Parquet files.", metavar="DIR")
    ] = Path("history"),
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Write every stored result's runs, verdicts and episodes as Parquet, for pandas and DuckDB."""
    from harness.commands import reports as commands

    commands.history(suite, output, Output(results, BASELINES, json, quiet=False))


@baseline_app.command("accept")
def baseline_accept(
    result: ResultName,
    reason: Annotated[str, typer.Option(help="Why these values are the reference from now on.")],
    cells: Annotated[str | None, typer.Option(help="Only these cells: a,b. The others stay as they are.")] = None,
    extend: Annotated[bool, typer.Option("--extend", help="Add to the values that are there.")] = False,
    bridge: Annotated[
        Path | None,
        typer.Option(help="Carry this baseline over: take the old side of a bridged result.", metavar="FILE"),
    ] = None,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Make a result the reference for its suite on this hardware. The file is meant to be committed and reviewed."""
    from harness.commands import baselines as commands

    request = commands.AcceptRequest(result, reason, cells, extend, bridge)
    commands.accept(request, Output(results, baselines, json, quiet=False))


@baseline_app.command("diff")
def baseline_diff(
    result: ResultName,
    extend: Annotated[bool, typer.Option("--extend", help="As for accept.")] = False,
    results: Results = RESULTS,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Show what accepting a result would change, without changing it."""
    from harness.commands import baselines as commands

    commands.diff(result, extend, Output(results, baselines, json, quiet=False))


@baseline_app.command("show")
def baseline_show(
    suite: Annotated[str | None, typer.Argument(help="Only this suite's.", metavar="SUITE")] = None,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Show the accepted baselines."""
    from harness.commands import baselines as commands

    commands.show(suite, baselines, json)


@baseline_app.command("expire")
def baseline_expire(
    suite: Annotated[str, typer.Argument(help="The suite's name, such as fsdp2.", metavar="SUITE")],
    reason: Annotated[str, typer.Option(help="Why these values must not be the reference any more.")],
    cells: Annotated[str | None, typer.Option(help="Only these cells or arms: a,b.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Hardware key; this machine's when left out.")] = None,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """End the use of a baseline: verdicts on it are STALE until somebody accepts again."""
    from harness.commands import baselines as commands

    commands.expire(suite, reason, cells, hardware, Output(RESULTS, baselines, json, quiet=False))


@baseline_app.command("history")
def baseline_history(
    suite: Annotated[str | None, typer.Argument(help="Only this suite's.", metavar="SUITE")] = None,
    baselines: Baselines = BASELINES,
    json: Json = False,
) -> None:
    """Show who accepted, extended or ended which baseline, when and why."""
    from harness.commands import baselines as commands

    commands.history(suite, baselines, json)


@app.command("models")
def list_models(
    names: Annotated[
        list[str] | None, typer.Argument(help="Only these; a module:function of your own too.", metavar="MODEL")
    ] = None,
    size: Annotated[str, typer.Option(help="full, micro or tiny.")] = "full",
    precision: Annotated[str, typer.Option(help="Of the static memory: bf16 or fp32.")] = "bf16",
    json: Json = False,
) -> None:
    """List the models: parameters by part, tokens and operations per sample, static memory per rank."""
    from harness.commands import models as commands

    commands.show_models(names or [], size, precision, json)


@app.command()
def simulate(
    model: Annotated[str, typer.Argument(help="One of `harness models`, or module:function.", metavar="MODEL")],
    size: Annotated[str, typer.Option(help="full, micro or tiny.")] = "full",
    world: Annotated[str, typer.Option(help="Numbers of ranks.", metavar="N,N,…")] = "8,64,1024",
    backend: Annotated[
        str, typer.Option(help="ddp, fsdp, fsdp2, fsdp2-root, zero1, zero2, zero3.", metavar="NAME,NAME,…")
    ] = "ddp,fsdp2,fsdp2-root,zero1,zero2,zero3",
    precision: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
    micro_batch: Annotated[int, typer.Option(help="Samples per rank and micro-batch.", min=1)] = 8,
    accumulation: Annotated[int, typer.Option(help="Micro-batches per step.", min=1)] = 1,
    checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="Layers are computed again in the backward.")
    ] = False,
    device_memory: Annotated[str | None, typer.Option(help="What must hold a rank: 80GiB.")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="What a rank sends per second: 50GB.")] = None,
    compute_seconds: Annotated[
        float | None, typer.Option(help="A step without communication, as measured on one device.", min=0)
    ] = None,
    json: Json = False,
) -> None:
    """Predict memory and communication per rank on many ranks, without any of them."""
    from harness.commands import simulate as commands

    request = commands.SimulationRequest(
        model=model,
        size=size,
        backends=backend,
        worlds=world,
        precision=precision,
        micro_batch=micro_batch,
        accumulation=accumulation,
        activation_checkpointing=checkpointing,
        device_memory=device_memory,
        bandwidth=bandwidth,
        compute_seconds=compute_seconds,
    )
    commands.simulate(request, json)


@app.command()
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="The export folder of a learning run.", metavar="CHECKPOINT")],
    format_name: Annotated[str, typer.Option("--format", help="Names to write: dexbotic-cogact, lerobot-pi0, …")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A new folder.", metavar="DIR")],
    shard_gb: Annotated[float, typer.Option(help="Largest file, in GB.", min=0.001)] = 5.0,
    json: Json = False,
) -> None:
    """Write a trained policy as safetensors in the names of transformers, openpi, lerobot or Dexbotic."""
    from harness.commands import models as commands

    commands.export(checkpoint, format_name, output, shard_gb, json)


@app.command()
def frontier(
    suite: SuiteFile,
    models: Models = None,
    backends: Backends = None,
    sets: Sets = None,
    limit: Annotated[int, typer.Option(help="Largest micro-batch of interest.", min=1)] = 1024,
    address_space: Annotated[
        float | None,
        typer.Option("--address-space", help="GiB a rank may take beyond its libraries (CPU).", metavar="GIB"),
    ] = None,
    results: Results = RESULTS,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find each cell's largest micro-batch before out-of-memory, by bisection in fresh processes."""
    from harness.commands import frontier as commands
    from harness.commands.suites import Request

    request = Request(suite, models, backends, sets or [])
    raise SystemExit(commands.frontier(request, limit, address_space, Output(results, BASELINES, json, quiet)))


@app.command()
def doctor(results: Results = RESULTS, json: Json = False) -> None:
    """Say what this machine has, what it lacks, and how to mend it. Exit code 2 when something needed is missing."""
    from harness.commands import machine as commands

    raise SystemExit(commands.doctor(results, json))


@app.command()
def clean(
    results: Results = RESULTS,
    demonstrations: Annotated[bool, typer.Option("--demos", help="Demonstrations and decoded frames too.")] = False,
    json: Json = False,
) -> None:
    """Free the checkpoints of finished runs and the leftovers of failed attempts. Records and exports stay."""
    from harness.commands import results as commands

    commands.clean(results, demonstrations, json)


def main() -> None:
    """Entry point: every foreseen problem is one line on stderr and an exit code.

    SIGTERM, as a cluster's scheduler sends it, is an interruption like Ctrl-C.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(standalone_mode=True)
    except HarnessError as error:
        _end(f"harness: {error}", error.exit_code)
    except KeyboardInterrupt:
        _end("harness: interrupted; the same command goes on from here", ExitCode.INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _end(f"harness: {error.filename}: the disk is full; free some space and run again", ExitCode.USAGE)
    except Exception:
        traceback.print_exc()
        _end("harness: this is a fault of the harness itself; please report it with the lines above", ExitCode.BUG)


def _end(message: str, code: ExitCode) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(code)
