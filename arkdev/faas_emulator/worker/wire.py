"""What the platform and an instance say to each other over HTTP (SURFACE FT; ark-facts 6.1).

``GET /`` on the port ``_FAAS_RUNTIME_PORT`` answers 200 once the plugin is imported.

``POST /`` with the header ``X-Faas-Request-Id`` calls the plugin. The body is the documented
request, as JSON::

    rollout        {"context": {...}, "sample": {...},
                    "proxy": {"url": ..., "jwt_token": ..., "mode": ..., "headers": ...}}
    group rollout  the same, with "n_sample": 8
    single grader  {"context": {...}, "sample": {...}, "trajectory": {...}}
    group grader   {"context": {...}, "sample": {...}, "trajectories": [{...}, ...]}

``completion`` stands for ``trajectory`` in older requests (X-30), unknown keys are left alone. A
proxy with ``"attempt": {"name": "7.1", "number": 1}`` belongs to a run, whose session answers below
its URL (`arkdev.plugin.remote_access`); without, it stands alone and talks to its URL itself
(FT-07). The answer:

* 200 ``{"result": ...}``: what the plugin returned, read by the contract, as JSON
* 500 ``{"error": {"code": "PluginError", "message", "type", "where", "hint", ...}}``: what it
  raised, or a result that the contract does not allow (`arkdev.plugin.error_documents`); ``where``
  is relative to the package
* 400 ``{"error": {"code": "InvalidParameter", ...}}``: a request that is none; 413, 431: too large
* 404, 405: anything but ``GET /`` and ``POST /``
* 429, 504 come from the platform (`arkdev.faas_emulator.gateway`), with the cloud's envelope

Every answer has the header ``X-Faas-Request-Id``.
"""

from __future__ import annotations

PORT_VARIABLE = "_FAAS_RUNTIME_PORT"
TIMEOUT_VARIABLE = "_FAAS_FUNC_TIMEOUT"
FUNCTION_VARIABLE = "ARKDEV_FUNCTION"
"""``module:function``: which plugin the instance serves."""
DEFAULT_PORT = 8000
REQUEST_ID_HEADER = "X-Faas-Request-Id"
INSTANCE_VARIABLE = "ARKDEV_INSTANCE"
"""The instance's id; by it its processes are found, those too that have left its process group."""
ARK_URL_VARIABLE = "ARKDEV_ARK_URL"
"""Where calls to Ark's public hosts go instead (`arkdev.plugin.redirect`): a judge of the run."""
WORKER_ARGUMENTS = ("-I", "-m", "arkdev.faas_emulator.worker")
"""What Python is started with, in the folder of the plugin's package. Isolated, so that no module
of that folder hides one of the standard library."""
