package integration

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// world is what all tests of one run share. Written by TestMain before the
// first test, read only afterwards.
var world struct {
	root    string // all that tests write lies below
	binary  string // p2pfs
	python  string // with numpy and safetensors
	spawner *spawner
	store   *store // an etcd process; tests use a prefix each
	ports   *portPool
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		os.Exit(childMain(mode, os.Args[1:]))
	}
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	if err := prerequisites(); err != nil {
		return 1, err
	}
	if world.root, err = os.MkdirTemp("", "p2it"); err != nil {
		return 1, err
	}
	world.spawner, world.ports = newSpawner(), newPortPool()
	reaper, err := startReaper(world.root)
	if err != nil {
		return 1, fmt.Errorf("start the reaper: %w", err)
	}
	defer func() { err = errors.Join(err, reaper.finish()) }()

	if world.binary, err = buildBinary(); err != nil {
		return 1, err
	}
	world.store = newStore(filepath.Join(world.root, "etcd"))
	if err := world.store.start(); err != nil {
		return 1, fmt.Errorf("start etcd: %w", err)
	}
	defer world.store.stop()
	return m.Run(), nil
}

func prerequisites() error {
	if os.Getuid() != 0 {
		return errors.New("these tests mount file systems and need root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return errors.New("/dev/fuse is not there")
	}
	for _, tool := range []string{"etcd", "fusermount3", "umount", "dd", "cmp", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: run tools/setup.sh test", tool)
		}
	}
	python, err := filepath.Abs("../build/venv/bin/python")
	if err != nil {
		return err
	}
	if _, err := os.Stat(python); err != nil {
		return fmt.Errorf("%s is missing: run tools/setup.sh test", python)
	}
	world.python = python
	return nil
}

// buildBinary returns $P2PFS_BIN or builds p2pfs.
func buildBinary() (string, error) {
	if bin := os.Getenv("P2PFS_BIN"); bin != "" {
		_, err := os.Stat(bin)
		return bin, err
	}
	bin := filepath.Join(world.root, "p2pfs")
	cmd := exec.Command("go", "build", "-o", bin, "../cmd/p2pfs")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build p2pfs: %w\n%s", err, out)
	}
	return bin, nil
}
