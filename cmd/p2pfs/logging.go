package main

import (
	"io"
	"log/slog"
	"strings"
)

// logger is what the command itself logs with.
type logger = *slog.Logger

// level reads --log-level.
func (s *mountSettings) level() (slog.Level, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	l, ok := levels[strings.ToLower(s.logLevel)]
	if !ok {
		return 0, usagef("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	return l, nil
}

// logger returns the daemon's log, written to w.
func (s *mountSettings) logger(w io.Writer) logger {
	level, err := s.level()
	if err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
