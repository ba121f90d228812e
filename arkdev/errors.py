"""Every error that a user can see. Each has a message, a hint and an exit code.

::

    ArkdevError                       exit code
    ├── ConfigurationError            2   the command, a file or a plugin is wrong
    │   ├── UsageError                2   flags that do not go together
    │   ├── WorkspaceError            2   no workspace, or a folder that must not be overwritten
    │   ├── JobError                  2   job.yaml / job.py
    │   ├── DataError                 2   dataset files
    │   ├── PluginLoadError           2   module:function cannot be imported or found
    │   ├── PluginSignatureError      2   wrong parameters or wrong kind
    │   ├── RunError                  2   a run folder that cannot be read
    │   ├── TapeError                 2   a tape that cannot be read
    │   ├── RequirementsError         2   requirements.txt cannot be installed in a function
    │   ├── BuildError                2   a function's image or environment cannot be built
    │   ├── MissingExtraError         2   an optional package is not installed
    │   └── ComesLaterError           2   a contract name whose behaviour is not built yet
    ├── PluginError                   1   what a plugin did while it ran
    │   ├── SamplingParameterError    1   a sampling parameter passed to a wrapped client
    │   ├── LateCallError             1   a model call after its attempt had ended
    │   ├── TranslationError          1   a request that the endpoint's API cannot express
    │   ├── PluginTimeoutError        1   a plugin ran longer than its Runtime.timeout
    │   ├── PluginResultError         1   a result that the contract does not allow
    │   ├── InstanceError             1   a function's instance ended, or did not start
    │   └── TapeMismatchError         1   a replayed plugin asked for what its tape does not hold
    ├── OutputError                   1   a run folder or the output cannot be written any more
    ├── JobFailedError                5   a job ended because a plugin failed for good
    ├── RunStoppedError             130   a run ended because it was asked to (`arkdev stop`)
    ├── EngineError                   4   no container engine answers, or it refuses
    ├── PolicyEngineError             4   what samples from the policy has died or fails
    └── EndpointError                 4   a model call failed
        ├── EndpointUnreachableError  4   no connection, or no answer in time
        └── EndpointResponseError     4   an error answer, also one with status 200
            └── LongWaitError         4   one that asks for a longer wait than arkdev makes

Exit codes: `ExitCode`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The codes with which `arkdev` ends (docs/decisions.md, 16)."""

    OK = 0
    SOME_FAILED = 1
    USAGE = 2
    THRESHOLD_MISSED = 3
    UNREACHABLE = 4
    JOB_FAILED = 5
    INTERNAL = 70
    INTERRUPTED = 130


class ArkdevError(Exception):
    """An error with a message (what happened), a place (where) and a hint (what to do)."""

    exit_code = ExitCode.SOME_FAILED

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class ConfigurationError(ArkdevError):
    """The command, a file or a plugin is wrong; nothing was run.

    Where several things are wrong at once, `problems` has one text for each, with its file:line;
    the message holds them too.
    """

    exit_code = ExitCode.USAGE

    def __init__(
        self, message: str, *, hint: str = "", where: str = "", problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint, where=where)
        self.problems = problems


class UsageError(ConfigurationError):
    """Flags or arguments that are missing or do not go together."""


class WorkspaceError(ConfigurationError):
    """No workspace here, or a folder that must not be overwritten."""


class JobError(ConfigurationError):
    """job.yaml or job.py cannot be used as it is."""


class DataError(ConfigurationError):
    """A dataset file cannot be used as it is; `where` is file:line."""


class PluginLoadError(ConfigurationError):
    """`module:function` cannot be imported or found; `where` is the user's file:line."""


class PluginSignatureError(ConfigurationError):
    """A plugin has the wrong parameters or is of the wrong kind; `where` is its file:line."""


class RunError(ConfigurationError):
    """A run folder is missing, unreadable or of another schema version."""


class TapeError(ConfigurationError):
    """A tape is missing, unreadable or of another schema version."""


class RequirementsError(ConfigurationError):
    """A requirements file cannot be installed in a function."""


class BuildError(ConfigurationError):
    """A function's image or environment cannot be built."""


class MissingExtraError(ConfigurationError):
    """An optional package is not installed; the hint is its install line."""


class ComesLaterError(ConfigurationError):
    """A name of the contract exists, its behaviour is not built yet."""


class PluginError(ArkdevError):
    """What a plugin did while it ran."""


class SamplingParameterError(PluginError):
    """A sampling parameter was passed to a wrapped client (ROLL-39)."""


class LateCallError(PluginError):
    """A model call arrived after its attempt had ended."""


class TranslationError(PluginError):
    """What Responses and Chat Completions do not have in common; `param` names the place of it."""

    def __init__(self, message: str, *, param: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.param = param


class PluginTimeoutError(PluginError):
    """A plugin ran longer than its `Runtime.timeout`."""


class PluginResultError(PluginError):
    """A plugin returned something that the contract does not allow."""


class InstanceError(PluginError):
    """A function's instance ended, or did not start."""


class TapeMismatchError(PluginError):
    """A replayed plugin asked for what its tape does not hold; the message has the difference."""


class OutputError(ArkdevError):
    """A run folder or the command's output cannot be written any more: no space, a limit, gone."""


class JobFailedError(ArkdevError):
    """A plugin failed and its retries are used up, or returned what no batch can be made of."""

    exit_code = ExitCode.JOB_FAILED


class RunStoppedError(ArkdevError):
    """A run ended before its last step because it was asked to; it can go on."""

    exit_code = ExitCode.INTERRUPTED


class EngineError(ArkdevError):
    """No container engine answers, or it refuses what is asked of it."""

    exit_code = ExitCode.UNREACHABLE


class PolicyEngineError(ArkdevError):
    """What samples from the policy has died or fails; it says what it printed last."""

    exit_code = ExitCode.UNREACHABLE


class EndpointError(ArkdevError):
    """A model call failed. `is_transient` says whether trying again can help."""

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, message: str, *, hint: str = "", is_transient: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_transient = is_transient


class EndpointUnreachableError(EndpointError):
    """No connection, a connection cut short, or no answer in time."""

    def __init__(self, message: str, *, hint: str = "", is_timeout: bool = False) -> None:
        super().__init__(message, hint=hint, is_transient=True)
        self.is_timeout = is_timeout


class EndpointResponseError(EndpointError):
    """The endpoint answered with an error.

    `status` is the HTTP status (200 when the error came in a success answer), `body` the decoded
    JSON error body or a text of at most 200 characters, `headers` the answer's headers with
    lower-case names.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        body: object = None,
        headers: dict[str, str] | None = None,
        hint: str = "",
        is_transient: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, is_transient=is_transient)
        self.status = status
        self.body = body
        self.headers = headers or {}


class LongWaitError(EndpointResponseError):
    """The endpoint asks for a longer wait than arkdev makes: nothing helps that comes before."""
