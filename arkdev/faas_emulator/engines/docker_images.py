"""Images of the engine behind Docker's HTTP API (a part of the leaf: imports docker)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, Any

import docker.auth  # noqa: TID253 (a part of the leaf)
import docker.utils  # noqa: TID253

from arkdev.errors import EngineError
from arkdev.faas_emulator.engines.docker_errors import (
    FAILURES,
    ConflictError,
    MissingObjectError,
    engine_error,
    translated,
)
from arkdev.faas_emulator.images.image_engine import EngineImage


class DockerImages:
    """`arkdev.faas_emulator.images.image_engine.ImageEngine` over Docker's API."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def platform(self) -> str:
        """Tell the engine's own platform: ``linux/amd64``, ``linux/arm64``."""
        version = translated(self._client.version)
        return f"{version.get('Os', 'linux')}/{version['Arch']}"

    def image(self, reference: str) -> EngineImage | None:
        """Find an image by its tag or id among those that the engine has; None without one."""
        try:
            found = translated(self._client.inspect_image, reference)
        except MissingObjectError:
            return None
        return _image(found)

    def images(self, *, label: str) -> list[EngineImage]:
        """List the tagged images that have the label ``name=value``."""
        listed = translated(self._client.images, filters={"label": [label], "dangling": False})
        found = [self.image(entry["Id"]) for entry in listed]
        return [image for image in found if image is not None and image.tags]

    def pull(self, reference: str, *, platform: str) -> DockerBuildStream:
        """Fetch an image from its registry."""
        name, tag = docker.utils.parse_repository_tag(reference)
        return self._post(
            "/images/create",
            params={"fromImage": name, "tag": tag or "latest", "platform": platform},
            headers=self._credentials(name),
        )

    def build(
        self, context: IO[bytes], *, tag: str, platform: str, build_args: Mapping[str, str]
    ) -> DockerBuildStream:
        """Build the ``Dockerfile`` of a context (a tar) and tag the image."""
        params = {
            "t": tag,
            "rm": True,
            "forcerm": True,
            "platform": platform,
            "buildargs": json.dumps(dict(build_args)),
        }
        headers = {"Content-Type": "application/x-tar"}
        return self._post("/build", params=params, headers=headers, data=context)

    def remove_image(self, image_id: str) -> bool:
        """Remove an image and what only it needs; False when a container still uses it."""
        try:
            translated(self._client.remove_image, image_id, force=False, noprune=False)
        except MissingObjectError:
            return True
        except ConflictError:
            return False
        return True

    def _post(
        self,
        path: str,
        *,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        data: IO[bytes] | None = None,
    ) -> DockerBuildStream:
        """Send what is answered with a stream of messages, which the client's own methods read
        in a way that cannot be ended from elsewhere."""
        client = self._client
        response = translated(
            client.post,
            client._url(path),
            params=params,
            headers=headers,
            data=data,
            stream=True,
            timeout=None,
        )
        try:
            translated(client._raise_for_status, response)
        except EngineError:
            response.close()
            raise
        return DockerBuildStream(response)

    def _credentials(self, name: str) -> dict[str, str]:
        registry, _ = docker.auth.resolve_repository_name(name)
        header = docker.auth.get_config_header(self._client, registry)
        return {"X-Registry-Auth": header.decode()} if header else {}


class DockerBuildStream:
    """The messages of a build or a pull."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._is_closed = False

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yield the messages in their order."""
        waiting = b""
        try:
            for chunk in self._response.raw.stream(65_536, decode_content=True):
                *lines, waiting = (waiting + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line.strip())
            if waiting.strip():
                yield json.loads(waiting)
        except (*FAILURES, ValueError) as error:
            if not self._is_closed:
                raise engine_error(error) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """Hang up, upon which the engine ends the build."""
        self._is_closed = True
        connection: Any = getattr(self._response.raw, "_connection", None)
        with suppress(OSError, AttributeError):  # the messages have ended already
            connection.sock.shutdown(socket.SHUT_RDWR)


def _image(found: Mapping[str, Any]) -> EngineImage:
    return EngineImage(
        id=str(found["Id"]),
        tags=tuple(found.get("RepoTags") or ()),
        platform=f"{found.get('Os', 'linux')}/{found.get('Architecture', '')}",
        created=str(found.get("Created", "")),
    )
