"""Files and processes: atomic writes, untrusted files, locks, and what differs between operating systems."""
