"""Make every system call that touches a disk, and follow the life of one log dir."""
