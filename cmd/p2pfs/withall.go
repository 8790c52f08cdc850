package main

import (
	"context"

	"github.com/p2pfs/p2pfs/node/running"
)

// withAll is with for a command that takes several paths, which lie under the
// mount of one node. fn gets them as they are seen here, and inside the mount.
func (a *app) withAll(ctx context.Context, names []string, fn func(ctx context.Context, s *session, paths, inside []string) error) error {
	return a.with(ctx, names[0], func(ctx context.Context, s *session) error {
		paths, inside := []string{s.Path}, []string{s.Inside}
		for _, name := range names[1:] {
			f, err := running.Find(running.Query{Path: name, Node: a.node, Env: a.env(running.EnvNode)})
			if err != nil {
				return err
			}
			if f.Socket != s.Socket {
				return usagef("%s is under the mount of node %s and %s under that of node %s; name the paths of one", quoteName(names[0]), s.Info, quoteName(name), f.Info)
			}
			paths, inside = append(paths, f.Path), append(inside, f.Inside)
		}
		return fn(ctx, s, paths, inside)
	})
}
