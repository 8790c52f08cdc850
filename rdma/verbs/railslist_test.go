package verbs

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma/devices"
)

func manyGIDs(n int) []devices.GID {
	var out []devices.GID
	for i := range n {
		out = append(out, devices.GID{Index: i, Addr: netip.MustParseAddr("fd00:1234:5678:9abc:def0:1234:5678:9abc"), Type: devices.TypeRoCEv2, Netdev: "enp193s0f0np0"})
	}
	return out
}

func TestReadRails(t *testing.T) {
	t.Parallel()
	rails := []devices.Rail{{Device: "mlx5_0", Verbs: "/dev/infiniband/uverbs0", Port: 1, Link: devices.LinkEthernet, MTU: 4096, GIDs: manyGIDs(2)}}
	p, err := json.Marshal(rails)
	require.NoError(t, err)
	whole := string(p)
	got, err := readRails(strings.NewReader(whole))
	require.NoError(t, err)
	require.Equal(t, rails, got)

	for name, c := range map[string]struct {
		from io.Reader
		link bool // else it is corrupt
	}{
		"nothing":               {strings.NewReader(""), true},
		"cut off":               {strings.NewReader(whole[:len(whole)/2]), true},
		"the connection breaks": {io.MultiReader(strings.NewReader(whole[:9]), iotest.ErrReader(io.ErrUnexpectedEOF)), true},
		"another failure":       {iotest.ErrReader(errors.New("reset by peer")), true},
		"too long":              {strings.NewReader("[" + strings.Repeat(" ", maxRailsReply)), true},
		"no list":               {strings.NewReader("<html>"), false},
		"another type":          {strings.NewReader(`{"device": 3}`), false},
		"a field of other type": {strings.NewReader(`[{"device": 3}]`), false},
		"no address at all":     {strings.NewReader(`[{"device": "a", "gids": [{"Addr": "here"}]}]`), false},
		"a short address":       {strings.NewReader(`[{"device": "a", "gids": [{"Addr": "10.0.0.1"}]}]`), false},
		"no addresses":          {strings.NewReader(`[{"device": "a"}]`), false},
	} {
		_, err := readRails(c.from)
		require.Error(t, err, name)
		require.Equal(t, c.link, errors.Is(err, errLink), "%s: %v", name, err)
		require.Equal(t, !c.link, errors.Is(err, chunk.ErrCorrupt), "%s: %v", name, err)
		require.Equal(t, c.link, Elsewhere(err), "%s: %v", name, err)
	}
}

// TestListed: what others are told fits what they read, and leaves what is used
// here as it is.
func TestListed(t *testing.T) {
	t.Parallel()
	var rails []devices.Rail
	for range 32 {
		rails = append(rails, devices.Rail{Device: "mlx5_bond_0", Verbs: "/dev/infiniband/uverbs10", Port: 1, Link: devices.LinkEthernet, MTU: 4096, GIDs: manyGIDs(200)})
	}
	rails[3].GIDs = rails[3].GIDs[:1]
	p, err := json.Marshal(listed(rails))
	require.NoError(t, err)
	got, err := readRails(strings.NewReader(string(p)))
	require.NoError(t, err)
	require.Len(t, got, 32)
	require.Equal(t, rails[0].GIDs[:maxGIDs], got[0].GIDs)
	require.Len(t, got[3].GIDs, 1)
	require.Len(t, rails[0].GIDs, 200)
	require.Equal(t, []devices.Rail{}, listed(nil))
}

// TestPausing: what says nothing of a connection pauses none; and what another
// transport may do better is left to it.
func TestPausing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code            code
		pauses, overTCP bool
	}{
		{codeFailed, false, false}, {codeNotHeld, false, false}, {codeChanged, false, false}, {codeDamaged, false, false},
		{codeBusy, false, false}, {codeRefused, false, false}, {codeMemory, false, true}, {codeFull, false, true},
		{codeOver, true, true}, {codeClosed, true, true},
	} {
		err := errorOf(verdict{code: c.code, text: "why"})
		require.Equal(t, c.pauses, pausing(err), "%v", err)
		require.Equal(t, c.overTCP, Elsewhere(err), "%v", err)
	}
}
