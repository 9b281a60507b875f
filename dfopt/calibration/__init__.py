"""Measured training steps against the model: what tables of them say, what the model says, and numbers fitted to them.

``rows`` reads tables, ``steps`` maps and judges a row, ``numbers`` has what may be fitted, ``fitting`` fits it.
"""
