# SPDX-License-Identifier: GPL-2.0-or-later
"""An image package is signed with an operator's key, and only that key verifies it."""
