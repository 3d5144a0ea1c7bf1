# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports in a browser: no error, no request, nothing too wide or too small."""
