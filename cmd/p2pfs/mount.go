package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/p2pfs/p2pfs/node"
	"github.com/p2pfs/p2pfs/node/running"
)

const mountHelp = `Start a node: mount the cluster's files at MOUNTPOINT, keep what is read in a local
cache, and serve it to other nodes. The command stays in the foreground until the
mount ends; with -d it returns when the mount is ready. MOUNTPOINT is a directory
that exists; what is in it is hidden while the mount lasts.

META_URL says where the cluster keeps its names:
  etcd://HOST:PORT[,HOST:PORT...][/PREFIX]
  redis://HOST:PORT[/DB[/PREFIX]]
  redis+sentinel://HOST:PORT[,HOST:PORT...]/SERVICE[/DB[/PREFIX]]
  redis+cluster://HOST:PORT[,HOST:PORT...][/PREFIX]
Without it this node runs a metadata store of its own inside its process and
prints the URL that other nodes join by. A password in META_URL can be kept off
the command line by setting P2PFS_META_URL instead.

A node listens on this machine only. To serve other machines, say where with
--listen, and --insecure: there is no encryption yet, so the network must be one
you trust.

The mount ends on SIGTERM, SIGINT, 'p2pfs umount', umount and fusermount3 -u. A
second signal ends the process at once.

Sizes are bytes or have a unit: 1048576, 64MiB, 10G. Every flag can be set by a
variable of the environment, P2PFS_ and its name, as in P2PFS_CACHE_SIZE=100G;
the flag wins. P2PFS_CACHE_DIR may hold several directories, separated by colons.

` + exitCodesHelp

func (a *app) mountCommand() *cobra.Command {
	s := &mountSettings{}
	c := &cobra.Command{
		Use:   "mount [META_URL] MOUNTPOINT",
		Short: "Start a node and mount the cluster's files",
		Long:  mountHelp,
		Example: `  p2pfs mount /mnt/models
  p2pfs mount etcd://10.0.0.1:2379 /mnt/models --listen 0.0.0.0:7070 --insecure -d
  p2pfs mount etcd://10.0.0.1:2379 /mnt/models --cache-dir /nvme0/p2pfs --cache-dir /nvme1/p2pfs --cache-size 2T`,
		Args: argCount(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.fromEnvironment(cmd.Flags(), a.lookup); err != nil {
				return err
			}
			if err := s.complete(args); err != nil {
				return err
			}
			return a.mount(cmd.Context(), s)
		},
	}
	s.addFlags(c.Flags())
	return c
}

// mount starts the node here, or in a process of its own.
func (a *app) mount(ctx context.Context, s *mountSettings) error {
	if r := a.reporter(); r != nil {
		err := a.serve(ctx, s, r.ready)
		if err != nil {
			r.failed(err)
		}
		return err
	}
	if s.daemon {
		return a.daemonize(ctx, s)
	}
	return a.serve(ctx, s, func(r readyNode) error { return a.printReady(r) })
}

// shutdownBound is the most an orderly end takes.
const shutdownBound = 30 * time.Second

// serve runs the node until its mount ends. ready is told once it can be used.
func (a *app) serve(ctx context.Context, s *mountSettings, ready func(readyNode) error) error {
	cfg := s.config
	log := s.logger(a.err)
	slog.SetDefault(log) // libraries that log on their own, net/http among them, are heard there
	cfg.Log, cfg.Version = log, newVersionJSON().Version
	socket, err := running.SocketPath(running.CacheKey(cfg.CacheDirs[0]))
	if err != nil {
		return err
	}
	cfg.RuntimeSocket = socket

	sig := newStopper(log)
	defer sig.close()
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	release := context.AfterFunc(sig.first, cancel)
	n, err := a.start(starting, cfg)
	if err != nil && sig.first.Err() != nil {
		return fmt.Errorf("stopped while starting: %w", context.Canceled)
	}
	if err != nil {
		return err
	}
	release()

	info := n.Info()
	pub, err := running.Publish(running.Info{
		Node: info.ID.String(), Name: info.Name, Mountpoint: info.Mountpoint, CacheDirs: cfg.CacheDirs,
		Socket: socket, MetaURL: info.MetaURL, Version: cfg.Version,
	})
	if err != nil {
		return joinClose(n, err)
	}
	defer pub.Close()
	for _, w := range info.Warnings {
		log.Warn(w)
	}
	s.remark(info, log)
	if err := ready(newReadyNode(info, cfg, os.Getpid())); err != nil {
		return joinClose(n, fmt.Errorf("report that the mount is ready: %w", err))
	}
	return waitEnd(ctx, n, sig)
}

// remark says what a person who set the node up may not have meant.
func (s *mountSettings) remark(info node.Info, log logger) {
	if isWildcard(s.config.Listen) {
		log.Info("listening on every address of this machine", "listen", s.config.Listen, "told to other nodes", info.Listen)
	}
	if onlyLocal(info.Listen) && !info.Embedded && !localStore(s.config.MetaURL) {
		log.Warn("nodes on other machines cannot reach this one: it listens on this machine only; see --listen", "listen", info.Listen)
	}
}
