"""From the log to the handlers: the worker, its three ways to deliver, and what becomes of failures."""
