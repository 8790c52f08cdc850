package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/node/running"
)

// Exit codes, as the help states them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitNoNode      = 4
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:
  0    done
  1    failed; the reason is on standard error
  2    the command line is wrong
  3    there is no such file or directory in the cluster
  4    no node to ask: none runs here, the one meant has ended or does not
       answer, or it is not clear which one is meant
  130  interrupted`

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// codeError carries the exit code of another process.
type codeError struct {
	code int
	err  error
}

func (e codeError) Error() string { return e.err.Error() }
func (e codeError) Unwrap() error { return e.err }

func exitCode(err error) int {
	var usage usageError
	var other codeError
	var asked remoteError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &other):
		return other.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &asked) && asked.code == codes.NotFound:
		return exitNotFound
	case errors.Is(err, running.ErrNoNode):
		return exitNoNode
	}
	return exitFailed
}

// remoteError is what a node answered instead of doing what it was asked.
type remoteError struct {
	code codes.Code
	what string
	msg  string
}

func (e remoteError) Error() string { return e.what + ": " + e.msg }

// noNodeError is a node that ended while it was asked.
type noNodeError struct{ msg string }

func (e noNodeError) Error() string        { return e.msg }
func (e noNodeError) Is(target error) bool { return target == running.ErrNoNode }

// asked turns the failure of a call to a node into an error for people; what
// says what was asked.
func asked(i running.Info, what string, err error) error {
	if err == nil {
		return nil
	}
	s, _ := status.FromError(err)
	switch {
	case s.Code() == codes.Canceled:
		return fmt.Errorf("%s: %w", what, context.Canceled)
	case s.Code() == codes.DeadlineExceeded:
		return remoteError{s.Code(), what, fmt.Sprintf("the node %s did not answer in time", i)}
	case s.Code() == codes.Unavailable && i.PID != 0 && !i.Alive():
		return noNodeError{fmt.Sprintf("%s: the node %s has ended (pid %d)", what, i, i.PID)}
	}
	return remoteError{s.Code(), what, s.Message()}
}
