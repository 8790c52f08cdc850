package integration

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// What a fail-over of Redis may lose is shown elsewhere: here the replicas have got
// all before a master goes, and it is failed over by a command: on a busy machine a
// master that lives is silent for seconds, too.

// cli sends a command to a server.
func (s *netStore) cli(m *storeMember, args ...string) string {
	return s.say("redis-cli", append([]string{"-h", storeIP, "-p", itoa(m.port)}, args...)...)
}

// masters returns the running servers that are masters now.
func (s *netStore) masters() (out []*storeMember) {
	for _, m := range s.members {
		if m.proc != nil && m.name[0] != 's' && strings.HasPrefix(s.cli(m, "role"), "master") {
			out = append(out, m)
		}
	}
	return out
}

// threeMasters waits until all masters of a Cluster say that they are.
func (s *netStore) threeMasters() (all []*storeMember) {
	s.t.Helper()
	soon(s.t, storeBound, "three masters answer", func() bool {
		all = s.masters()
		return len(all) == 3
	})
	return all
}

// follows reports whether a server is a replica whose master answers it.
func (s *netStore) follows(m *storeMember) bool {
	role := s.cli(m, "role")
	return strings.HasPrefix(role, "slave") && strings.Contains(role, "connected")
}

// caughtUp waits until a replica of each of some masters has all that it has: WAIT is
// for what was there when the connection's last command was done.
func (s *netStore) caughtUp(masters ...*storeMember) {
	s.t.Helper()
	for _, m := range masters {
		soon(s.t, storeBound, m.name+" has a replica that has all", func() bool {
			said := s.say("sh", "-c", fmt.Sprintf("printf 'ping\\nwait 1 1000\\n' | redis-cli -h %s -p %d", storeIP, m.port))
			return strings.TrimSpace(said) == "PONG\n1"
		})
	}
}

func (s *netStore) servers() (master, replica *storeMember, sentinels []*storeMember) {
	return s.members[s.master], s.members[1-s.master], s.members[2:]
}

// sentinelConf is where a Sentinel keeps what it learns.
func (s *netStore) sentinelConf(m *storeMember) string {
	path := s.memberDir(m) + "/sentinel.conf"
	if _, err := os.Stat(path); err != nil {
		require.NoError(s.t, os.WriteFile(path, []byte(strings.Join([]string{
			fmt.Sprintf("sentinel monitor main %s %d 2", storeIP, s.members[s.master].port), "sentinel down-after-milliseconds main 30000",
			"sentinel failover-timeout main 3000", "dir " + s.memberDir(m), "bind " + storeIP, "protected-mode no", "",
		}, "\n")), 0o600))
	}
	return path
}

func (s *netStore) startSentinel() {
	s.t.Helper()
	master, replica, sentinels := s.servers()
	s.launch(master, replica)
	soon(s.t, storeBound, "the replica follows", func() bool { return s.follows(replica) })
	s.launch(sentinels...)
	for _, m := range sentinels {
		soon(s.t, storeBound, "the Sentinels agree", func() bool {
			info := s.cli(m, "info", "sentinel")
			return strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=1,sentinels=3")
		})
	}
}

// stopSentinel takes the Sentinels away first: they would fail over.
func (s *netStore) stopSentinel() {
	s.t.Helper()
	master, _, sentinels := s.servers()
	for _, m := range sentinels {
		m.kill()
	}
	if master.proc != nil {
		s.caughtUp(master)
	}
}

// loseMaster kills the master, and starts it again as a replica when all Sentinels
// name the other one.
func (s *netStore) loseMaster() {
	s.t.Helper()
	master, replica, sentinels := s.servers()
	s.caughtUp(master)
	master.kill()
	soon(s.t, storeBound, "a Sentinel fails over", func() bool {
		return strings.TrimSpace(s.cli(sentinels[0], "sentinel", "failover", "main")) == "OK" // else one is not over yet
	})
	for _, m := range sentinels {
		soon(s.t, storeBound, "the replica is the master", func() bool {
			return strings.Contains(s.cli(m, "sentinel", "get-master-addr-by-name", "main"), itoa(replica.port)) &&
				strings.HasPrefix(s.cli(replica, "role"), "master")
		})
	}
	s.master = 1 - s.master
	s.launch(master)
	soon(s.t, storeBound, "the old master follows", func() bool { return s.follows(master) })
}

func (s *netStore) startCluster() {
	s.t.Helper()
	_, err := os.Stat(s.memberDir(s.members[0]) + "/nodes.conf")
	s.launch(s.members...)
	if err != nil {
		args := []string{"--cluster", "create"}
		for _, m := range s.members {
			args = append(args, m.address())
		}
		r := runCmd(s.t, commandLimit, s.host.command("redis-cli", append(args, "--cluster-replicas", "1", "--cluster-yes")...))
		require.Zero(s.t, r.code, "%s", r)
	}
	s.clusterWhole()
}

// clusterWhole waits until three masters serve, each with its replica.
func (s *netStore) clusterWhole() {
	s.t.Helper()
	soon(s.t, storeBound, "the Cluster is whole", func() bool {
		replicas := 0
		for _, m := range s.members {
			if !strings.Contains(s.cli(m, "cluster", "info"), "cluster_state:ok") {
				return false
			}
			if s.follows(m) {
				replicas++
			}
		}
		return replicas == 3
	})
}

// becomesMaster waits for a server to be a master, for two seconds.
func (s *netStore) becomesMaster(m *storeMember) bool {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.HasPrefix(s.cli(m, "role"), "master") {
			return true
		}
	}
	return false
}

// loseOneMaster kills one of the masters, and starts it again when its replica is one.
func (s *netStore) loseOneMaster() {
	s.t.Helper()
	masters := s.threeMasters()
	s.caughtUp(masters...)
	lost := masters[0]
	var heir *storeMember
	soon(s.t, storeBound, "its replica answers", func() bool {
		for _, m := range s.members {
			if role := s.cli(m, "role"); strings.HasPrefix(role, "slave") && strings.Contains(role, itoa(lost.port)) {
				heir = m
			}
		}
		return heir != nil
	})
	lost.kill()
	soon(s.t, storeBound, "its replica takes over", func() bool {
		return strings.TrimSpace(s.cli(heir, "cluster", "failover", "takeover")) == "OK" && s.becomesMaster(heir)
	})
	soon(s.t, storeBound, "three masters serve again", func() bool {
		now := s.masters()
		for _, m := range now {
			if !strings.Contains(s.cli(m, "cluster", "info"), "cluster_state:ok") {
				return false
			}
		}
		return len(now) == 3
	})
	s.launch(lost)
	s.clusterWhole()
}
