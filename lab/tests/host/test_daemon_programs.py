# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs end right beside a daemon that is killed now and then."""
