"""Reading requirements.txt, judging its lines, and installing by uv."""
