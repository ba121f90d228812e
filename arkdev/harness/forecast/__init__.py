"""What a debug run says of the job: signal, success, time, tokens and cost, each with intervals."""
