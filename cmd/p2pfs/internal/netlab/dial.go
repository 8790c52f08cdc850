package netlab

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Listen listens on the host, on a free port of its address.
func (h *Host) Listen(ctx context.Context) (net.Listener, error) {
	var lis net.Listener
	err := h.inside(func() (err error) {
		lis, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(h.IP, "0"))
		return err
	})
	return lis, err
}

// Dial connects from the host.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var conn net.Conn
	err := h.inside(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

// inside runs f on a thread in the host's network: a socket stays where it was
// made.
func (h *Host) inside(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this
		ns, err := os.Open(h.proc("ns/net"))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err != nil {
			result <- fmt.Errorf("enter the network of host %s: %w", h.Name, err)
			return
		}
		result <- f()
	}()
	return <-result
}
