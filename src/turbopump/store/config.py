"""Settings of the store: where its files are, their sizes, flushing, reading, deletion.

The name after each `#` is Apache's key for the same thing in `broker.conf`; defaults are Apache's unless a
line says why not.
"""

import os
from dataclasses import dataclass, field
from typing import Literal

FlushDiskType = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def _home_store() -> str:
    return os.path.join(os.path.expanduser("~"), "store")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Settings of a store, with Apache's defaults."""

    # where
    root_dir: str = field(default_factory=_home_store)  # storePathRootDir
    commit_log_dir: str = ""  # storePathCommitLog; empty: <root_dir>/commitlog
    dledger_id: str = ""  # dLegerSelfId; empty: the log is a commit log, no log of DLedger
    dledger_data_dir: str = ""  # storePathDLedgerCommitLog; empty: <root_dir>/dledger-<id>/data

    # files; a store is opened with the sizes it was written with
    commit_log_file_size: int = 1 << 30  # mappedFileSizeCommitLog
    consume_queue_file_size: int = 6_000_000  # mappedFileSizeConsumeQueue; rounded up to whole entries
    batch_queue_file_size: int = 13_800_000  # mapperFileSizeBatchConsumeQueue; the same
    consume_queue_ext_file_size: int = 50_331_648  # mappedFileSizeConsumeQueueExt
    write_extensions: bool = False  # enableConsumeQueueExt
    dledger_index_units: int = 5 << 20  # entries of one index file of DLedger; fixed in Apache
    index_slots: int = 5_000_000  # maxHashSlotNum
    index_items: int = 20_000_000  # maxIndexNum
    index_enabled: bool = True  # messageIndexEnable

    # messages
    max_message_size: int = 4_194_304  # maxMessageSize
    message_delay_levels: str = DELAY_LEVELS  # messageDelayLevel
    light_queues: bool = False  # enableLmq; needs the next one as well
    multi_dispatch: bool = False  # enableMultiDispatch
    max_light_queues: int = 20_000  # maxLmqConsumeQueueNum

    # flushing
    flush_disk_type: FlushDiskType = "ASYNC_FLUSH"  # flushDiskType
    flush_interval_ms: int = 500  # flushIntervalCommitLog
    flush_least_pages: int = 4  # flushCommitLogLeastPages
    flush_thorough_interval_ms: int = 10_000  # flushCommitLogThoroughInterval
    sync_flush_timeout_ms: int = 5_000  # syncFlushTimeout
    consume_queue_flush_interval_ms: int = 1_000  # flushIntervalConsumeQueue
    # flushConsumeQueueThoroughInterval, 60 s in Apache: the log since then is read again after a crash
    checkpoint_interval_ms: int = 10_000
    page_cache_busy_ms: int = 1_000  # osPageCacheBusyTimeOutMills
    transient_pool: bool = False  # transientStorePoolEnable; only with ASYNC_FLUSH, as in Apache
    transient_pool_size: int = 5  # transientStorePoolSize: buffers, each as large as a file of the log
    commit_interval_ms: int = 200  # commitIntervalCommitLog
    check_crc_on_recover: bool = True  # checkCRCOnRecover

    # reading
    access_in_memory_ratio: int = 40  # accessMessageInMemoryMaxRatio, percent of the machine's memory
    max_bytes_in_memory: int = 262_144  # maxTransferBytesOnMessageInMemory
    max_count_in_memory: int = 32  # maxTransferCountOnMessageInMemory
    max_bytes_on_disk: int = 65_536  # maxTransferBytesOnMessageInDisk
    max_count_on_disk: int = 8  # maxTransferCountOnMessageInDisk
    # ours alone: bytes in one answer to a bulk pull, from memory or disk; 0: the limits above hold for all
    max_bulk_bytes: int = 1 << 20
    max_query_count: int = 64  # maxMsgsNumBatch
    default_query_count: int = 32  # defaultQueryMaxNum

    # deletion
    clean_interval_ms: int = 10_000  # cleanResourceInterval
    delete_file_pause_ms: int = 100  # deleteCommitLogFilesInterval
    delete_files_at_once: int = 10  # deleteFileBatchMax
    delete_when: str = "04"  # deleteWhen: hours of the day, separated by ;
    file_reserved_hours: int = 72  # fileReservedTime
    disk_max_used_ratio: int = 75  # diskMaxUsedSpaceRatio, percent: above it old files are deleted
    disk_force_clean_ratio: int = 85  # diskSpaceCleanForciblyRatio: above it young files are deleted too
    disk_warning_ratio: int = 90  # diskSpaceWarningLevelRatio, percent: above it nothing is written
    clean_forcibly: bool = True  # cleanFileForciblyEnable

    # ours alone: limits of open files
    open_log_files: int = 64  # maps of older commit-log files
    open_queue_files: int = 512  # descriptors of consume-queue files

    @property
    def uses_light_queues(self) -> bool:
        return self.light_queues and self.multi_dispatch

    @property
    def log_dir(self) -> str:
        return self.commit_log_dir or os.path.join(self.root_dir, "commitlog")

    @property
    def dledger_dir(self) -> str:
        return os.path.join(self.root_dir, f"dledger-{self.dledger_id}")

    @property
    def entry_dir(self) -> str:
        """Directory of DLedger's data files, which hold the entries."""
        return self.dledger_data_dir or os.path.join(self.dledger_dir, "data")

    @property
    def entry_index_dir(self) -> str:
        """Directory of DLedger's index files, which say where each entry lies."""
        return os.path.join(self.dledger_dir, "index")

    @property
    def entries_aside_dir(self) -> str:
        """Directory for what was cut from the end of DLedger's log."""
        return os.path.join(os.path.dirname(os.path.normpath(self.entry_dir)), "set-aside")

    @property
    def set_aside_dir(self) -> str:
        """Directory for what was cut from the end of the log."""
        return os.path.join(os.path.dirname(os.path.normpath(self.log_dir)), "set-aside")

    @property
    def queue_dir(self) -> str:
        return os.path.join(self.root_dir, "consumequeue")

    @property
    def batch_queue_dir(self) -> str:
        return os.path.join(self.root_dir, "batchconsumequeue")

    @property
    def queue_ext_dir(self) -> str:
        return os.path.join(self.root_dir, "consumequeue_ext")

    @property
    def index_dir(self) -> str:
        return os.path.join(self.root_dir, "index")

    @property
    def config_dir(self) -> str:
        return os.path.join(self.root_dir, "config")

    @property
    def syncs_each(self) -> bool:
        """Whether a send is answered only when its message is on the medium."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def uses_pool(self) -> bool:
        return self.transient_pool and not self.syncs_each
