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
        EXIT* | *"is not found"*) echo failed ;;
        *) echo running ;;
    esac
    exit 0
fi

# PBS keeps finished jobs for -x only; Torque has no -x and keeps them for a while.
told=$(qstat -x -f "$job" 2>&1) || told=$(qstat -f "$job" 2>&1)
case $told in
    *"job_state = F"* | *"job_state = C"*)
        case $(printf '%s\n' "$told" | sed -n 's/^ *[Ee]xit_status = //p') in
            0) echo success ;;
            *) echo failed ;;
        esac
        ;;
    *"nknown Job"* | *"nknown job"* | *"nvalid job id"*) echo failed ;;
    *) echo running ;;
esac
exit 0
