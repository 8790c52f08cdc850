package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envReport tells the process in the background the descriptor to report to.
const envReport = "P2PFS_INTERNAL_REPORT_FD"

// reportFD is that descriptor: the first after the standard three.
const reportFD = 3

// report is what the process in the background tells the one that the user
// waits for: that it is ready, or why not.
type report struct {
	Ready *readyNode `json:"ready,omitempty"`
	Error string     `json:"error,omitempty"`
	Code  int        `json:"code,omitempty"`
}

// daemonize runs the same command in a session of its own and returns when it
// is ready or has failed.
func (a *app) daemonize(ctx context.Context, s *mountSettings) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	log, from, err := s.openLog()
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", a.args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envReport+"="+strconv.Itoa(reportFD))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	return a.awaitReport(ctx, cmd, r, s.logFile, from)
}

// openLog opens the log file and returns how long it was before.
func (s *mountSettings) openLog() (*os.File, int64, error) {
	if underneath(s.logFile, s.config.Mountpoint) {
		return nil, 0, usagef("the cache directory or log file %s lies in the mountpoint %s", s.logFile, s.config.Mountpoint)
	}
	if dir := filepath.Dir(s.logFile); dir == s.config.CacheDirs[0] {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, 0, fmt.Errorf("make the cache directory: %w", err)
		}
	}
	f, err := os.OpenFile(s.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, 0, fmt.Errorf("open the log file (see --log-file): %w", err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fi.Size(), nil
}

// awaitReport waits for the process in the background to be ready.
func (a *app) awaitReport(ctx context.Context, cmd *exec.Cmd, from io.Reader, logFile string, logStart int64) error {
	reports := make(chan report, 1)
	go func() {
		var rep report
		if err := json.NewDecoder(from).Decode(&rep); err != nil {
			rep = report{}
		}
		reports <- rep
	}()
	var rep report
	select {
	case rep = <-reports:
	case <-ctx.Done():
		endChild(cmd)
		return fmt.Errorf("stopped before the mount was ready: %w", context.Canceled)
	}
	if rep.Ready != nil {
		rep.Ready.LogFile = logFile
		if err := cmd.Process.Release(); err != nil {
			return fmt.Errorf("let the process in the background go: %w", err)
		}
		return a.printReady(*rep.Ready)
	}
	waitErr := cmd.Wait()
	if rep.Error != "" {
		return codeError{rep.Code, errors.New(rep.Error)}
	}
	return fmt.Errorf("the process in the background ended before it was ready (%v); the end of %s:\n%s", waitErr, logFile, logTail(logFile, logStart))
}

// endChild ends the process in the background, the hard way if need be.
func endChild(cmd *exec.Cmd) {
	cmd.Process.Signal(syscall.SIGTERM)
	hard := time.AfterFunc(shutdownBound, func() { cmd.Process.Kill() })
	defer hard.Stop()
	cmd.Wait() // how it ended tells nothing more
}

// logTail returns the last lines that were logged after an offset.
func logTail(path string, from int64) string {
	const most = 4 << 10
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	start := max(from, fi.Size()-most)
	b, err := io.ReadAll(io.NewSectionReader(f, start, fi.Size()-start))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b))
}

// reporter tells the waiting process how the start went.
type reporter struct {
	pipe *os.File
}

// reporter returns nil in a process that nobody started in the background.
func (a *app) reporter() *reporter {
	if a.env(envReport) != strconv.Itoa(reportFD) {
		return nil
	}
	// Programs that the daemon runs must not keep the pipe open.
	unix.CloseOnExec(reportFD)
	os.Unsetenv(envReport)
	return &reporter{pipe: os.NewFile(reportFD, "report")}
}

// ready lets the waiting process go. The daemon leaves its working directory,
// so that this does not keep a file system from being unmounted.
func (r *reporter) ready(n readyNode) error {
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return r.send(report{Ready: &n})
}

// failed gives the waiting process the reason. Nobody may wait any more.
func (r *reporter) failed(err error) {
	if r.pipe != nil {
		_ = r.send(report{Error: err.Error(), Code: exitCode(err)})
	}
}

func (r *reporter) send(rep report) error {
	err := json.NewEncoder(r.pipe).Encode(rep)
	err = errors.Join(err, r.pipe.Close())
	r.pipe = nil
	return err
}
