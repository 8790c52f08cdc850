//go:build rdma

package integration

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dataCalls are the system calls that bring the bytes of a file somewhere.
// Control messages go by read and write.
const dataCalls = "pread64,preadv,preadv2,readv,sendfile,splice,vmsplice,tee,copy_file_range"

// traced counts the system calls that a node makes while something is done; it
// returns strace's table.
func (n *node) traced(do func()) string {
	n.t.Helper()
	table := n.c.src("strace")
	s := launch(n.t, exec.Command("strace", "-f", "-c", "-e", "trace=read,write,"+dataCalls, "-o", table, "-p", itoa(n.proc.pid())))
	eventually(n.t, 60*time.Second, "strace is attached", func() bool {
		return strings.Contains(must(n.t, "cat", "/proc/"+itoa(n.proc.pid())+"/status"), "TracerPid:\t"+itoa(s.pid()))
	})
	do()
	s.signal(syscall.SIGINT)
	s.finish(n.t, 60*time.Second)
	out, err := os.ReadFile(table)
	require.NoError(n.t, err)
	return string(out)
}

// Blocks that a provider has the sums of, and has registered, cost it no system
// call that moves data, no registration, and few control messages: one for four
// blocks of a file that p2pfs keeps. One that is registered in place is looked at
// again after each block was READ; there the messages are as many as fetches that
// are not done at the same time.
func TestRDMAHot(t *testing.T) {
	const size = 256 << 20
	c, a, b := rdmaPair(t, rdmaA+":0", rdmaB+":0")
	src, want := randomFile(t, c, "model", size)
	a.register(src, "placed")
	must(t, "cp", src, a.path("written"))
	for _, k := range []struct {
		name string
		each int64 // blocks for one message
	}{{"written", 4}, {"placed", 2}} {
		read := func() {
			require.Equal(t, want, sum(t, b.path(k.name)))
			b.must("drop", b.path(k.name))
		}
		read()
		few := false
		for try := 0; !few && try < 5; try++ { // a machine that is busy elsewhere breaks up what goes together
			was, had := a.status().Counters, b.status().Counters
			read()
			is, has := a.status().Counters, b.status().Counters
			blocks := has["blocks_fetched"] - had["blocks_fetched"]
			said, heard := is["rdma_messages"]-was["rdma_messages"], has["rdma_messages"]-had["rdma_messages"]
			report(t, "%s: %d control messages to the reader and %d to the provider for %d blocks", k.name, said, heard, blocks)
			require.EqualValues(t, size, has["rdma_received_bytes"]-had["rdma_received_bytes"])
			require.Equal(t, was["rdma_registrations"], is["rdma_registrations"])
			few = k.each*said <= blocks && k.each*heard <= blocks
		}
		require.True(t, few, "%s: too many control messages", k.name)
		table := a.traced(read)
		report(t, "%s: system calls of the provider:\n%s", k.name, table)
		for _, call := range strings.Split(dataCalls, ",") {
			require.NotContains(t, table, " "+call+"\n")
		}
	}
}
