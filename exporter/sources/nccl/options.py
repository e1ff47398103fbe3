"""Configuration of the source `nccl`."""

from exporter.core.source import Options
from exporter.sources.common.job_files import INSPECTOR_FOLDER, TIMING_SOCKET


class NcclOptions(Options, frozen=True):
    """Configuration of `sources.nccl`; include and exclude are names of jobs.

    Attributes:
        inspector: Folders of Inspector's files, or shell patterns of folders. Files are in them or one level below.
        socket: Socket that fabric_timing.py sends to; false disables it.
        recorder: Folders, or patterns, of JSON dumps of PyTorch's Flight Recorder.
        comma: Folders, or patterns, of files of CoMMA.
        xpu_timer: Folders, or patterns, of files of xpu_timer.
        baseline: Files of nccl-tests, or patterns: the baseline of bus bandwidth between nodes.
    """

    inspector: tuple[str, ...] = (INSPECTOR_FOLDER,)
    socket: str | bool = TIMING_SOCKET
    recorder: tuple[str, ...] = ()
    comma: tuple[str, ...] = ()
    xpu_timer: tuple[str, ...] = ()
    baseline: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the socket is an absolute path or disabled."""
        super().__post_init__()
        if self.socket is True or (isinstance(self.socket, str) and not self.socket.startswith("/")):
            raise ValueError("socket is an absolute path, or false")
