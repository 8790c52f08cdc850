package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/node/running"
)

// answerTime bounds a call that answers once.
const answerTime = time.Minute

// session is a connection to the node that a command is meant for.
type session struct {
	running.Found
	ctl  nodepb.ControlClient
	conn io.Closer
}

func (s *session) Close() error { return s.conn.Close() }

// connect finds the node for a path ("" if the command has none) and dials it.
func (a *app) connect(ctx context.Context, path string) (*session, error) {
	found, err := running.Find(running.Query{Path: path, Node: a.node, Env: a.env(running.EnvNode)})
	if err != nil {
		return nil, err
	}
	ctl, conn, err := running.Dial(ctx, found.Info)
	if err != nil {
		return nil, err
	}
	return &session{Found: found, ctl: ctl, conn: conn}, nil
}

// with runs fn connected to the node for a path, until it is done or the user
// interrupts.
func (a *app) with(ctx context.Context, path string, fn func(context.Context, *session) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := a.connect(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	return fn(ctx, s)
}

// once is with for a call that answers once, within answerTime.
func (a *app) once(ctx context.Context, path string, fn func(context.Context, *session) error) error {
	return a.with(ctx, path, func(ctx context.Context, s *session) error {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		return fn(ctx, s)
	})
}

// mountedHere returns the working directory if it lies in a p2pfs mount.
func mountedHere() (string, bool) {
	wd, err := running.WorkingDir()
	if err != nil {
		return "", false
	}
	_, _, ok, err := running.Resolve(wd)
	return wd, ok && err == nil
}
