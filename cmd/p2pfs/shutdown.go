package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// stopper turns signals into an end: first is done at the first one, second
// at the next.
type stopper struct {
	first, second context.Context
	signals       chan os.Signal
	quit          chan struct{}
	done          chan struct{}
}

// newStopper takes over SIGINT, SIGTERM and SIGHUP until close.
func newStopper(log logger) *stopper {
	first, stopFirst := context.WithCancel(context.Background())
	second, stopSecond := context.WithCancel(context.Background())
	s := &stopper{
		first: first, second: second,
		signals: make(chan os.Signal, 4), quit: make(chan struct{}), done: make(chan struct{}),
	}
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer close(s.done)
		defer stopFirst()
		defer stopSecond()
		for _, step := range []struct {
			stop context.CancelFunc
			say  string
		}{
			{stopFirst, "ending: unmounting and leaving the cluster; a second signal ends the process at once"},
			{stopSecond, "ending at once"},
		} {
			select {
			case got := <-s.signals:
				log.Info(step.say, "signal", got.String())
				step.stop()
			case <-s.quit:
				return
			}
		}
		<-s.quit
	}()
	return s
}

// close gives the signals back.
func (s *stopper) close() {
	signal.Stop(s.signals)
	close(s.quit)
	<-s.done
}

// waitEnd returns when the mount has ended, by itself or by a signal.
func waitEnd(ctx context.Context, n daemon, sig *stopper) error {
	ended := make(chan error, 1)
	go func() { ended <- n.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-sig.first.Done():
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownBound)
	defer cancel()
	defer context.AfterFunc(sig.second, cancel)()
	closed := make(chan error, 1)
	go func() { closed <- n.Close(bound) }()
	select {
	case err := <-closed:
		return err
	case <-bound.Done():
		// Close is told to give up by the same bound; it is not waited for.
		if sig.second.Err() != nil {
			return errors.New("ended by a second signal before everything was closed")
		}
		return fmt.Errorf("not everything was closed within %s", shutdownBound)
	}
}

// joinClose ends a node that cannot be used and returns why.
func joinClose(n daemon, why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownBound)
	defer cancel()
	return errors.Join(why, n.Close(ctx))
}
