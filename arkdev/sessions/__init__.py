"""One attempt: identity, sampling, retries of model calls, evidence; and the loopback gateway."""
