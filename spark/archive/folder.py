"""A folder anywhere Spark can write: on a disk, in HDFS, in an object store. All paths are relative to it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """Uses Hadoop's file systems, as Spark itself does."""

    def __init__(self, session: "SparkSession", root: str) -> None:
        # Spark would take a relative path as relative to its own working directory.
        self.root = root.rstrip("/") if "://" in root else f"file://{Path(root).absolute()}"
        self._java: Any = session._jvm
        configuration = session._jsc.hadoopConfiguration()
        self._files = self._path("").getFileSystem(configuration)
        self.is_local = self._files.getUri().getScheme() == "file"
        if self.is_local:
            # Without Hadoop's own checksum beside each file: the manifest has better ones.
            self._files = self._files.getRawFileSystem()

    def full(self, path: str) -> str:
        """The path in Spark's form."""
        return f"{self.root}/{path}" if path else self.root

    def files_below(self, path: str) -> list[str]:
        """All files in it, however deep; none if it does not exist."""
        if not self._files.exists(self._path(path)):
            return []
        found: list[str] = []
        pending = [path]
        while pending:
            folder = pending.pop()
            for status in self._files.listStatus(self._path(folder)):
                name = f"{folder}/{status.getPath().getName()}" if folder else status.getPath().getName()
                (pending if status.isDirectory() else found).append(name)
        return sorted(found)

    def folders_in(self, path: str) -> list[str]:
        """The names of the folders directly in it."""
        if not self._files.exists(self._path(path)):
            return []
        return sorted(
            status.getPath().getName() for status in self._files.listStatus(self._path(path)) if status.isDirectory()
        )

    def read_text(self, path: str) -> str:
        stream = self._files.open(self._path(path))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Afterwards all of it exists, even after a power cut, or nothing."""
        folder, _, name = path.rpartition("/")
        unfinished = f"{folder}/.{name}.unfinished"
        stream = self._files.create(self._path(unfinished), True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        self.move(unfinished, path)
        self.settle([path])

    def move(self, path: str, to: str) -> None:
        self._files.mkdirs(self._path(to.rpartition("/")[0]))
        if not self._files.rename(self._path(path), self._path(to)):
            raise OSError(f"{self.full(path)} could not be renamed to {self.full(to)}.")

    def remove(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def size(self, path: str) -> int | None:
        """In bytes; None if there is no such file."""
        file = self._path(path)
        return int(self._files.getFileStatus(file).getLen()) if self._files.exists(file) else None

    def sha256(self, path: str) -> str:
        stream = self._files.open(self._path(path))
        try:
            return str(self._java.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def settle(self, paths: Iterable[str]) -> None:
        """Make sure that files and their names are on disk. Other file systems do so by themselves."""
        if not self.is_local:
            return
        root = Path(self._path("").toUri().getPath())
        files = [root / path for path in paths]
        for each in [*files, *{above for file in files for above in file.relative_to(root).parents}]:
            number = os.open(root / each, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self.full(path))
