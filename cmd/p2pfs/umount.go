package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

// Bounds of umount.
const (
	umountBound = 20 * time.Second               // for the mount to go
	exitBound   = shutdownBound + 15*time.Second // for the daemon to end after it, which may take what it is given
	goneEvery   = 20 * time.Millisecond
)

func (a *app) umountCommand() *cobra.Command {
	var force, lazy bool
	c := &cobra.Command{
		Use:   "umount [--force] [--lazy] MOUNTPOINT",
		Short: "End a mount and its node",
		Long: `End the mount at MOUNTPOINT and the node behind it, and wait until both are gone.
A mount in use is refused, and who uses it is named. A dead mount, whose daemon
was killed, is detached.

` + exitCodesHelp,
		Example: `  p2pfs umount /mnt/models
  p2pfs umount --lazy /mnt/models   # now; who has files open keeps them`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.umount(cmd.Context(), args[0], force, lazy)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "end it even if it is in use or its daemon hangs; who uses it gets errors")
	c.Flags().BoolVar(&lazy, "lazy", false, "take it out of sight now; it ends when the last open file is closed")
	return c
}

func (a *app) umount(ctx context.Context, name string, force, lazy bool) error {
	point, m, mounted, err := running.Resolve(name)
	if err != nil {
		return err
	}
	found, findErr := running.Find(running.Query{Path: name})
	hasNode := findErr == nil
	switch {
	case mounted && m.Point != point:
		return usagef("umount: %s is inside the mount at %s; unmount that", name, m.Point)
	case !mounted && !hasNode:
		return fmt.Errorf("umount: no p2pfs mount at %s", name)
	case !mounted && found.Inside != "":
		return usagef("umount: %s is inside the mount at %s; unmount that", name, found.Mountpoint)
	}
	if hasNode && point != found.Mountpoint {
		hasNode = false // a bind mount: it goes, the node's own stays
	}
	if hasNode {
		err = a.umountNode(ctx, found.Info, point, force, lazy)
	} else {
		err = umountKernel(ctx, m, force, lazy)
	}
	if err != nil {
		return err
	}
	if a.json {
		out := unmounted{Unmounted: true}
		out.Mountpoint, out.MountpointBase64 = jsonText(point)
		return a.printJSON(out)
	}
	return nil
}

// unmounted is the JSON that umount prints.
type unmounted struct {
	Mountpoint       string `json:"mountpoint"`
	MountpointBase64 string `json:"mountpoint_base64,omitempty"`
	Unmounted        bool   `json:"unmounted"`
}

// umountNode asks the node to end, and takes its mount away if it cannot.
func (a *app) umountNode(ctx context.Context, i running.Info, point string, force, lazy bool) error {
	ctl, conn, err := running.Dial(ctx, i)
	if err != nil {
		m, still := mountAt(point)
		switch {
		case !errors.Is(err, running.ErrNoNode) || !still:
			return err
		case i.Alive() && !force && !lazy:
			return fmt.Errorf("umount %s: %w\n--force takes the mount away without the node", point, err)
		}
		return umountKernel(ctx, m, force, lazy || !i.Alive())
	}
	defer conn.Close()
	bound, cancel := context.WithTimeout(ctx, umountBound)
	defer cancel()
	_, err = ctl.Unmount(bound, &nodepb.UnmountRequest{Force: force, Lazy: lazy})
	if _, still := mountAt(point); err != nil && still {
		return unmountFailed(asked(i, "umount "+point, err))
	}
	if lazy && !force {
		return nil
	}
	return awaitExit(ctx, i)
}

// unmountFailed adds what can be done about a busy mount.
func unmountFailed(err error) error {
	var r remoteError
	busy := errors.As(err, &r) && (r.code == codes.FailedPrecondition || strings.Contains(r.msg, "in use"))
	if !busy {
		return err
	}
	return fmt.Errorf("%w\n%s", err, busyHint)
}

const busyHint = "--lazy takes it out of sight now and lets them finish; --force gives them errors"

// awaitExit returns when the daemon has ended, so that its cache is free.
func awaitExit(ctx context.Context, i running.Info) error {
	ctx, cancel := context.WithTimeout(ctx, exitBound)
	defer cancel()
	tick := time.NewTicker(goneEvery)
	defer tick.Stop()
	for i.PID != 0 && i.Alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the mount is gone, but the node %s (pid %d) has not ended within %s", i, i.PID, exitBound)
		}
	}
	return nil
}

// mountAt returns the mount of ours at exactly this place.
func mountAt(point string) (running.Mount, bool) {
	at, m, ok, err := running.Resolve(point)
	return m, err == nil && ok && m.Point == at
}
