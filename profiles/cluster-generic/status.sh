#!/bin/sh
# What became of a job: prints running, success or failed. PBS, Torque (qstat) and LSF (bjobs).
#   status.sh JOB
# It never fails itself: snakemake would stop over it. A scheduler that does not answer leaves the job running;
# one that does not know the job any more has lost it, which costs little: what it predicted is in the store.
job=$1

if command -v bjobs > /dev/null; then
    told=$(bjobs -noheader -o "stat exit_code" "$job" 2>&1)
    case $told in
        DONE*) echo success ;;
        EXIT* | ZOMBI* | *"is not found"*) echo failed ;;
        *) echo running ;;
    esac
    exit 0
fi

# The first value of a field: PBS writes lines of NAME = VALUE; Torque, told -x, XML.
field() {
    printf '%s\n' "$told" | sed -n "s/^ *$1 = //p; s/.*<$1>\([^<]*\)<.*/\1/p" | head -n 1
}

# PBS keeps finished jobs for -x only; Torque keeps them for a while, and has no -x where it is old.
told=$(qstat -x -f "$job" 2>&1) || told=$(qstat -f "$job" 2>&1)
case $(field job_state) in
    F | C)
        case $(field '[Ee]xit_status') in
            0) echo success ;;
            *) echo failed ;;
        esac
        ;;
    ?*) echo running ;;
    *)
        case $told in
            *"nknown Job"* | *"nknown job"* | *"nvalid job id"*) echo failed ;;
            *) echo running ;;
        esac
        ;;
esac
exit 0
