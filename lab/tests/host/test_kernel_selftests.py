# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own tests end as on the unpatched kernel."""
