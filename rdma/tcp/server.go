package tcp

import (
	"log/slog"
	"net/http"
	"time"
)

// Bounds on what a stranger may hold of a server.
const (
	headerTimeout  = 5 * time.Second
	serverIdle     = 3 * time.Minute // longer than any client keeps a connection, so that the client closes first
	maxHeaderBytes = 8 << 10
)

// NewServer returns a server for h with bounds on the size and the time of a
// request's head. It has no bound on the time of an answer: Handler sees to
// progress. Give its Serve a plain *net.TCPListener, else bodies are copied
// instead of sent by sendfile. The caller ends it with Shutdown or Close.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       serverIdle,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
