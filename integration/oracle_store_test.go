package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// netStore is a store in a namespace of its own. What it holds outlives it.
type netStore struct {
	t       *testing.T
	host    *netHost
	kind    string // one of storeKinds
	dir     string
	members []*storeMember
	master  int // of the two servers that Sentinels watch, which is the master
}

// storeKinds are the stores that the random steps run on.
var storeKinds = []string{"etcd", "etcd3", "redis", "sentinel", "cluster"}

// storeBound is how long a store may take to be whole, on a machine that is busy.
const storeBound = 3 * time.Minute

// storeMember is one process of a store.
type storeMember struct {
	name string
	port int
	proc *process
}

func (m *storeMember) address() string { return storeIP + ":" + itoa(m.port) }

func newNetStore(t *testing.T, host *netHost, kind, dir string) *netStore {
	t.Helper()
	require.Contains(t, storeKinds, kind)
	s := &netStore{t: t, host: host, kind: kind, dir: dir}
	add := func(name string, port int) { s.members = append(s.members, &storeMember{name: name, port: port}) }
	switch kind {
	case "etcd":
		add("m0", 2379)
	case "etcd3":
		for i := range 3 {
			add("m"+itoa(i), 2379+10*i)
		}
	case "redis":
		add("r0", 6379)
	case "sentinel":
		for i := range 2 {
			add("r"+itoa(i), 6379+i)
		}
		for i := range 3 {
			add("s"+itoa(i), 26379+i)
		}
	case "cluster":
		for i := range 6 {
			add("c"+itoa(i), 7000+i)
		}
	}
	return s
}

func (s *netStore) url() string {
	var all []string
	for _, m := range s.members {
		if s.kind != "sentinel" || m.name[0] == 's' {
			all = append(all, m.address())
		}
	}
	hosts := strings.Join(all, ",")
	switch s.kind {
	case "redis":
		return "redis://" + hosts + "/0/models"
	case "sentinel":
		return "redis+sentinel://" + hosts + "/main/0/models"
	case "cluster":
		return "redis+cluster://" + hosts + "/models"
	}
	return "etcd://" + hosts
}

func (s *netStore) start() {
	s.t.Helper()
	switch s.kind {
	case "sentinel":
		s.startSentinel()
	case "cluster":
		s.startCluster()
	default:
		s.launch(s.members...)
	}
	if s.kind == "etcd3" { // a node that starts for the first time needs it at once
		soon(s.t, storeBound, "etcd has a leader", func() bool { return s.leader() != nil })
	}
}

func (s *netStore) stop() {
	switch s.kind {
	case "sentinel":
		s.stopSentinel()
	case "cluster":
		s.caughtUp(s.threeMasters()...)
	}
	s.kill()
}

// kill ends all at once.
func (s *netStore) kill() {
	for _, m := range s.members {
		m.kill()
	}
}

// restart is a stop and a start of all, or where there are several, the loss of
// one that leads.
func (s *netStore) restart() {
	s.t.Helper()
	switch s.kind {
	case "etcd3":
		s.loseLeader()
	case "sentinel":
		s.loseMaster()
	case "cluster":
		s.loseOneMaster()
	default:
		s.stop()
		s.start()
	}
}

func (m *storeMember) kill() {
	if m.proc != nil {
		m.proc.kill()
		m.proc = nil
	}
}

// launch starts members and waits until they listen.
func (s *netStore) launch(members ...*storeMember) {
	s.t.Helper()
	for _, m := range members {
		s.spawn(m)
	}
	for _, m := range members {
		soon(s.t, storeBound, s.kind+" listens", func() bool {
			require.True(s.t, m.proc.alive(), "%s ended: %s", m.name, tail(s.log(m), 10))
			return s.host.dial(m.address()) == nil
		})
	}
}

func (s *netStore) log(m *storeMember) string { return s.dir + "." + m.name + ".log" }

