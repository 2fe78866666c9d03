"""Commands about LIBERO and the policies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import BASELINES, RESULTS, Json, Quiet, Results
from harness.commands.output import Output

app = typer.Typer()


@app.command()
def evaluate(
    policy: Annotated[
        str,
        typer.Option(
            help="expert, still, the export folder of a learning run, or a server: ws://HOST:PORT (openpi), "
            "vla-eval+ws://…, dexbotic+http://…, dexbotic-v1+http://…; or the expert with flaws, "
            "expert:noise=0.3,wrong_object=0.5,release=60,frozen=80"
        ),
    ],
    task_suite: Annotated[
        str,
        typer.Option(help='libero_spatial, _object, _goal, _10, _90, a variant such as libero_goal_swap; or "a,b".'),
    ],
    tasks: Annotated[str, typer.Option(help='Task numbers in each: "0,3,5-9", or all.')] = "all",
    episodes: Annotated[int, typer.Option(help="Episodes per task, from initial state 0 on.")] = 10,
    protocol: Annotated[str, typer.Option(help="Preset of the evaluation protocol.")] = "micro",
    replan_steps: Annotated[int | None, typer.Option(help="Actions executed per chunk, if not the preset's.")] = None,
    control: Annotated[str | None, typer.Option(help="Run a control beside the policy: expert or still.")] = None,
    blind: Annotated[
        bool, typer.Option("--blind", help="The policy also on grey images, and with another task's instruction.")
    ] = False,
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
        blind=blind,
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
    object_jitter_m: Annotated[
        float, typer.Option(help="Free-standing objects are moved by up to so many metres from the task's own draw.")
    ] = 0.02,
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
        object_jitter_m,
        seed,
        workers,
        lerobot=commands.lerobot_folder(file_format, output),
    )
    commands.demos(request, Output(results, BASELINES, json, quiet))
