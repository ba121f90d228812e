"""Where completions come from: scripted, remote URL."""
