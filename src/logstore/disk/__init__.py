"""Touch disks: every system call that does, and the life of one log dir."""
