"""Records all network devices of a reader."""

from exporter.linux.recordings.recorder import record_nics, write_recording


def record(reader, folder, *, module=False):
    """Write the recordings of all links, also of those that `snapshot --host` leaves out."""
    for device, recording in record_nics(reader, reader.links(), module=module):
        write_recording(folder, device, recording)
