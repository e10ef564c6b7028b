"""What Spark does with the log, one file per job; `manage.py run_spark_job NAME` runs them.

>>> sorted(jobs())[:3]
['archive', 'audit', 'dead_letters']
"""

from .job import JobRequest, JobResult, SparkJob

__all__ = ["JobRequest", "JobResult", "SparkJob", "jobs"]


def jobs() -> dict[str, SparkJob]:
    """All jobs by name. No job needs Spark before it runs."""
    from . import archive, audit, dead_letters, funnel, latency, replay, report, skew, snapshot, throughput

    every = (throughput, latency, dead_letters, skew, funnel, audit, archive, replay, snapshot, report)
    return {module.JOB.name: module.JOB for module in every}
