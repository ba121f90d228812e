"""The FaaS emulator: plugins run in instances of their own, as cloud functions do.

Read in this order:

* `functions`: a plugin as it is deployed; `records`: what is measured of its calls and instances
* `requirements`, `freeze`: what the function installs; `function_wheel`: what it has of arkdev
* `image`, `engine`: the container image, and the container engine that builds and runs it
* `worker`: what runs inside an instance (pydantic and the standard library, Python 3.10 too)
* `instances`: the seam; `process_instance`, `container_instance`: its two implementations
* `autoscaler`: when instances start, take calls and stop; `pool`: carries that out, call by call;
  `instance_client`: its HTTP; `gateway`: the front door for use from elsewhere
* `host`: the function host that a run calls its plugins through
* `capacity`: what a job needs, from what was measured
"""