func (s *netStore) memberDir(m *storeMember) string { return filepath.Join(s.dir, m.name) }

func (s *netStore) spawn(m *storeMember) {
	s.t.Helper()
	log, err := os.OpenFile(s.log(m), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(s.t, err)
	defer log.Close()
	require.NoError(s.t, os.MkdirAll(s.memberDir(m), 0o700))
	cmd := s.command(m)
	cmd.Stdout, cmd.Stderr = log, log
	m.proc, err = spawn(cmd)
	require.NoError(s.t, err)
}

// command does not wait for the disk: processes are killed here, not machines.
func (s *netStore) command(m *storeMember) *exec.Cmd {
	switch m.name[0] {
	case 'm':
		return s.etcdCommand(m)
	case 's':
		return s.host.command("redis-sentinel", s.sentinelConf(m), "--port", itoa(m.port))
	}
	args := []string{"--bind", storeIP, "--port", itoa(m.port), "--protected-mode", "no",
		"--dir", s.memberDir(m), "--save", "", "--appendonly", "yes", "--appendfsync", "no"}
	switch s.kind {
	case "sentinel":
		args = append(args, "--repl-diskless-sync-delay", "0")
		if m != s.members[s.master] {
			args = append(args, "--replicaof", storeIP, itoa(s.members[s.master].port))
		}
	case "cluster":
		args = append(args, "--cluster-enabled", "yes", "--cluster-node-timeout", "30000", "--cluster-replica-validity-factor", "0",
			"--repl-diskless-sync-delay", "0")
	}
	return s.host.command("redis-server", args...)
}

func (s *netStore) etcdCommand(m *storeMember) *exec.Cmd {
	peer := func(m *storeMember) string { return "http://127.0.0.1:" + itoa(m.port+1) }
	var all []string
	for _, o := range s.members {
		all = append(all, o.name+"="+peer(o))
	}
	election := 200   // ms
	if len(all) > 1 { // votes that nobody asked for look like an outage
		election = 3000
	}
	client := "http://" + m.address()
	return s.host.command("etcd", "--name", m.name, "--data-dir", s.memberDir(m), "--unsafe-no-fsync",
		"--heartbeat-interval="+itoa(election/10), "--election-timeout="+itoa(election),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer(m), "--initial-advertise-peer-urls", peer(m), "--initial-cluster", strings.Join(all, ","))
}

// say runs a command in the store's namespace and returns what it says; empty if
// it fails.
func (s *netStore) say(name string, args ...string) string {
	if r := runCmd(s.t, commandLimit, s.host.command("timeout", append([]string{"20", name}, args...)...)); r.code == 0 {
		return string(r.out)
	}
	return ""
}

// loseLeader kills the member that leads, and starts it again when another does.
func (s *netStore) loseLeader() {
	s.t.Helper()
	var was *storeMember
	soon(s.t, storeBound, "etcd has a leader", func() bool { was = s.leader(); return was != nil })
	was.kill()
	soon(s.t, storeBound, "etcd has another leader", func() bool { return s.leader() != nil })
	s.launch(was)
}

// leader returns the member of etcd that leads; nil: none does.
func (s *netStore) leader() *storeMember {
	i := slices.IndexFunc(s.members, func(m *storeMember) bool { return m.proc != nil && s.leads(m) })
	if i < 0 {
		return nil
	}
	return s.members[i]
}

// leads reports whether a member says that it is the leader: it answers with its own
// number and the leader's.
func (s *netStore) leads(m *storeMember) bool {
	var member, leader string
	for line := range strings.Lines(s.say("etcdctl", "--endpoints", m.address(), "--command-timeout=15s", "--dial-timeout=10s", "endpoint", "status", "-w", "fields")) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), " : "); key {
		case `"MemberID"`:
			member = value
		case `"Leader"`:
			leader = value
		}
	}
	return member != "" && member == leader
}
