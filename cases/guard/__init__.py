"""Guard pages around every array, and draws of calls that would touch them if a kernel left its memory."""
