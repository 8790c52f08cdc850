package node

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATakenStatusPortIsFoundBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()
	held, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer held.Close()
	meta := filepath.Join(t.TempDir(), "meta")
	cfg := Config{
		Mountpoint: t.TempDir(), CacheDirs: []string{t.TempDir()}, MetaDir: meta,
		Listen: "127.0.0.1:0", MetaListen: "127.0.0.1:0", HTTP: held.Addr().String(),
	}
	_, err = Start(t.Context(), cfg)
	require.ErrorContains(t, err, "--http")
	require.ErrorContains(t, err, "address already in use")
	// The store in this process comes before the mount, and was not begun.
	require.NoDirExists(t, meta)
}
