#!/bin/bash
# Stop what slurm-up.sh started, each daemon by its own pid, its children before it. usage: slurm-down.sh DIR
W=$(cd "$1" && pwd); export SLURM_CONF=$W/etc/slurm.conf

gone() { for _ in $(seq 80); do kill -0 "$1" 2>/dev/null || return; sleep .25; done; kill -9 "$1" 2>/dev/null; }
stop() { [ -s "$1" ] || return; local pid; pid=$(cat "$1"); kill "$pid" 2>/dev/null && gone "$pid"; }

timeout 20 scancel -u root 2>/dev/null
idle() { [ -z "$(timeout 5 squeue -h -t R,CG 2>/dev/null)" ]; }
for _ in $(seq 40); do idle && break; sleep .25; done
R=$(cat "$W/run/restd.pid" 2>/dev/null); [ -n "$R" ] && for child in $(ps -o pid= --ppid "$R"); do kill "$child" 2>/dev/null; done
stop "$W/run/restd.pid"
for f in "$W"/run/slurmd-*.pid; do stop "$f"; done
stop "$W/run/slurmctld.pid"; stop "$W/run/slurmdbd.pid"; stop "$W/mysql/m.pid"; stop "$W/munge/run/munged.pid"; true
