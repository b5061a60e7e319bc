"""Make every system call that touches a disk, and manage the life of one log dir."""
