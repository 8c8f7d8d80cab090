#!/bin/sh
# preStop hook of an inference worker's pod: moves its sessions to others before the
# worker is stopped, and returns when it is safe to stop, or when time is up.
#
# Kubernetes sends SIGTERM when the hook returns, whatever it answers, and SIGKILL at
# terminationGracePeriodSeconds: make that longer than the deadline. Until then the
# worker goes on serving and beating.
#
# BERTH_INSTANCE        the worker's instance id, like the pod's name
# BERTH_URL             where Berth is; BERTH_TOKEN if it wants one, and for TLS with
#                       a private CA BERTH_CA, BERTH_CERT and BERTH_CERT_KEY
# BERTH_DRAIN_DEADLINE  how long the drain may take, like 4m; and every other flag of
#                       `berth drain` by its variable
# BERTH_DRAIN_AVOID     label=value of pods that go away as well, like those of the
#                       same ReplicaSet: they get sessions only when no other has room
set -u
: "${BERTH_INSTANCE:?must name the instance}"

said=$(berth drain "$BERTH_INSTANCE")
code=$?
[ -z "$said" ] || printf '%s\n' "$said"
case $code in
0) ;; # safe to stop
3)
  case $said in
  *"left on "*) # What is left is stored, and is rebuilt by whoever serves it next.
    echo "preStop: time is up, some sessions have not moved" >&2 ;;
  *": partial, "*)
    echo "preStop: time is up; the sessions have moved, but requests may still run here" >&2 ;;
  *) # The worker registered again meanwhile, and may have got sessions since.
    echo "preStop: another boot of the worker serves, and is drained, too" >&2
    exec berth drain "$BERTH_INSTANCE" ;;
  esac ;;
4)    # The last worker of its pool: its sessions stay stored, and belong to nobody.
  echo "preStop: nobody is left to take the sessions" >&2
  exec berth drain "$BERTH_INSTANCE" --mode detach ;;
*) echo "preStop: the drain failed with code $code" >&2 ;;
esac
exit $code
