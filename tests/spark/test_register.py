"""The classes of the format, unpacked where this package cannot be imported, as in a worker of a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from pubsub.spark.register import sendable_source

# Everything that the classes refer to is unpacked with them, so that what was not sent along is asked for here.
WORKER = """
import pickle, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pubsub", "django"):
            raise ModuleNotFoundError(f"a worker has no {name}", name=name)

sys.meta_path.insert(0, NotInstalled())
with open(sys.argv[1], "rb") as file:
    source = pickle.load(file)
assert source.name() == "pubsub"
assert source.streamReader and source.streamWriter and source.reader and source.writer
print("unpacked")
"""


@pytest.mark.django_db
def test_workers_without_this_package_can_unpack_the_format(tmp_path: Path) -> None:
    packed = tmp_path / "source.pickle"
    packed.write_bytes(cloudpickle.dumps(sendable_source("default")))
    worker = subprocess.run(
        [sys.executable, "-I", "-c", WORKER, packed], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert worker.returncode == 0, worker.stderr
    assert worker.stdout == "unpacked\n"
