package integration

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is written and not published, or cannot be.

// W12
func TestPrivateNamesStayHereUntilTheyAreRenamed(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return
	}
	p := newPair(t)
	a, b := p.mkdir(t, "d")
	want := writeFile(t, p.src+"/f", 3*smallBlock+1, 1)
	names := []string{".f.a1B2c3", ".tmpXyz123", "blob.incomplete"}
	for _, name := range names {
		must(t, "cp", p.src+"/f", a+"/"+name)
		require.Equal(t, want, digest(t, a+"/"+name), "as it is here")
	}
	must(t, "cp", p.src+"/f", a+"/seen")
	require.Equal(t, "seen\n", must(t, "ls", "-A", b))
	p.na.stop()
	p.na.start()
	for i, name := range names { // still here
		require.Equal(t, want, digest(t, a+"/"+name))
		require.NotZero(t, run(t, "stat", b+"/"+name).code, "%s is seen on the other node", name)
		must(t, "mv", a+"/"+name, a+"/f"+itoa(i))
		require.Equal(t, want, digest(t, b+"/f"+itoa(i)))
	}
}

// O3 O4 W10 C2
func TestCloseFailsWithTheStoreDownAndTheBytesStay(t *testing.T) {
	t.Parallel()
	if os.Getenv(plainEnv) != "" {
		return
	}
	c := newCluster(t)
	s := ownStore(t, c)
	a, b := c.start("a"), c.start("b")
	must(t, "mkdir", a.path("d"))
	h := newHand(t)
	h.must("open f %s w+creat", a.path("d/f"))
	h.must("fill f %d", 10*smallBlock)
	writeFile(t, c.src("part"), 2*smallBlock, 2)
	s.stop()
	require.Equal(t, "EIO", h.does("close f"))
	r := runCmd(t, outageBound, exec.Command("cp", c.src("part"), a.path("d/part")))
	require.NotZero(t, r.code, "cp succeeded with the store down")
	require.Contains(t, r.err, "Input/output error")

	a.kill() // and even so
	require.NoError(t, s.start())
	a.start()
	ls := a.unpublished()
	require.Len(t, ls, 1)
	require.Equal(t, "closed", ls[0].State)
	a.must("recover", "--all")
	inTouch(t, b) // which was there while the store was away
	for _, n := range []*node{a, b} {
		require.Equal(t, repeat(10*smallBlock), text(t, n.path("d/f")))
	}
	require.Empty(t, a.unpublished())
}
