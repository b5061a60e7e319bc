"""Compare disk layouts on real file systems over loop devices of a set speed: `make bench-layouts`.

disks       devices, throttles, file systems, RAID by btrfs profiles; nothing is left behind
catalogue   which layouts there are
processes   one process a disk, to compare with one for all
__main__    measures every layout, and makes the page
"""
