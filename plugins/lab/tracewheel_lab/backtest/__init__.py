"""A backtest of the loop: what scheduled retraining would have done with the logs of the past."""
