import typer

from arkdev.cli.main import build_app
from arkdev.cli.train_detached import arguments_of


def test_the_process_in_the_background_is_told_what_was_typed_but_that_it_is_in_the_background():
    command = typer.main.get_command(build_app()).commands["train"]
    typed = ["--steps", "3", "--set", "a=1", "--set", "b=x y", "--log-to", "wandb", "--faas"]
    typed += ["--resume", "latest", "--lr", "0.001", "-f", "jobs/a job.yaml", "--seed", "0"]
    with command.make_context("train", [*typed, "--detach", "--json"]) as ctx:
        told = arguments_of(ctx)
    with command.make_context("train", [*told]) as again:
        ours = {"detach": True, "as_json": True}
        assert {**again.params, **ours} == ctx.params
    assert "--detach" not in told and "--json" not in told
    assert len(told) == len(typed)
