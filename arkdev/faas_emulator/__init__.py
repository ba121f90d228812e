"""The FaaS emulator: plugins run in instances of their own, as cloud functions do.

Read in this order:

* `functions`: a plugin as it is deployed; `records`: what is measured of its calls and instances
* `requirement_files`, `freezing`: what is installed; `packages`: what travels
* `worker`: what runs inside an instance (pydantic and the standard library, Python 3.10 too)
* `instances`: the seam; `processes` and `containers` (by `images` and `engines`) implement it
* `autoscaler`, `pool`: queue, replicas, scaling; `gateway`: the front door for use from elsewhere
* `host`: the function host that a run calls its plugins through
* `deployed_code`, `kept_deployments`: what stays between commands
* `capacity`: what a job needs, from what was measured
"""
