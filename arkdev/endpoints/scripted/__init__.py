"""A deterministic stand-in for an LLM: in process (`endpoint`) or over HTTP (`server`)."""
