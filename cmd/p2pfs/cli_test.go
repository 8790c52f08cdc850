package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		code int
		out  []string
		err  []string
	}{
		{name: "alone", code: 0, out: []string{"Available Commands", "Exit codes", "mount", "register"}},
		{name: "help", args: []string{"--help"}, code: 0, out: []string{"Available Commands"}},
		{name: "help of a command", args: []string{"mount", "--help"}, code: 0, out: []string{"--cache-dir", "P2PFS_CACHE_SIZE", "Exit codes", "127.0.0.1:0"}},
		{name: "unknown command", args: []string{"stauts"}, code: 2, err: []string{`unknown command "stauts"`, "did you mean stat or status?", "p2pfs --help"}},
		{name: "nothing near", args: []string{"frobnicate"}, code: 2, err: []string{`unknown command "frobnicate"`}},
		{name: "unknown flag", args: []string{"mount", "/m", "--no-such-flag"}, code: 2, err: []string{"--no-such-flag", "p2pfs mount --help"}},
		{name: "unknown flag of none", args: []string{"--wat"}, code: 2, err: []string{"--wat", "p2pfs --help"}},
		{name: "flag without value", args: []string{"mount", "/m", "--cache-dir"}, code: 2, err: []string{"--cache-dir"}},
		{name: "mount of nothing", args: []string{"mount"}, code: 2, err: []string{"too few arguments", "[META_URL] MOUNTPOINT"}},
		{name: "mount of much", args: []string{"mount", "a", "b", "c"}, code: 2, err: []string{"too many arguments"}},
		{name: "register one", args: []string{"register", "a"}, code: 2, err: []string{"SRC... DEST"}},
		{name: "stat of nothing", args: []string{"stat"}, code: 2, err: []string{"stat PATH"}},
		{name: "stat of an empty name", args: []string{"stat", ""}, code: 2, err: []string{"empty argument"}},
		{name: "status of something", args: []string{"status", "x"}, code: 2, err: []string{"too many arguments"}},
		{name: "umount of nothing", args: []string{"umount"}, code: 2, err: []string{"MOUNTPOINT"}},
		{name: "umount of a directory", args: []string{"umount", "/etc"}, code: 1, err: []string{"no p2pfs mount at /etc"}},
		{name: "bad value", args: []string{"mount", "/m", "--cache-size", "plenty"}, code: 2, err: []string{"plenty", "--cache-size"}},
		{name: "warm nothing", args: []string{"warm"}, code: 2, err: []string{"PATH..."}},
		{name: "warm a rank alone", args: []string{"warm", "--rank", "1", "/m"}, code: 2, err: []string{"--world-size"}},
		{name: "warm a rank beyond", args: []string{"warm", "--rank", "4", "--world-size", "4", "/m"}, code: 2, err: []string{"want 0 to 3"}},
		{name: "warm too much at once", args: []string{"warm", "--concurrency", "1000", "/m"}, code: 2, err: []string{"1 to 256"}},
		{name: "warm into no directory", args: []string{"warm", "--save-dir", "", "/m"}, code: 2, err: []string{"--save-dir"}},
		{name: "pin nothing", args: []string{"pin"}, code: 2, err: []string{"pin PATH..."}},
		{name: "trace nothing", args: []string{"trace"}, code: 2, err: []string{"PATH"}},
		{name: "bench", args: []string{"bench"}, code: 0, out: []string{"swarm", "Exit codes"}},
		{name: "bench of nothing known", args: []string{"bench", "swam"}, code: 2, err: []string{"did you mean swarm"}},
		{name: "bench swarm of none", args: []string{"bench", "swarm", "--receivers", "0"}, code: 2, err: []string{"--receivers 0"}},
		{name: "bench swarm by magic", args: []string{"bench", "swarm", "--by", "magic"}, code: 2, err: []string{"warm or cat"}},
		{name: "bench swarm at no rate", args: []string{"bench", "swarm", "--rate", "fast"}, code: 2, err: []string{"150mbit"}},
		{name: "version", args: []string{"version"}, code: 0, out: []string{"p2pfs ", "go1."}},
		{name: "version as a flag", args: []string{"--version"}, code: 0, out: []string{"p2pfs ", "go1."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := runProgram(t, program(t, "none", nil, c.args...))
			require.Equal(t, c.code, r.code, "%s%s", r.out, r.err)
			for _, s := range c.out {
				require.Contains(t, r.out, s)
			}
			for _, s := range c.err {
				require.Contains(t, r.err, s)
			}
			if c.code != 0 {
				require.Empty(t, r.out)
			}
		})
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	a := &app{}
	for _, c := range a.rootCommand().Commands() {
		if c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		require.NotEmpty(t, c.Short, c.Name())
		require.NotEmpty(t, c.Long, c.Name())
		require.NotNil(t, c.Args, c.Name())
		for _, flag := range []string{"json", "node"} {
			require.NotNil(t, c.InheritedFlags().Lookup(flag), "%s --%s", c.Name(), flag)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	t.Parallel()
	v := decode(t, inProcess(t, "version", "--json").out)
	for _, name := range []string{"version", "go", "platform", "protocols"} {
		field(t, v, name)
	}
}

func TestHoldersNamesWhoHasSomethingOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(dir + "/f")
	require.NoError(t, err)
	defer f.Close()
	cmd := exec.Command("sleep", "60")
	cmd.Dir = dir
	require.NoError(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	syscall.ForkLock.RLock() // a child that another test is starting has the file, too
	got := holders(dir)
	syscall.ForkLock.RUnlock()
	require.Len(t, got, 2)
	require.Contains(t, got[0]+got[1], "sleep (")
	require.Equal(t, []string{"a process that this user cannot see"}, holders(dir+"/none"))
}
