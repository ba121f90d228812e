"""What plugins import, and `arkdev freeze`: exact versions of it in requirements.txt."""
