"""What travels into a function: the workspace's files, and arkdev's own side."""
