"""Compare disk layouts on real file systems over loop devices of a set speed: `make bench-layouts`.

disks       makes and removes loop devices, throttles, file systems, RAID by btrfs profiles
catalogue   lists the layouts
processes   appends with one process per disk, to compare with one process for all disks
__main__    measures every layout, and makes the page
"""
