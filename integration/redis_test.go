package integration

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// redisStore is a redis-server of its own process. It keeps its port and its
// data over restarts, also when it is killed.
type redisStore struct {
	t    *testing.T
	dir  string
	port int
	proc *process
}

// ownRedis gives a cluster a redis-server of its own, to be killed at will.
func ownRedis(t *testing.T, c *cluster) *redisStore {
	t.Helper()
	port, err := anyPort()
	require.NoError(t, err)
	s := &redisStore{t: t, dir: filepath.Join(c.dir, "redis"), port: port}
	require.NoError(t, os.MkdirAll(s.dir, 0o700))
	s.start()
	t.Cleanup(func() { s.proc.kill() })
	c.url = fmt.Sprintf("redis://127.0.0.1:%d/0/models", port)
	return s
}

func (s *redisStore) start() {
	s.t.Helper()
	log, err := os.OpenFile(s.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(s.t, err)
	defer log.Close()
	cmd := exec.Command("redis-server", "--port", itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes",
		"--appendfsync", "no") // processes are killed here, not machines, and a slow disk looks like an outage
	cmd.Stdout, cmd.Stderr = log, log
	s.proc, err = spawn(cmd)
	require.NoError(s.t, err)
	eventually(s.t, commandLimit, "redis-server answers", func() bool {
		require.True(s.t, s.proc.alive(), "redis-server ended: %s", tail(s.dir+".log", 10))
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", s.port), 10*time.Second)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return false
		}
		answer, err := bufio.NewReader(conn).ReadString('\n') // an error while it reads its files
		return err == nil && answer == "+PONG\r\n"
	})
}

// TestRedisIsTheStore: three nodes that share a Redis server; it is killed, and
// what is known here is there all the while, the rest is an error and not a
// missing file, and all goes on when the server is back.
func TestRedisIsTheStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := ownRedis(t, c)
	a, b, w := c.start("a"), c.start("b"), c.start("w")
	held := registered(t, a, "d/held", 20*smallChunk, 1)
	registered(t, a, "e/unseen", 5*smallChunk, 2)
	require.Equal(t, held, digest(t, b.path("d/held")))
	b.waitLocal("d/held")
	require.NoError(t, os.WriteFile(w.path("d/written"), []byte("by a third"), 0o644))
	for _, n := range []*node{a, b, w} {
		require.Equal(t, "by a third", must(t, "cat", n.path("d/written")))
		require.Equal(t, "held\nwritten\n", must(t, "ls", n.path("d")))
	}

	s.proc.kill()
	require.Equal(t, held, digest(t, b.path("d/held")), "held bytes")
	require.Equal(t, "held\nwritten\n", must(t, "ls", b.path("d")), "listed names")
	for _, name := range []string{"e/unseen", "no such name"} {
		r := runCmd(t, outageBound, exec.Command("cat", b.path(name)))
		require.NotZero(t, r.code)
		require.Contains(t, r.err, "Input/output error", "an outage looks like a missing file")
	}
	s.start()
	eventually(t, commandLimit, "everything again, without a remount", func() bool {
		return run(t, "cmp", c.src("e/unseen"), b.path("e/unseen")).code == 0
	})
	eventually(t, commandLimit, "the writer goes on", func() bool {
		return run(t, "sh", "-c", "echo later > "+w.path("d/later")).code == 0
	})
	inTouch(t, a, b, w)
	require.Equal(t, "later\n", must(t, "cat", a.path("d/later")))
	must(t, "rm", a.path("d/later"))
	soonAbsent(t, b.path("d/later"))
}
