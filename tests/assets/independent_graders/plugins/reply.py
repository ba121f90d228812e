"""Parts of a trajectory."""


def final_text(trajectory):
    """The text of the last message when the model wrote it and calls no tool, else ""."""
    last = trajectory.messages[-1]
    if last.role != "assistant" or last.tool_calls:
        return ""
    content = last.content
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""
