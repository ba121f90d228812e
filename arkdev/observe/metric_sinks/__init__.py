"""Where metrics go besides the run folder, when it is asked for (``--log-to``)."""
