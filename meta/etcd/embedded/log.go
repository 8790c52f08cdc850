package embedded

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapTo returns a logger that passes etcd's errors on to log, until closing is
// set: every listener of a server that is closed calls that an error.
func zapTo(log *slog.Logger, closing *atomic.Bool) *zap.Logger {
	return zap.New(core{log: log, closing: closing}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// core is a zap core over a slog logger.
type core struct {
	log     *slog.Logger
	closing *atomic.Bool
	fields  []zapcore.Field
}

var _ zapcore.Core = core{}

func (c core) Enabled(l zapcore.Level) bool { return l >= zapcore.ErrorLevel && !c.closing.Load() }

func (c core) With(f []zapcore.Field) zapcore.Core {
	c.fields = append(c.fields[:len(c.fields):len(c.fields)], f...)
	return c
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c core) Write(e zapcore.Entry, f []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, x := range append(c.fields[:len(c.fields):len(c.fields)], f...) {
		x.AddTo(enc)
	}
	attrs := make([]slog.Attr, 0, len(enc.Fields))
	for k, v := range enc.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	c.log.LogAttrs(context.Background(), slog.LevelError, "metadata store: "+e.Message, attrs...)
	return nil
}

func (c core) Sync() error { return nil }
