"""Running a job.py to learn its job (SURFACE WS-09, WS-24, X-17).

The script runs once, as ``__main__`` in the workspace's root. Its `submit()` hands the job over and
ends the script; a script that only makes a job is understood too. What it prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError

from arkdev.errors import ArkdevError, JobError
from arkdev.job.capture import Capture, JobSubmitted, capturing
from arkdev.job.invalid_objects import describe_errors, problems_of_objects
from arkdev.job.models import ModelCustomizationJob
from arkdev.job.paths import shown_path
from arkdev.job.problems import KeyPath, Problem, dotted, line_of, make_error
from arkdev.job.python_lines import lines_of_job
from arkdev.plugin.loading import use_workspace


def run_job_file(path: Path, *, root: Path) -> ModelCustomizationJob:
    """Run `path` and return the job that it submits, or else the only one that it makes.

    Raises `JobError` with the user's file:line when the script fails, makes no job, or makes
    several different ones without submitting any.
    """
    with capturing() as capture:
        try:  # outside of the script's own current directory, from which places would be shown
            with _as_main(path, root=root) as main:
                exec(compile(path.read_bytes(), str(path), "exec"), vars(main))
        except JobSubmitted:
            pass
        except SystemExit as error:
            if error.code not in (None, 0) and capture.submitted is None:
                raise JobError(
                    f"the script ended with exit code {error.code!r} and submitted no job",
                    where=_users_place(error, root=root, path=path),
                ) from error
        except Exception as error:
            # one that swallowed what ends submit() has submitted all the same
            if capture.submitted is None or capture.invalid:
                raise _failed(error, capture, path=path, root=root) from error
        job = None
        with contextlib.suppress(JobError) if capture.invalid else contextlib.nullcontext():
            job = _only_job(capture, main=main, path=path)
    if capture.invalid or job is None:
        raise _invalid(capture, job, path=path)
    return job


class InvalidScriptError(JobError):
    """A job.py with objects that are no parts of a job; `job` is what it made all the same."""

    job: ModelCustomizationJob | None = None


def _failed(error: Exception, capture: Capture, *, path: Path, root: Path) -> JobError:
    """What is wrong with a script that raised; what went wrong in it before comes first."""
    where = _users_place(error, root=root, path=path)
    text = f"{type(error).__name__}: {error}"
    if capture.invalid:
        return _invalid(capture, None, path=path, hint=f"then the script ended with {text}")
    if isinstance(error, ValidationError):
        return _invalid_job(error, path=path, where=where)
    if isinstance(error, ArkdevError):
        return JobError(error.message, where=error.where or where, hint=error.hint)
    return JobError(text, where=where, hint="arkdev runs this file to read the job from it")


def _invalid(
    capture: Capture, job: ModelCustomizationJob | None, *, path: Path, hint: str = ""
) -> InvalidScriptError:
    problems = problems_of_objects(capture.invalid, job, path=path, lines=read_lines(path))
    found = make_error(InvalidScriptError, problems, hint=hint)
    found.job = job
    return found


@contextlib.contextmanager
def _as_main(path: Path, *, root: Path) -> Iterator[ModuleType]:
    """Prepare what a script sees of its process, and put everything back afterwards."""
    module = ModuleType("__main__")
    module.__file__ = str(path)
    old_main, old_argv, old_path = sys.modules["__main__"], sys.argv, list(sys.path)
    use_workspace(root)
    sys.modules["__main__"] = module
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    try:
        with contextlib.chdir(root), contextlib.redirect_stdout(sys.stderr):
            yield module
    finally:
        sys.path[:] = old_path
        sys.argv = old_argv
        sys.modules["__main__"] = old_main


def _only_job(capture: Capture, *, main: ModuleType, path: Path) -> ModelCustomizationJob:
    if capture.submitted is not None:
        submitted: ModelCustomizationJob = capture.submitted
        return submitted
    kept = [value for value in vars(main).values() if isinstance(value, ModelCustomizationJob)]
    different: list[ModelCustomizationJob] = []
    for job in kept or capture.made:
        if job not in different:
            different.append(job)
    if not different:
        raise JobError(
            "the file makes no ModelCustomizationJob",
            where=shown_path(path),
            hint='make one and call its submit() under `if __name__ == "__main__":`',
        )
    if len(different) > 1:
        names = " and ".join(repr(job.name or "(no name)") for job in different)
        raise JobError(
            f"the file makes {len(different)} different jobs, {names}, and submits none",
            where=shown_path(path),
            hint="call submit() on the one that is meant",
        )
    return different[0]


def revalidated(job: ModelCustomizationJob, *, path: Path) -> ModelCustomizationJob:
    """Return `job` checked again, because scripts may have changed its fields one by one."""
    try:
        return ModelCustomizationJob.model_validate(job)
    except ValidationError as error:
        raise _invalid_job(error, path=path, where=shown_path(path)) from error


def read_lines(path: Path) -> dict[KeyPath, int]:
    """Return the line of each key that the text of a job.py tells."""
    return lines_of_job(path.read_bytes().decode("utf-8", "replace"))


def _invalid_job(error: ValidationError, *, path: Path, where: str) -> JobError:
    """The line of a key where the script's text tells it, else `where`."""
    shown = shown_path(path)
    is_whole = error.title == ModelCustomizationJob.__name__ and where.startswith(shown)
    lines = read_lines(path) if is_whole else {}
    problems = [
        Problem(
            f"{shown}:{line_of(lines, place)}" if place[:1] in lines else where,
            f"{dotted(place)}: {message}" if place else message,
        )
        for place, message in describe_errors(error)
    ]
    return make_error(JobError, problems)


def _users_place(error: BaseException, *, root: Path, path: Path) -> str:
    """Return file:line of the last frame of `error` inside of the workspace."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{shown_path(Path(error.filename))}:{error.lineno}"
    place = shown_path(path)
    roots = (root, root.resolve())
    frame = error.__traceback__
    while frame is not None:
        file = Path(frame.tb_frame.f_code.co_filename)
        if any(map(file.is_relative_to, roots)) and "site-packages" not in file.parts:
            place = f"{shown_path(file)}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
