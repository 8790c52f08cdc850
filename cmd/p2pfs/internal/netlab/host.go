package netlab

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Host is one machine of a lab. Safe for concurrent use.
type Host struct {
	Name string
	IP   string

	lab    *Lab
	holder *Process
}

// host makes a host without a link.
func (l *Lab) host(ctx context.Context, name string) (*Host, error) {
	cmd := exec.Command("sleep", "infinity")
	// What is mounted in the host is seen in the host alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	p, err := l.spawner.start(cmd, true)
	if err != nil {
		return nil, fmt.Errorf("make the namespaces of host %s: %w", name, err)
	}
	h := &Host{Name: name, lab: l, holder: p}
	return h, h.ip(ctx, "link set lo up")
}

func (h *Host) proc(elem ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(h.holder.PID())}, elem...)...)
}

// View returns how this process sees a path of the host, mounts included.
func (h *Host) View(path string) string { return h.proc("root", path) }

// Command is a command that runs on the host.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	ns := []string{"--net=" + h.proc("ns/net"), "--mount=" + h.proc("ns/mnt"), "--", name}
	return exec.Command("nsenter", append(ns, args...)...)
}

// Start starts a command that Command made. The lab ends it, if nobody else
// does.
func (h *Host) Start(cmd *exec.Cmd) (*Process, error) {
	p, err := h.lab.spawner.start(cmd, false)
	if err != nil {
		return nil, fmt.Errorf("start %q on %s: %w", cmd.Args, h.Name, err)
	}
	return p, nil
}

// Run runs a command to its end and returns what it printed. When ctx ends, so
// does the command.
func (h *Host) Run(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	p, err := h.Start(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return "", context.Cause(ctx)
	}
	if err := p.Err(); err != nil {
		said := strings.TrimSpace(errOut.String())
		return out.String(), fmt.Errorf("%s on %s: %w: %s", filepath.Base(cmd.Args[0]), h.Name, err, said)
	}
	return out.String(), nil
}

// ip runs commands of ip(8) on the host.
func (h *Host) ip(ctx context.Context, commands ...string) error {
	cmd := h.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	_, err := h.Run(ctx, cmd)
	return err
}
