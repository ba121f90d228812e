"""What a server can do, found out by asking it: requests, and what their answers mean.

`records` has the records, `*_checks` the checks (pure: each yields requests, is sent what came back
and returns findings), `client` sends them over HTTP, `features` says what the findings mean for
arkdev. `arkdev.flows.check_endpoint` puts them together.
"""
