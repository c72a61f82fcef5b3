"""The command line: one function per command, and the flags that each takes.

In: the words after `podium`. Out: a call of the room that does the work.
Read commands.py first.
"""
