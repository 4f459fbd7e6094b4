#!/bin/bash
# Bring up a throw-away Slurm with fake 8-GPU nodes, accounting and slurmrestd, all on loopback. Needs root.
# usage: slurm-up.sh DIR MYSQL_PORT DBD_PORT CTLD_PORT REST_PORT NODE_PORT...   (one node for each NODE_PORT)
# Writes DIR/env; stop with slurm-down.sh DIR. Prints what failed and its log where something does not come up.
set -Eeuo pipefail
trap 'echo "slurm-up.sh: line $LINENO failed: $BASH_COMMAND" >&2; tail -n 5 "$W"/log/* >&2' ERR
W=$(mkdir -p "$1" && cd "$1" && pwd); MYSQL=$2 DBD=$3 CTLD=$4 REST=$5; shift 5; PORTS=("$@"); N=$#; H=$(hostname -s)

until_true() {  # until_true WHAT LOG COMMAND...: ask again for at most two minutes
  local what=$1 log=$2; shift 2
  for _ in $(seq 480); do "$@" >/dev/null 2>&1 && return; sleep .25; done
  echo "$what did not come up" >&2; tail -n 20 "$log" >&2; exit 1
}

mkdir -p "$W"/{etc,spool/ctld,log,run,mysql,dev,munge/{etc,run,log,lib}}; chmod 755 "$W" "$W/munge"; chmod 777 "$W/run"
for i in 0 1 2 3 4 5 6 7; do : > "$W/dev/fakegpu$i"; done

chown -R munge:munge "$W/munge"
dd if=/dev/urandom bs=1 count=1024 of="$W/munge/etc/munge.key" status=none
chown munge:munge "$W/munge/etc/munge.key"; chmod 400 "$W/munge/etc/munge.key"
chmod 700 "$W"/munge/{etc,log,lib}; chmod 755 "$W/munge/run"
su -s /bin/bash munge -c "/usr/sbin/munged --force --key-file=$W/munge/etc/munge.key --socket=$W/munge/run/munge.socket --pid-file=$W/munge/run/munged.pid --log-file=$W/munge/log/munged.log --seed-file=$W/munge/lib/seed"

chown -R mysql:mysql "$W/mysql"
mariadb-install-db --user=mysql --datadir="$W/mysql" --auth-root-authentication-method=normal >"$W/log/install-db.log" 2>&1
setsid mariadbd --no-defaults --user=mysql --datadir="$W/mysql" --socket="$W/run/mysql.sock" --bind-address=127.0.0.1 --port="$MYSQL" --pid-file="$W/mysql/m.pid" --innodb-buffer-pool-size=64M --innodb-log-file-size=8M --innodb-lock-wait-timeout=900 >"$W/log/mariadbd.log" 2>&1 &
sql() { mariadb -uroot -S "$W/run/mysql.sock" -e "$1"; }
until_true mariadbd "$W/log/mariadbd.log" sql 'select 1'
sql "create database slurm_acct_db; create user slurm@'127.0.0.1' identified by 'pw'; create user slurm@localhost identified by 'pw'; grant all on slurm_acct_db.* to slurm@'127.0.0.1'; grant all on slurm_acct_db.* to slurm@localhost"

dd if=/dev/urandom of="$W/etc/jwt.key" bs=32 count=1 status=none; chmod 600 "$W/etc/jwt.key"
cat >"$W/etc/slurmdbd.conf" <<E
AuthType=auth/munge
AuthInfo=socket=$W/munge/run/munge.socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$W/etc/jwt.key
DbdHost=$H
DbdAddr=127.0.0.1
DbdPort=$DBD
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$MYSQL
StorageUser=slurm
StoragePass=pw
StorageLoc=slurm_acct_db
PidFile=$W/run/slurmdbd.pid
LogFile=$W/log/slurmdbd.log
E
chmod 600 "$W/etc/slurmdbd.conf"
cat >"$W/etc/slurm.conf" <<E
ClusterName=testgpu
SlurmctldHost=$H(127.0.0.1)
SlurmctldPort=$CTLD
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$W/munge/run/munge.socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$W/etc/jwt.key
StateSaveLocation=$W/spool/ctld
SlurmdSpoolDir=$W/spool/%n
SlurmctldPidFile=$W/run/slurmctld.pid
SlurmdPidFile=$W/run/slurmd-%n.pid
SlurmctldLogFile=$W/log/slurmctld.log
SlurmdLogFile=$W/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
EnforcePartLimits=NO
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,requeue_delay=0
MinJobAge=3600
PriorityType=priority/multifactor
PriorityWeightFairshare=1000
PriorityWeightQOS=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
JobRequeue=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$DBD
AccountingStoragePass=$W/munge/run/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu,gres/gpu:h100
GresTypes=gpu
TopologyPlugin=topology/tree
ReturnToService=2
MpiDefault=none
MailProg=/bin/true
E
: >"$W/etc/gres.conf"; : >"$W/etc/topology.conf"
for i in $(seq "$N"); do
  echo "NodeName=gpu$i NodeHostname=$H NodeAddr=127.0.0.1 Port=${PORTS[$((i - 1))]} CPUs=16 RealMemory=16000 Gres=gpu:h100:8 State=UNKNOWN" >>"$W/etc/slurm.conf"
  echo "SwitchName=leaf$i Nodes=gpu$i" >>"$W/etc/topology.conf"
done
printf 'AutoDetect=off\nNodeName=gpu[1-%s] Name=gpu Type=h100 File=%s/dev/fakegpu[0-7]\n' "$N" "$W" >"$W/etc/gres.conf"
echo "SwitchName=spine Switches=leaf[1-$N]" >>"$W/etc/topology.conf"
cat >>"$W/etc/slurm.conf" <<E
PartitionName=gpu Nodes=gpu[1-$N] Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=gpu[1-$N] MaxNodes=1 MaxTime=60 State=UP
E

export SLURM_CONF="$W/etc/slurm.conf"
setsid slurmdbd -D >"$W/log/dbd.out" 2>&1 &
until_true slurmdbd "$W/log/dbd.out" sacctmgr -n show cluster
sacctmgr -i add cluster testgpu >"$W/log/sacctmgr.log"
setsid slurmctld -D >"$W/log/ctld.out" 2>&1 &
up() { scontrol ping | grep -q UP; }
until_true slurmctld "$W/log/ctld.out" up
for i in $(seq "$N"); do setsid slurmd -D -N "gpu$i" >"$W/log/slurmd-gpu$i.out" 2>&1 & done
idle() { [ "$(sinfo -h -N -p gpu -t idle -o %N | wc -l)" = "$N" ]; }
until_true slurmd "$W/log/slurmctld.log" idle
setsid su -s /bin/bash nobody -c "SLURM_CONF=$SLURM_CONF SLURM_JWT=daemon exec slurmrestd -a rest_auth/jwt -s openapi/v0.0.38,openapi/dbv0.0.38 127.0.0.1:$REST" >"$W/log/restd.out" 2>&1 &
echo $! >"$W/run/restd.pid"
TOKEN=$(scontrol token lifespan=36000 username=root); TOKEN=${TOKEN#SLURM_JWT=}
listens() { (: <"/dev/tcp/127.0.0.1/$REST"); }
until_true slurmrestd "$W/log/restd.out" listens
printf 'SLURM_CONF=%s\nSLURM_REST=http://127.0.0.1:%s\nSLURM_JWT=%s\n' "$SLURM_CONF" "$REST" "$TOKEN" >"$W/env"
