"""The records that plans look in: one per cache directory, opened at first use."""

from __future__ import annotations

from pathlib import Path

from tilewright.config import Config
from tilewright.search.records import FILE, Records


class Stores:
    """Records by the file that a configuration asks for; without a disk cache, in memory."""

    def __init__(self) -> None:
        self._records: dict[Path | None, Records] = {}

    def of(self, config: Config) -> Records:
        """Return the records that `config` asks for; the same object for the same place."""
        path = config.cache_dir / FILE if config.disk_cache else None
        found = self._records.get(path)
        return found if found is not None else self._records.setdefault(path, Records(path))

    def clear(self) -> None:
        """Close every file, and forget what is in memory."""
        while self._records:
            self._records.popitem()[1].close()


stores = Stores()
