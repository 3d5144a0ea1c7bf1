# SPDX-License-Identifier: GPL-2.0-or-later
"""What every guest's kernel is told on its command line, whatever its root is."""

# A crash ends the machine at once. Emulated CPUs on a busy host are slow: watchdogs get patience.
PATIENT = ("loglevel=7 oops=panic panic=-1 watchdog_thresh=60 "
           "rcupdate.rcu_cpu_stall_timeout=120")

# Each further CPU measures for a second how long its delay loop takes, and fails on a busy host.
# The loop is not used: delays go by the time stamp counter.
DELAY_LOOP = "lpj=4000000"

# Where the guest's clock is that of instructions and idle time passes at once, the local timer
# fails its calibration, and is not used: a busy loop that takes the host fifteen seconds.
NO_LOCAL_TIMER = "nolapic_timer"
