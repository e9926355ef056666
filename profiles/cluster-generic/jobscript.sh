#!/bin/sh
# properties = {properties}
# What is submitted. The keys of servers come from a file that only you may read, NAME=key a line: in the
# environment of a job a scheduler would show them. Braces of the shell's own are to be doubled here.
if [ -r "$HOME/.reftables-keys" ]; then
    set -a
    . "$HOME/.reftables-keys"
    set +a
fi
{exec_job}
